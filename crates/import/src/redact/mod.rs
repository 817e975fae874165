//! Writes a copy of a recording that can be given away: what is on a list of known-harmless fields and has their shape is
//! kept, everything else is left out. One file per format; `words` says which names may stay.

mod csv;
mod fields;
mod json;
#[cfg(feature = "nsys")]
mod sqlite;
mod words;

use crate::ImportError;
use crate::control::{Control, Meter};
use crate::open::{self, Content};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use words::Namer;

/// Places told apart in a report; the rest share a line.
const MAX_PLACES: usize = 200;

/// What was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dropped {
    /// How many values, by the field, column or table they stood in. Names of fields that are not known are not told either.
    pub places: BTreeMap<String, u64>,
    /// Names and values changed.
    pub changed: u64,
}

impl Dropped {
    fn count(&mut self, place: &str) {
        self.add(place, 1);
    }

    fn add(&mut self, place: &str, values: u64) {
        let known = self.places.len() < MAX_PLACES || self.places.contains_key(place);
        *self.places.entry(if known { place } else { "elsewhere" }.to_owned()).or_default() += values;
    }
}

/// Reads a recording and writes a clean copy of the same kind, not packed.
pub fn redact(from: &Path, out: &mut dyn Write) -> Result<Dropped, ImportError> {
    copy(open::open(from, &Control::default())?, out)
}

/// The same for a recording in memory; `name` stands for the file in messages.
pub fn redact_bytes(bytes: &[u8], name: &str, out: &mut dyn Write) -> Result<Dropped, ImportError> {
    copy(open::from_bytes(bytes, name, &Control::default())?, out)
}

fn copy(source: open::Source, out: &mut dyn Write) -> Result<Dropped, ImportError> {
    let mut meter = Meter::new(&Control::default(), &source.name);
    match source.content {
        Content::Json(reader) => json::copy(reader, &source.name, out),
        Content::Csv(reader) => csv::copy(reader, &source.name, out, &mut meter),
        // What these may hold besides kernels is not known well enough to promise a clean copy.
        Content::Nvprof(_) | Content::Rocprof(_) | Content::Vtune(_) => Err(ImportError::NotAProfile {
            file: source.name,
            what: "a recording of nvprof, rocprofv3 or VTune, of which no clean copy can be made".to_string(),
        }),
        #[cfg(feature = "nsys")]
        Content::Sqlite(database) => sqlite::copy(database, &source.name, out, &mut meter),
        #[cfg(not(feature = "nsys"))]
        Content::Sqlite(_) => Err(ImportError::NotAProfile {
            file: source.name,
            what: "an SQLite file, which this build cannot read".to_string(),
        }),
    }
}

/// A metric's name: words joined by dots and underscores, such as `dram__bytes.sum.per_second`.
fn is_metric(namer: &mut Namer, text: &str) -> bool {
    text.len() <= 160 && text.contains("__") && text.split('.').all(|part| namer.is_harmless(part))
}
