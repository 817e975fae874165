//! The operators of an answer: one line for each place and call.
//!
//! A network repeats its operators under other names. As JSON, what equal ones say is written once and copied.

use crate::error::ApiError;
use crate::predict::OpLine;
use foldhash::fast::FixedState;
use preflop_core::model::{Iteration, Phase, Step};
use preflop_core::ops::shape;
use preflop_core::time::{Bound, IterationPrediction};
use preflop_core::{Dtype, Gpu};
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// One operator in one place, in figures.
#[derive(Clone, Copy)]
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
    // Their places are sorted, which are easier to move than they.
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by(|a, b| lines[*b].time_us.total_cmp(&lines[*a].time_us));
    order.into_iter().map(|i| lines[i]).collect()
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

/// Bytes of most lines.
const ROOM: usize = 220;

/// The answer with its operators, byte by byte as if [`OpLine`]s had stood in it; it was written without them.
pub(crate) fn with_lines(answer: &str, lines: &[Line]) -> Result<String, ApiError> {
    // Quotes within a text are escaped, so that these letters stand nowhere else.
    const PLACE: &str = "\"ops\":[]";
    let internal = |message: &str| ApiError::Internal { message: message.to_string() };
    let (before, after) = answer.split_once(PLACE).ok_or_else(|| internal("an answer without operators"))?;
    let mut out = Vec::with_capacity(answer.len() + ROOM * lines.len());
    out.extend_from_slice(before.as_bytes());
    out.extend_from_slice(b"\"ops\":");
    put_lines(&mut out, lines)?;
    out.extend_from_slice(after.as_bytes());
    String::from_utf8(out).map_err(|_| internal("an answer that is no text"))
}

/// The lines as a JSON list.
fn put_lines(out: &mut Vec<u8>, lines: &[Line]) -> Result<(), ApiError> {
    // What was said last of each call in each phase: lines that say the same follow each other, as they take the same time.
    const PHASES: usize = 3;
    let calls = lines.iter().map(|line| line.call + 1).max().unwrap_or(0);
    let mut known: Vec<Option<(&Line, Range<usize>)>> = vec![None; PHASES * calls];
    out.push(b'[');
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"name\":");
        put_text(out, &line.step.name)?;
        let last = &mut known[PHASES * line.call + line.step.phase as usize % PHASES];
        match last {
            Some((said, place)) if said.says_like(line) => out.extend_from_within(place.clone()),
            _ => {
                let start = out.len();
                line.put_figures(out)?;
                *last = Some((line, start..out.len()));
            }
        }
    }
    out.push(b']');
    Ok(())
}

impl Line<'_> {
    /// Does a line of the same call say the same but for its name?
    fn says_like(&self, other: &Self) -> bool {
        let figures = |l: &Self| (l.count, l.time_us.to_bits(), l.share.to_bits());
        (self.step.phase, self.bound, figures(self)) == (other.step.phase, other.bound, figures(other))
    }

    /// All fields after the name.
    fn put_figures(&self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let OpLine { name: _, op, phase, count, time_us, share, bound, pass, dtype, shape } = self.into();
        put_text(put_key(out, "op"), op)?;
        put_value(put_key(out, "phase"), &phase)?;
        put_value(put_key(out, "count"), &count)?;
        put_value(put_key(out, "time_us"), &time_us)?;
        put_value(put_key(out, "share"), &share)?;
        put_value(put_key(out, "bound"), &bound)?;
        put_text(put_key(out, "pass"), pass)?;
        put_text(put_key(out, "dtype"), dtype)?;
        put_text(put_key(out, "shape"), &shape)?;
        out.push(b'}');
        Ok(())
    }
}

/// The name of the next field.
fn put_key<'a>(out: &'a mut Vec<u8>, name: &str) -> &'a mut Vec<u8> {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    out
}

fn put_value(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), ApiError> {
    serde_json::to_writer(out, value).map_err(|e| ApiError::Internal { message: format!("no JSON: {e}") })
}

/// A text as JSON; most have nothing that must be escaped.
fn put_text(out: &mut Vec<u8>, plain: &str) -> Result<(), ApiError> {
    if plain.bytes().any(|b| matches!(b, 0..b' ' | b'"' | b'\\')) {
        return put_value(out, &plain);
    }
    out.push(b'"');
    out.extend_from_slice(plain.as_bytes());
    out.push(b'"');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::text;
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
            let before = "{\"a\":1,";
            let whole = with_lines(&format!("{before}\"ops\":[],\"b\":2}}"), &lines).unwrap();
            assert_eq!(whole, format!("{before}\"ops\":{},\"b\":2}}", text(&plain).unwrap()), "{name}");
        }
    }
}
