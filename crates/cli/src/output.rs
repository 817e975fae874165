//! How answers look: tables that fit the terminal, three significant digits with a unit, colour only there.

use crate::clean::Clean;
use crate::error::InputError;
use crate::sink::{self, Sink};
use anyhow::Context as _;
pub use preflop_core::units::format::{
    count, counted, duration, flops, grouped, memory, milliseconds, percent, si, three_digits, time, traffic,
};
pub use preflop_core::units::text::{Align, hanging, wrapped};
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// A colour of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// Something lacks or is slow.
    Red,
    /// As it should be.
    Green,
    /// In between.
    Yellow,
    /// Pictures.
    Cyan,
}

/// Where and how a command prints.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// JSON instead of tables.
    pub json: bool,
    /// Colours allowed.
    pub color: bool,
    /// Columns of the terminal.
    pub width: usize,
}

/// Columns when nobody says how many there are.
const DEFAULT_WIDTH: usize = 100;
/// Narrower terminals wrap; tables below this are unreadable anyway.
const MIN_WIDTH: usize = 40;

impl Output {
    /// Looks at the terminal and the environment.
    pub fn new(json: bool, color: ColorChoice) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let color = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => !no_color && io::stdout().is_terminal(),
        };
        let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse::<usize>().ok());
        let width = columns
            .or_else(|| terminal_size::terminal_size().map(|(w, _)| usize::from(w.0)))
            .unwrap_or(DEFAULT_WIDTH)
            .clamp(MIN_WIDTH, 200);
        Self { json, color, width }
    }

    /// Text in bold, if colours are on.
    pub fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    /// Text that warns, if colours are on; its words say the same.
    pub fn red(&self, text: &str) -> String {
        self.tinted(Color::Red, text)
    }

    /// Text that matters less, if colours are on.
    pub fn dim(&self, text: &str) -> String {
        self.styled("2", text)
    }

    /// Text whose colour repeats what its words say, if colours are on.
    pub fn tinted(&self, color: Color, text: &str) -> String {
        let code = match color {
            Color::Red => "31",
            Color::Green => "32",
            Color::Yellow => "33",
            Color::Cyan => "36",
        };
        self.styled(code, text)
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_string() }
    }
}

/// Buffered standard output.
pub fn stdout() -> BufWriter<Clean<Sink>> {
    BufWriter::with_capacity(1 << 16, Clean::new(Sink::current()))
}

/// The format of a chart, by its file's ending; on standard output it is SVG.
pub fn chart_format(path: &str) -> Result<preflop_plot::Format, preflop_plot::PlotError> {
    if crate::destination::is_stdout(path) {
        return Ok(preflop_plot::Format::Svg);
    }
    preflop_plot::Format::of_path(path)
}

/// Prints a value as JSON, indented for people on a terminal and on one line for programs.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    if sink::is_taken() {
        return Err(InputError::new("`-o -` and `--json` both want standard output")
            .hint("leave one of them out, or name a file after -o")
            .into());
    }
    let mut out = stdout();
    if matches!(out.get_ref().get_ref(), Sink::Stdout(terminal) if terminal.is_terminal()) {
        serde_json::to_writer_pretty(&mut out, value)
    } else {
        serde_json::to_writer(&mut out, value)
    }
    .map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush().context("writing the output")
}

/// A bar of at most `width` characters, in eighths, for a share from 0 to 1.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_eighths() {
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.125, 1), "▏");
    }
}
