//! Nsight Compute: columns that are known, each with values of its shape.

use super::words::Namer;
use super::{Dropped, is_metric};
use crate::ImportError;
use crate::control::Meter;
use crate::ncu_number::{Decimals, is_unit};
use std::borrow::Cow;
use std::io::{self, Read, Write};

/// What a column may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    /// `(128, 1, 1)`
    Size,
    /// `9.0`
    Version,
    Kernel,
    Label,
    Unit,
    /// A column that is not known: it goes.
    Unknown,
}

fn kind(namer: &mut Namer, column: &str) -> Kind {
    match column {
        "ID" | "Context" | "Stream" | "Device" | "Metric Value" => Kind::Number,
        "Block Size" | "Grid Size" => Kind::Size,
        "CC" => Kind::Version,
        "Kernel Name" => Kind::Kernel,
        "Section Name" | "Metric Name" => Kind::Label,
        "Metric Unit" => Kind::Unit,
        metric if is_metric(namer, metric) => Kind::Number,
        _ => Kind::Unknown,
    }
}

/// Digits of a number without its separators and decimals.
const MAX_DIGITS: usize = 15;

fn is_short_number(text: &str) -> bool {
    let number = Decimals::Point.number(text).or_else(|| Decimals::Comma.number(text));
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    number.is_some_and(|n| n.abs() < 1e15) && digits <= 2 * MAX_DIGITS
}

/// A label such as `L1/TEX Hit Rate`, `# SMs`, `Duration`.
fn label<'t>(namer: &mut Namer, text: &'t str) -> Cow<'t, str> {
    let plain = text.replace("L1/TEX", "L1 TEX").replace("Avg. ", "Avg ").replace('-', " ");
    if is_metric(namer, text) || namer.is_harmless(&plain) {
        return Cow::Borrowed(text);
    }
    namer.name(text)
}

fn clean<'t>(namer: &mut Namer, kind: Kind, text: &'t str) -> Cow<'t, str> {
    let kept = |keep: bool| Cow::Borrowed(if keep { text } else { "" });
    match kind {
        Kind::Number => kept(is_short_number(text)),
        Kind::Size => {
            let inner = text.trim().trim_start_matches('(').trim_end_matches(')');
            kept(
                inner
                    .split(',')
                    .all(|n| n.trim().len() <= 10 && n.trim().bytes().all(|b| b.is_ascii_digit())),
            )
        }
        Kind::Version => kept(text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')),
        Kind::Kernel => namer.kernel(text),
        Kind::Label => label(namer, text),
        Kind::Unit => kept(is_unit(text)),
        Kind::Unknown => Cow::Borrowed(""),
    }
}

/// Copies what may leave.
pub fn copy(
    mut reader: impl Read,
    name: &str,
    out: &mut dyn Write,
    meter: &mut Meter,
) -> Result<Dropped, ImportError> {
    let bytes = meter.read_all(&mut reader)?;
    // Reading it as a profile finds what is wrong with it.
    crate::ncu::read(bytes.as_slice(), name, meter)?;
    let text = String::from_utf8_lossy(&bytes);
    // The tool's own talk goes: it names the program.
    let start: usize = text.split_inclusive('\n').take_while(|l| crate::ncu::is_talk(l)).map(str::len).sum();
    let body = text[start..].trim_start_matches('\u{feff}');
    let mut table = csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(body.as_bytes());
    let mut copy =
        csv::WriterBuilder::new().flexible(true).quote_style(csv::QuoteStyle::Always).from_writer(out);
    let (mut namer, mut dropped) = (Namer::new(), Dropped::default());
    let mut kinds: Vec<Kind> = Vec::new();
    let long = body.lines().next().is_some_and(|header| header.contains("Metric Name"));
    for (i, record) in table.records().enumerate() {
        let record = record.map_err(|e| ImportError::Malformed {
            file: name.to_string(),
            offset: start as u64 + e.position().map_or(0, csv::Position::byte),
            detail: e.to_string(),
        })?;
        if i == 0 {
            kinds = record.iter().map(|column| kind(&mut namer, column)).collect();
        }
        // The first row of the wide form holds units.
        let units = i == 1 && !long && record.get(0).is_none_or(|id| id.trim().is_empty());
        let mut fields: Vec<Cow<str>> = Vec::new();
        for (field, &kind) in record.iter().zip(&kinds) {
            let kept = match kind {
                Kind::Unknown => {
                    dropped.add("columns that are not known", u64::from(!field.is_empty()));
                    continue;
                }
                _ if i == 0 => Cow::Borrowed(field),
                _ if units => clean(&mut namer, Kind::Unit, field),
                kind => clean(&mut namer, kind, field),
            };
            dropped.changed += u64::from(kept != field);
            fields.push(kept);
        }
        copy.write_record(fields.iter().map(|f| f.as_bytes()))
            .map_err(|e| ImportError::Write { file: "the copy".to_string(), source: io::Error::other(e) })?;
    }
    copy.flush().map_err(|source| ImportError::Write { file: "the copy".to_string(), source })?;
    Ok(dropped)
}
