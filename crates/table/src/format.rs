//! Files of tables: Parquet, Arrow IPC, CSV, JSON Lines. Written by ending, read by content.

mod guard;
mod lengths;
mod read;
mod splice;
mod text;
mod write;

pub use read::{Table, is_columnar, open, rows};
pub use splice::{Assembler, errors_of};
pub use write::{Writer, parquet_bytes};

use crate::TableError;
use std::path::Path;

/// How a table lies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Columns in row groups, compressed.
    Parquet,
    /// Arrow's own file (Feather).
    Arrow,
    /// Arrow's own stream.
    ArrowStream,
    /// One line per row.
    Csv,
    /// One JSON object per line.
    JsonLines,
}

impl Format {
    /// All, with the name of `--format` and the endings of files.
    pub const ALL: [(Self, &'static str, &'static [&'static str]); 5] = [
        (Self::Parquet, "parquet", &["parquet", "pq"]),
        (Self::Arrow, "arrow", &["arrow", "feather", "ipc"]),
        (Self::ArrowStream, "arrow-stream", &["arrows"]),
        (Self::Csv, "csv", &["csv"]),
        (Self::JsonLines, "jsonl", &["jsonl", "ndjson"]),
    ];

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(format, ..)| *format)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(format, ..)| *format == self).map_or("", |(_, name, _)| name)
    }

    /// By the ending of a file's name.
    pub fn of_path(path: &str) -> Result<Self, TableError> {
        let ending = Path::new(path).extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        let known =
            |ending: &String| Self::ALL.iter().find(|(.., endings)| endings.contains(&ending.as_str()));
        ending.as_ref().and_then(known).map(|(format, ..)| *format).ok_or_else(|| TableError::File {
            file: path.to_string(),
            problem:
                "cannot tell the format by the name; end it in .parquet, .arrow, .csv or .jsonl, or say \
                      `--format`"
                    .to_string(),
        })
    }
}

#[cfg(test)]
mod tests;
