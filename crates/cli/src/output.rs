//! How answers look: tables that fit the terminal, three significant digits with a unit, colour only there.

use crate::clean::Clean;
use crate::error::InputError;
use crate::sink::{self, Sink};
use anyhow::Context as _;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table};
use preflop_core::units::{Bytes, Flops, Seconds};
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
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            column = indent.len();
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// Three significant digits: `0.0123`, `1.23`, `12.3`, `123`, `1230`.
pub fn three_digits(x: f64) -> String {
    if x == 0.0 {
        // Not `-0`, which a difference may give.
        return "0".to_string();
    }
    if !x.is_finite() {
        return format!("{x}");
    }
    let exponent = x.abs().log10().floor();
    if !(-5.0..15.0).contains(&exponent) {
        return format!("{x:.2e}");
    }
    let unit = 10_f64.powf(exponent - 2.0);
    let rounded = (x / unit).round() * unit;
    // 9.996 rounds up to 10.0 and so loses a decimal.
    let exponent = rounded.abs().log10().floor().max(exponent);
    format!("{rounded:.*}", (2.0 - exponent).max(0.0) as usize)
}

/// A value with the SI prefix that leaves one to three digits before the point.
pub fn si(x: f64, unit: &str) -> String {
    const PREFIXES: [(&str, f64); 9] = [
        ("E", 1e18),
        ("P", 1e15),
        ("T", 1e12),
        ("G", 1e9),
        ("M", 1e6),
        ("k", 1e3),
        ("", 1.0),
        ("m", 1e-3),
        ("u", 1e-6),
    ];
    // Half a digit early, so that 999.6 k reads as 1.00 M.
    let fit = PREFIXES.iter().find(|(_, size)| x.abs() >= size * 0.9995);
    let (prefix, size) = fit.copied().unwrap_or(("n", 1e-9));
    if x == 0.0 {
        return format!("0 {unit}");
    }
    format!("{} {prefix}{unit}", three_digits(x / size))
}

/// A time: `1.23 ms`.
pub fn time(t: Seconds) -> String {
    si(t.0, "s")
}

/// Traffic, in decimal units as bandwidth is.
pub fn traffic(b: Bytes) -> String {
    si(b.0, "B")
}

/// Work.
pub fn flops(f: Flops) -> String {
    si(f.0, "FLOP")
}

/// Memory, in binary units as capacity is.
pub fn memory(b: Bytes) -> String {
    let gib = b.mib() / 1024.0;
    if gib >= 0.9995 {
        format!("{} GiB", three_digits(gib))
    } else {
        format!("{} MiB", three_digits(b.mib()))
    }
}

/// A whole number with thin groups: `25 557 032`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
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
    fn three_digits_are_three_digits() {
        for (x, text) in [
            (0.012_345, "0.0123"),
            (1.234, "1.23"),
            (9.996, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (123.4, "123"),
            (1234.0, "1230"),
            (0.0, "0"),
            (-0.0, "0"),
            (-2.5, "-2.50"),
            (1e-9, "1.00e-9"),
        ] {
            assert_eq!(three_digits(x), text);
        }
    }

    #[test]
    fn long_lines_are_broken_at_blanks() {
        assert_eq!(wrapped("aa bb cc", 5, "  "), "aa bb\n  cc");
        assert_eq!(wrapped("aaaaaaaa b", 5, ""), "aaaaaaaa\nb");
    }

    #[test]
    fn units_follow_the_size() {
        assert_eq!(time(Seconds(0.012_34)), "12.3 ms");
        assert_eq!(time(Seconds(1e-6)), "1.00 us");
        assert_eq!(time(Seconds(0.999_9)), "1.00 s");
        assert_eq!(flops(Flops(8.2e12)), "8.20 TFLOP");
        assert_eq!(memory(Bytes::from_mib(512.0)), "512 MiB");
        assert_eq!(memory(Bytes::from_mib(2048.0)), "2.00 GiB");
        assert_eq!(grouped(25_557_032), "25 557 032");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.125, 1), "▏");
    }
}
