//! Files to profiles: finds out which tool wrote a recording and reads it, plain or compressed, as a stream.
//!
//! One importer per file. Each turns its format into the one [`Profile`] of the core and
//! counts what it cannot read. Free-form metadata, where recorders put environment dumps, is skipped byte by byte and
//! never held.

mod chakra;
mod control;
mod error;
pub mod exported;
mod json_stream;
mod kineto;
pub mod layer_table;
pub mod measured_layers;
mod mend;
mod ncu;
mod ncu_number;
#[cfg(feature = "nsys")]
mod nsys;
mod number;
mod nvprof;
mod open;
mod redact;
mod rocprof;

pub use control::{Control, Pool, Taken};
pub use error::ImportError;
pub use redact::{Dropped, redact, redact_bytes};

use control::Meter;
use open::{Content, Source};
use preflop_core::profile::{Format, Profile};
use std::path::Path;

/// Reads a recording of any known kind.
pub fn import(path: &Path) -> Result<Profile, ImportError> {
    import_within(path, &Control::default()).map(|(profile, _)| profile)
}

/// Reads a recording within limits, for files that strangers send. What it took is given back to the pool when the second
/// part of the answer is dropped.
pub fn import_within(path: &Path, control: &Control) -> Result<(Profile, Taken), ImportError> {
    read(open::open(path, control)?, control)
}

/// Reads a recording from memory; `name` stands for the file in messages.
pub fn import_bytes(bytes: &[u8], name: &str) -> Result<Profile, ImportError> {
    let control = Control::default();
    read(open::from_bytes(bytes, name, &control)?, &control).map(|(profile, _)| profile)
}

fn read(source: Source, control: &Control) -> Result<(Profile, Taken), ImportError> {
    let mut meter = Meter::new(control, &source.name);
    let mut profile = content(source, &mut meter)?;
    meter.check(&profile)?;
    profile.sort();
    Ok((profile, meter.into_taken()))
}

fn content(source: Source, meter: &mut Meter) -> Result<Profile, ImportError> {
    let name = source.name.clone();
    match source.content {
        Content::Json(reader) => {
            let mut profile = Profile::new(&name, Format::Kineto);
            json_stream::read(reader, &name, &mut kineto::Importer::new(&mut profile, meter))?;
            Ok(profile)
        }
        Content::Csv(reader) => ncu::read(reader, &name, meter),
        Content::Nvprof(reader) => nvprof::read(reader, &name, meter),
        Content::Rocprof(reader) => rocprof::read(reader, &name, meter),
        #[cfg(feature = "nsys")]
        Content::Sqlite(database) => nsys::read(database, &name, meter),
        #[cfg(not(feature = "nsys"))]
        Content::Sqlite(_) => Err(ImportError::NotAProfile {
            file: name,
            what: "an SQLite file, which this build cannot read".to_string(),
        }),
    }
}
