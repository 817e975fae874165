//! How a command ends: done, some rows failed, bad input. Printed once, here.

use std::io;

/// Bad input, with what to do about it.
#[derive(Debug)]
pub struct InputError {
    message: String,
    hint: Option<String>,
}

impl InputError {
    /// An error without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for InputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InputError {}

/// Some rows of a file could not be predicted; the others were.
#[derive(Debug)]
pub struct RowsFailed {
    /// Rows without a prediction.
    pub failed: u64,
    /// All rows.
    pub total: u64,
    /// What the first of them said.
    pub first: String,
}

impl std::fmt::Display for RowsFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} rows could not be predicted", self.failed, self.total)
    }
}

impl std::error::Error for RowsFailed {}

/// The work was done, but for a part.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Partly(pub String);

/// Why a command failed, as the program says it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// One line: what, where.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Exit status: 1 where some rows failed, 2 for bad input.
    pub status: u8,
}

impl Failure {
    /// Messages are kept to one line, and are built from the causes so that `RUST_BACKTRACE` adds nothing.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let message = one_line(&said_once(error));
        if let Some(rows) = error.downcast_ref::<RowsFailed>() {
            let hint = Some(format!("the first is {}", one_line(&rows.first)));
            return Self { message, hint, status: 1 };
        }
        if error.is::<Partly>() {
            return Self { message, hint: None, status: 1 };
        }
        let hint = error.downcast_ref::<InputError>().and_then(|e| e.hint.as_deref()).map(one_line);
        Self { message, hint, status: 2 }
    }

    /// What the argument parser said, on one line.
    pub(crate) fn usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let end = text.find("\n\nUsage:").or(text.find("\n\nFor more")).unwrap_or(text.len());
        let (tips, said): (Vec<&str>, Vec<&str>) =
            text[..end].lines().partition(|line| line.trim_start().starts_with("tip: "));
        let message = one_line(&said.join(" "));
        let message = message.strip_prefix("error: ").unwrap_or(&message).to_owned();
        let tips: Vec<&str> = tips.iter().map(|tip| tip.trim_start().trim_start_matches("tip: ")).collect();
        let hint = (!tips.is_empty()).then(|| tips.join("; "));
        Self { message, hint, status: 2 }
    }

    /// Prints it and gives the exit status.
    #[allow(clippy::print_stderr)]
    fn print(&self) -> u8 {
        eprintln!("error: {}", self.message);
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
        self.status
    }
}

/// Prints the error, if there is one to print, and gives the exit status.
///
/// A reader that closed our output has seen enough: that ends quietly.
pub fn finish(result: anyhow::Result<()>) -> u8 {
    let Err(error) = result else { return 0 };
    if error
        .chain()
        .filter_map(|e| e.downcast_ref::<io::Error>())
        .any(|e| e.kind() == io::ErrorKind::BrokenPipe)
    {
        return 0;
    }
    Failure::of(&error).print()
}

/// Prints what the argument parser said: help and version as they are, anything else as a failure.
pub fn usage(error: &clap::Error) -> u8 {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        // Help that nobody reads any more is no failure.
        let _ = error.print();
        return 0;
    }
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return 2;
    }
    Failure::usage(error).print()
}

/// An error with its causes, each said once: some errors name their cause in their own words already.
fn said_once(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.ends_with(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

/// White space of any kind becomes one blank, and control characters (an input may hold terminal escapes)
/// are left out.
fn one_line(text: &str) -> String {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| word.chars().filter(|c| !c.is_control()).take(2000).collect())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_was_named_is_not_named_again() {
        let inner = || anyhow::anyhow!("no such file");
        assert_eq!(said_once(&inner().context("cannot open `x`")), "cannot open `x`: no such file");
        let named = inner().context("cannot open `x`: no such file");
        assert_eq!(said_once(&named), "cannot open `x`: no such file");
    }

    #[test]
    fn messages_stay_on_one_line_without_escapes() {
        assert_eq!(one_line("a\n  b\u{1b}[31m c\r\n"), "a b[31m c");
    }
}
