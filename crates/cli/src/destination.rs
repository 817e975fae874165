//! Where a command's file goes: one function for all of them. A file appears whole or not at all (`preflop-files`); `-` is
//! standard output, and what a command says besides then goes to standard error.

use crate::sink::{self, Sink};
use anyhow::Context as _;
use preflop_files::NewFile;
use std::io::{BufWriter, Write};
use std::path::Path;

/// The name of standard output.
const STDOUT: &str = "-";

/// Is this standard output?
pub fn is_stdout(path: &str) -> bool {
    path == STDOUT
}

/// Writes a file with what `fill` gives.
pub fn write(
    path: impl AsRef<Path>,
    fill: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let path = path.as_ref();
    let failed = || format!("cannot write `{}`", path.display());
    if path == Path::new(STDOUT) {
        let mut out = BufWriter::new(Sink::current());
        fill(&mut out)?;
        out.flush().context("cannot write to standard output")?;
        sink::taken();
        return Ok(());
    }
    let mut out = BufWriter::with_capacity(1 << 16, NewFile::create(path).with_context(failed)?);
    fill(&mut out)?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(failed)?;
    file.commit().with_context(failed)
}

/// Writes a file of these bytes.
pub fn write_bytes(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let shown = path.as_ref().display().to_string();
    write(path, |out| out.write_all(bytes.as_ref()).with_context(|| format!("cannot write `{shown}`")))
}
