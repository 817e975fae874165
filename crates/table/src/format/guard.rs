//! Damaged columns become errors.
//!
//! The libraries that decode Parquet and Arrow files check much, but not all: some lengths inside a file are believed, and a
//! wrong one ends in a panic. Here that is one line like any other damage.

use super::Table;
use crate::TableError;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Does this thread decode a file right now?
    static DECODES: Cell<bool> = const { Cell::new(false) };
}

/// Panics while decoding are reported by us; all others as before.
fn keep_quiet() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !DECODES.get() {
                before(panic);
            }
        }));
    });
}

/// What the work gives, or nothing where it panicked.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    keep_quiet();
    DECODES.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    DECODES.set(false);
    done.ok()
}

const DAMAGED: &str = "the file is damaged: lengths inside it do not fit together";

/// Opens a table whose decoder may panic, and reads it with care.
pub(super) fn open(
    name: &str,
    work: impl FnOnce() -> Result<Table, TableError>,
) -> Result<Table, TableError> {
    let damaged = || TableError::File { file: name.to_string(), problem: DAMAGED.to_string() };
    let table = guarded(work).ok_or_else(damaged)??;
    Ok(Box::new(Guarded { schema: table.schema(), table: Some(table), name: name.to_string() }))
}

struct Guarded {
    schema: SchemaRef,
    /// None once a batch could not be decoded: what the decoder holds then is not to be trusted.
    table: Option<Table>,
    name: String,
}

impl Iterator for Guarded {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let table = self.table.as_mut()?;
        guarded(|| table.next()).unwrap_or_else(|| {
            self.table = None;
            Some(Err(ArrowError::ParseError(format!("{}: {DAMAGED}", self.name))))
        })
    }
}

impl RecordBatchReader for Guarded {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
