//! What can be wrong with a file. Each message is one line: what, where, what to do.

use std::io;

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be opened.
    #[error("cannot open `{file}`: {source}")]
    Open {
        /// File.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// Reading failed on the way.
    #[error("cannot read `{file}` after {offset} bytes: {source}")]
    Read {
        /// File.
        file: String,
        /// Bytes read before.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing in it.
    #[error("`{file}` is empty")]
    Empty {
        /// File.
        file: String,
    },
    /// No profile.
    #[error(
        "`{file}` is no profile we know: {what}; Kineto JSON, Nsight Systems SQLite, Nsight Compute CSV and Chakra JSON are read, plain, .gz or .zst"
    )]
    NotAProfile {
        /// File.
        file: String,
        /// What it is instead.
        what: String,
    },
    /// It ends too early.
    #[error("`{file}` is cut off: {what}; record or copy it again")]
    Truncated {
        /// File.
        file: String,
        /// Where.
        what: String,
    },
    /// It unpacks to more than the caller allows.
    #[error("`{file}` unpacks to more than {limit_mib} MiB; record fewer steps or cut it")]
    TooLarge {
        /// File.
        file: String,
        /// The limit.
        limit_mib: u64,
    },
    /// Reading it takes more memory than the caller allows.
    #[error(
        "`{file}` takes more than {limit_mib} MiB of memory to read and explain; record fewer steps or cut it"
    )]
    Memory {
        /// File.
        file: String,
        /// The limit.
        limit_mib: u64,
    },
    /// Others are being read, and together they take too much.
    #[error(
        "`{file}` and the others being read take more than {limit_mib} MiB of memory together; send it again later"
    )]
    Busy {
        /// File.
        file: String,
        /// The limit.
        limit_mib: u64,
    },
    /// Too many different names.
    #[error("`{file}` has more than {most} different names; record fewer steps, or with fewer annotations")]
    Names {
        /// File.
        file: String,
        /// How many there may be.
        most: usize,
    },
    /// The caller wants no more.
    #[error("reading `{file}` was stopped")]
    Stopped {
        /// File.
        file: String,
    },
    /// It breaks its format's rules.
    #[error("`{file}` is malformed at byte {offset}: {detail}")]
    Malformed {
        /// File.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        detail: String,
    },
    /// A table cannot be read.
    #[error("cannot read table {table} of `{file}`: {detail}")]
    Table {
        /// File.
        file: String,
        /// Table.
        table: String,
        /// What the database said.
        detail: String,
    },
    /// The clean copy cannot be written.
    #[error("cannot write `{file}`: {source}")]
    Write {
        /// File.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// The clean copy cannot be written in that form.
    #[error("cannot write `{file}`: {what}")]
    WriteAs {
        /// File.
        file: String,
        /// What to do instead.
        what: String,
    },
}

/// Text cut to a length that fits a message.
pub fn short(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.chars().count() <= 80 {
        return clean;
    }
    let head: String = clean.chars().take(78).collect();
    format!("{head}..")
}
