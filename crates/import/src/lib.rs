//! Files to profiles: finds out which tool wrote a recording and reads it, plain or compressed, as a stream.
//!
//! One importer per file. Each turns its format into the one [`Profile`] of the core and
//! counts what it cannot read. Free-form metadata, where recorders put environment dumps, is skipped byte by byte and
//! never held.

mod chakra;
mod error;
pub mod exported;
mod json_stream;
mod kineto;
mod mend;
mod ncu;
mod ncu_number;
#[cfg(feature = "nsys")]
mod nsys;
mod number;
mod open;
mod redact;

pub use error::ImportError;
pub use redact::{Dropped, redact, redact_bytes};

use open::{Content, Source};
use preflop_core::profile::{Format, Profile};
use std::path::Path;

/// Reads a recording of any known kind.
pub fn import(path: &Path) -> Result<Profile, ImportError> {
    import_within(path, u64::MAX)
}

/// Reads a recording that may unpack to at most `limit` bytes, for files that strangers send.
pub fn import_within(path: &Path, limit: u64) -> Result<Profile, ImportError> {
    let source = open::open(path, limit)?;
    let mut profile = read(source)?;
    profile.sort();
    Ok(profile)
}

/// Reads a recording from memory; `name` stands for the file in messages.
pub fn import_bytes(bytes: &[u8], name: &str) -> Result<Profile, ImportError> {
    let mut profile = read(open::from_bytes(bytes, name)?)?;
    profile.sort();
    Ok(profile)
}

fn read(source: Source) -> Result<Profile, ImportError> {
    let name = source.name.clone();
    match source.content {
        Content::Json(reader) => {
            let mut profile = Profile::new(&name, Format::Kineto);
            json_stream::read(reader, &name, &mut kineto::Importer::new(&mut profile))?;
            Ok(profile)
        }
        Content::Csv(reader) => ncu::read(reader, &name),
        #[cfg(feature = "nsys")]
        Content::Sqlite(database) => nsys::read(database, &name),
        #[cfg(not(feature = "nsys"))]
        Content::Sqlite(_) => Err(ImportError::NotAProfile {
            file: name,
            what: "an SQLite file, which this build cannot read".to_string(),
        }),
    }
}
