//! The operators of an answer: one line for each place and call.
//!
//! A network repeats its operators under other names. As JSON, what equal ones say is written once and copied.

use crate::engine::text;
use crate::error::ApiError;
use crate::predict::OpLine;
use foldhash::fast::FixedState;
use preflop_core::model::{Iteration, Phase, Step};
use preflop_core::ops::shape;
use preflop_core::time::{Bound, IterationPrediction};
use preflop_core::{Dtype, Gpu};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// One operator in one place, in figures.
pub(crate) struct Line<'a> {
    step: &'a Step,
    /// Number of its call: equal calls have one.
    call: usize,
    /// Format that the GPU runs it in.
    dtype: Dtype,
    bound: Bound,
    count: u64,
    time_us: f64,
    share: f64,
}

/// One line for each place and call, the longest first; what runs several times in one place is counted.
pub(crate) fn lines<'a>(
    iteration: &'a Iteration,
    p: &IterationPrediction,
    busy: f64,
    gpu: &Gpu,
) -> Vec<Line<'a>> {
    let room = p.steps.len();
    let mut places: HashMap<(&str, Phase, usize), usize, FixedState> =
        HashMap::with_capacity_and_hasher(room, FixedState::default());
    let mut lines: Vec<Line> = Vec::with_capacity(room);
    for s in &p.steps {
        let Some(step) = iteration.steps.get(s.step) else { continue };
        let time = s.one.time.us() * f64::from(step.count);
        match places.entry((step.name.as_str(), step.phase, s.call)) {
            Entry::Occupied(place) => {
                let line = &mut lines[*place.get()];
                line.count += u64::from(step.count);
                line.time_us += time;
                line.share += time / busy;
            }
            Entry::Vacant(place) => {
                place.insert(lines.len());
                lines.push(Line {
                    step,
                    call: s.call,
                    dtype: gpu.runs_in(step.call.dtype),
                    bound: s.one.bound,
                    count: u64::from(step.count),
                    time_us: time,
                    share: time / busy,
                });
            }
        }
    }
    lines.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
    lines
}

impl<'a> From<&Line<'a>> for OpLine<'a> {
    fn from(line: &Line<'a>) -> Self {
        let call = &line.step.call;
        Self {
            name: &line.step.name,
            op: call.name(),
            phase: line.step.phase,
            count: line.count,
            time_us: line.time_us,
            share: line.share,
            bound: line.bound,
            pass: call.pass.name(),
            dtype: line.dtype.name(),
            shape: shape::describe(call),
        }
    }
}

/// How a line begins, and one without a name.
const HEAD: &str = "{\"name\":";
const NAMELESS: &str = "{\"name\":\"\"";
/// Bytes of most lines.
const ROOM: usize = 220;

/// The lines as a JSON list, byte by byte as those of [`OpLine`].
pub(crate) fn json(lines: &[Line]) -> Result<String, ApiError> {
    let mut known: HashMap<_, Range<usize>, FixedState> = HashMap::default();
    let mut out = String::with_capacity(ROOM * lines.len() + 2);
    out.push('[');
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(HEAD);
        push_text(&mut out, &line.step.name)?;
        let figures = (line.count, line.time_us.to_bits(), line.share.to_bits());
        match known.entry((line.call, line.step.phase, line.bound as u8, figures)) {
            Entry::Occupied(said) => out.extend_from_within(said.get().clone()),
            Entry::Vacant(said) => {
                let written = text(&OpLine { name: "", ..line.into() })?;
                let rest = written.strip_prefix(NAMELESS).unwrap_or_default();
                said.insert(out.len()..out.len() + rest.len());
                out.push_str(rest);
            }
        }
    }
    out.push(']');
    Ok(out)
}

/// A text as JSON; most have nothing that must be escaped.
fn push_text(out: &mut String, plain: &str) -> Result<(), ApiError> {
    if plain.bytes().any(|b| b < b' ' || b == b'"' || b == b'\\') {
        out.push_str(&text(&plain)?);
    } else {
        out.push('"');
        out.push_str(plain);
        out.push('"');
    }
    Ok(())
}

/// Puts operators into an answer that was written without them.
pub(crate) fn put_into(answer: &str, operators: &str) -> Result<String, ApiError> {
    // Quotes within a text are escaped, so that these letters stand nowhere else.
    const PLACE: &str = "\"ops\":[]";
    let (before, after) = answer
        .split_once(PLACE)
        .ok_or_else(|| ApiError::Internal { message: "an answer without operators".to_string() })?;
    Ok([before, "\"ops\":", operators, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;
    use preflop_core::model::{LowerOptions, Mode, Precision, lower, zoo};
    use preflop_core::time::{Schedule as _, TimeModel};

    #[test]
    fn copied_lines_are_those_that_serde_writes() {
        let (model, gpu) = (TimeModel::embedded(), catalog::find("h200").unwrap());
        for name in ["resnet18", "gpt2"] {
            let options = LowerOptions { mode: Mode::Train, precision: Precision::Amp, optimizer: None };
            let mut iteration = lower(&zoo::build(name, None, None).unwrap(), &options).unwrap();
            iteration.steps[0].name = "a \"name\" with\n\\ and \u{e9}".to_string();
            let p = model.predict_iteration(&iteration, &gpu);
            let lines = lines(&iteration, &p, 1e3, &gpu);
            let plain: Vec<OpLine> = lines.iter().map(OpLine::from).collect();
            assert!(plain.len() > 50 && plain.is_sorted_by(|a, b| a.time_us >= b.time_us), "{name}");
            assert_eq!(json(&lines).unwrap(), text(&plain).unwrap(), "{name}");
        }
    }
}
