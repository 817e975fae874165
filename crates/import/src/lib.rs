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
mod vtune;

pub use control::{Control, Pool, Taken};
pub use error::ImportError;
pub use redact::{Dropped, redact, redact_bytes};

use control::Meter;
use open::{Content, Source};
pub use preflop_core::profile::host_report::HostReport;
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

/// What a file tells.
#[derive(Debug)]
pub enum Recorded {
    /// What the GPU did, or which operators ran.
    Run(Box<Profile>),
    /// What the host did, by a sampler.
    Host(HostReport),
}

/// Reads a recording of any known kind, of the host alone too.
pub fn recorded(path: &Path) -> Result<Recorded, ImportError> {
    either(open::open(path, &Control::default())?)
}

/// The same from memory; `name` stands for the file in messages.
pub fn recorded_bytes(bytes: &[u8], name: &str) -> Result<Recorded, ImportError> {
    either(open::from_bytes(bytes, name, &Control::default())?)
}

fn either(source: Source) -> Result<Recorded, ImportError> {
    let control = Control::default();
    if let Content::Vtune(reader) = source.content {
        return vtune::read(reader, &source.name, &mut Meter::new(&control, &source.name))
            .map(Recorded::Host);
    }
    read(source, &control).map(|(profile, _)| Recorded::Run(Box::new(profile)))
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
        Content::Vtune(_) => Err(ImportError::NotAProfile {
            file: name,
            what: "VTune's summary of the host holds no kernels (`preflop explain` says what it has)"
                .to_string(),
        }),
        #[cfg(feature = "nsys")]
        Content::Sqlite(database) => nsys::read(database, &name, meter),
        #[cfg(not(feature = "nsys"))]
        Content::Sqlite(_) => Err(ImportError::NotAProfile {
            file: name,
            what: "an SQLite file, which this build cannot read".to_string(),
        }),
    }
}
