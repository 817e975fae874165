//! How answers look: tables that fit the terminal, three significant digits with a unit, colour only there.

use crate::clean::Clean;
use crate::error::InputError;
use crate::sink::{self, Sink};
use anyhow::Context as _;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table};
pub use preflop_core::units::format::{
    count, counted, flops, grouped, memory, milliseconds, percent, si, three_digits, time, traffic,
};
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal as _, Write};

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

    /// A table without borders, as wide as the terminal allows.
    pub fn table(&self, header: &[(&str, Align)]) -> Table {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(self.width as u16);
        if self.color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table.set_header(header.iter().map(|(title, align)| {
            let cell = Cell::new(title).set_alignment(align.cell());
            if self.color { cell.add_attribute(Attribute::Bold) } else { cell }
        }));
        for (i, (_, align)) in header.iter().enumerate() {
            if let Some(column) = table.column_mut(i) {
                column.set_cell_alignment(align.cell());
                column.set_padding((0, 2));
                if matches!(align, Align::Right | Align::Keep) {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        table
    }

    /// Text in bold, if colours are on.
    pub fn bold(&self, text: &str) -> String {
        if self.color { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_string() }
    }

    /// Text that warns, if colours are on; its words say the same.
    pub fn red(&self, text: &str) -> String {
        if self.color { format!("\u{1b}[31m{text}\u{1b}[0m") } else { text.to_string() }
    }

    /// Text that matters less, if colours are on.
    pub fn dim(&self, text: &str) -> String {
        if self.color { format!("\u{1b}[2m{text}\u{1b}[0m") } else { text.to_string() }
    }

    /// A cell whose colour repeats what its words say.
    pub fn tinted(&self, text: &str, color: Color) -> Cell {
        let cell = Cell::new(text);
        if self.color { cell.fg(color) } else { cell }
    }
}

/// How a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text, wrapped if need be.
    Left,
    /// Text that is never wrapped.
    Keep,
    /// Numbers, never wrapped.
    Right,
}

impl Align {
    fn cell(self) -> CellAlignment {
        match self {
            Self::Left | Self::Keep => CellAlignment::Left,
            Self::Right => CellAlignment::Right,
        }
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

/// Prints the lines of a table without the blanks at their ends.
pub fn write_table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Text broken at blanks so that no line is longer than `width` (unless one word is); lines after the first
/// start with `indent`.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    flowed(text, width, indent, 0)
}

/// Text behind `lead`, broken so that it stays below itself: `  time        33.6 ms ..`.
pub fn hanging(lead: &str, text: &str, width: usize) -> String {
    let column = lead.chars().count();
    format!("{lead}{}", flowed(text, width, &" ".repeat(column), column))
}

fn flowed(text: &str, width: usize, indent: &str, start: usize) -> String {
    let mut out = String::new();
    let (mut column, mut first) = (start, true);
    for word in text.split(' ') {
        let length = shown_length(word);
        if !first && column + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            column = indent.len();
        } else if !first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        first = false;
    }
    out
}

/// Characters that take room: colours do not.
fn shown_length(word: &str) -> usize {
    let mut parts = word.split('\u{1b}');
    let plain = parts.next().map_or(0, |part| part.chars().count());
    plain + parts.map(|part| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count())).sum::<usize>()
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
    fn long_lines_are_broken_at_blanks() {
        assert_eq!(wrapped("aa bb cc", 5, "  "), "aa bb\n  cc");
        assert_eq!(wrapped("aaaaaaaa b", 5, ""), "aaaaaaaa\nb");
        assert_eq!(hanging("  x ", "aa bb cc", 9), "  x aa bb\n    cc");
        assert_eq!(hanging("  x ", "\u{1b}[1maa\u{1b}[0m bb", 9), "  x \u{1b}[1maa\u{1b}[0m bb");
    }

    #[test]
    fn bars_are_in_eighths() {
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.125, 1), "▏");
    }
}
