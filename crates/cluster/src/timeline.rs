//! One iteration as bars: pipeline stages as rows, compute, links and waiting as bars, by the recurrence of the schedule.
//!
//! A forward of stage i starts when stage i-1 has handed over and stage i is free; a backward when stage i+1 has. Stages run
//! their microbatches in the order of the schedule, so one pass in that order gives every start: no event queue.

use crate::iteration::{Outcome, ShardCosts};
use crate::model::Transformer;
use crate::strategy::{Recompute, Schedule, Strategy};
use serde::Serialize;

/// What a bar stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Forward of a microbatch.
    Forward,
    /// Backward of a microbatch, recomputation included.
    Backward,
    /// Collectives that nothing hides.
    Links,
    /// Optimizer step.
    Optimizer,
}

/// A bar.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bar {
    /// Row.
    pub stage: u64,
    /// Kind.
    pub what: What,
    /// Microbatch.
    pub microbatch: u64,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
}

/// Seconds of one microbatch on each stage, and what follows the pipeline.
#[derive(Debug, Clone)]
pub struct Durations {
    /// Forward by stage.
    pub forward: Vec<f64>,
    /// Backward by stage.
    pub backward: Vec<f64>,
    /// Hand-over between stages.
    pub transfer: f64,
    /// Exposed gradients.
    pub data: f64,
    /// Optimizer step.
    pub optimizer: f64,
}

/// The bars of the timeline: each stage's share of what the prediction says.
pub fn of_outcome(
    strategy: &Strategy,
    outcome: &Outcome,
    costs: &ShardCosts,
    model: &Transformer,
) -> Vec<Bar> {
    let m = strategy.microbatches() as f64;
    let b = outcome.breakdown;
    let slowest = (b.compute + b.recompute + b.tp_exposed + b.cp_exposed + b.ep_exposed + b.host_exposed) / m;
    let layers = model.layers as f64 / strategy.pp as f64;
    let (f, r) = (costs.forward.time, costs.backward.time);
    let again = match strategy.recompute {
        Recompute::Full => f,
        Recompute::Selective => costs.core.time,
        Recompute::None => 0.0,
    };
    let weight = |stage: u64| {
        let first = if stage == 0 { [costs.embedding[0].time, costs.embedding[1].time] } else { [0.0; 2] };
        let last = if stage + 1 == strategy.pp { [costs.head[0].time, costs.head[1].time] } else { [0.0; 2] };
        [layers * f + first[0] + last[0], layers * (r + again) + first[1] + last[1]]
    };
    let most = (0..strategy.pp).map(|s| weight(s).iter().sum::<f64>()).fold(1e-12, f64::max);
    let scale = slowest / most;
    let durations = Durations {
        forward: (0..strategy.pp).map(|s| weight(s)[0] * scale).collect(),
        backward: (0..strategy.pp).map(|s| weight(s)[1] * scale).collect(),
        transfer: b.pp_transfer / (2.0 * (m + strategy.pp as f64 - 1.0)),
        data: b.dp_exposed,
        optimizer: b.optimizer,
    };
    bars(strategy, &durations)
}

/// Most microbatches that are drawn: more than a screen can show.
pub const MAX_DRAWN: u64 = 256;

/// The order in which a stage runs: (forward?, microbatch).
fn order(schedule: Schedule, stage: u64, stages: u64, m: u64) -> Vec<(bool, u64)> {
    let mut out = Vec::with_capacity(2 * m as usize);
    if schedule == Schedule::Gpipe {
        out.extend((0..m).map(|i| (true, i)));
        out.extend((0..m).rev().map(|i| (false, i)));
        return out;
    }
    let warm = (stages - stage - 1).min(m);
    out.extend((0..warm).map(|i| (true, i)));
    for i in 0..m {
        if warm + i < m {
            out.push((true, warm + i));
        }
        out.push((false, i));
    }
    out
}

/// The bars of an iteration.
pub fn bars(strategy: &Strategy, d: &Durations) -> Vec<Bar> {
    let stages = d.forward.len() as u64;
    let m = strategy.microbatches().min(MAX_DRAWN);
    let orders: Vec<Vec<(bool, u64)>> = (0..stages).map(|s| order(strategy.schedule, s, stages, m)).collect();
    let mut next = vec![0_usize; stages as usize];
    let mut free = vec![0.0_f64; stages as usize];
    let mut ends = vec![vec![[None::<f64>; 2]; m as usize]; stages as usize];
    let mut out = Vec::new();
    // Every pass over the stages runs whatever is ready; one that runs nothing would be a schedule that waits for itself.
    loop {
        let mut ran = false;
        for stage in 0..stages as usize {
            while let Some(&(forward, i)) = orders[stage].get(next[stage]) {
                let at = i as usize;
                let ready = match (forward, stage) {
                    (true, 0) => Some(0.0),
                    (true, _) => ends[stage - 1][at][0].map(|t| t + d.transfer),
                    (false, _) if stage + 1 == stages as usize => ends[stage][at][0],
                    (false, _) => ends[stage + 1][at][1].map(|t| t + d.transfer),
                };
                let Some(ready) = ready else { break };
                let start = ready.max(free[stage]);
                let length = if forward { d.forward[stage] } else { d.backward[stage] };
                let end = start + length;
                free[stage] = end;
                ends[stage][at][usize::from(!forward)] = Some(end);
                let what = if forward { What::Forward } else { What::Backward };
                out.push(Bar { stage: stage as u64, what, microbatch: i, start, end });
                next[stage] += 1;
                ran = true;
            }
        }
        if !ran {
            break;
        }
    }
    let last = free.iter().copied().fold(0.0, f64::max);
    for (stage, &end) in free.iter().enumerate() {
        // Gradients of a stage may go as soon as it is done; the step waits for all of them.
        let stage = stage as u64;
        if d.data > 0.0 {
            out.push(Bar { stage, what: What::Links, microbatch: 0, start: end, end: end + d.data });
        }
        let start = last + d.data;
        out.push(Bar { stage, what: What::Optimizer, microbatch: 0, start, end: start + d.optimizer });
    }
    out
}

/// The bars as a Chrome trace, which Perfetto opens: stages as processes, compute and links as threads.
pub fn chrome_trace(bars: &[Bar], title: &str) -> serde_json::Value {
    let mut events: Vec<serde_json::Value> = Vec::with_capacity(bars.len() + 16);
    let stages = bars.iter().map(|b| b.stage).max().map_or(0, |s| s + 1);
    for stage in 0..stages {
        let name = format!("stage {stage}");
        events.push(serde_json::json!({"ph": "M", "pid": stage, "tid": 0, "name": "process_name", "args": {"name": name}}));
        for (tid, name) in [(0, "compute"), (1, "links")] {
            events.push(serde_json::json!({"ph": "M", "pid": stage, "tid": tid, "name": "thread_name", "args": {"name": name}}));
        }
    }
    for bar in bars {
        let (name, tid) = match bar.what {
            What::Forward => (format!("forward {}", bar.microbatch), 0),
            What::Backward => (format!("backward {}", bar.microbatch), 0),
            What::Links => ("gradients".to_string(), 1),
            What::Optimizer => ("optimizer".to_string(), 0),
        };
        events.push(serde_json::json!({
            "ph": "X", "pid": bar.stage, "tid": tid, "name": name, "cat": bar.what,
            "ts": bar.start * 1e6, "dur": (bar.end - bar.start) * 1e6,
        }));
    }
    serde_json::json!({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title}})
}

/// The bars as an SVG of this width in pixels: rows are stages, hatched by nothing, told apart by lightness and label.
pub fn svg(bars: &[Bar], width: f64) -> String {
    use std::fmt::Write as _;
    let stages = bars.iter().map(|b| b.stage).max().map_or(0, |s| s + 1);
    let total = bars.iter().map(|b| b.end).fold(1e-12, f64::max);
    let (left, row, gap) = (64.0, 22.0, 4.0);
    let height = stages as f64 * (row + gap) + 28.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"timeline of one iteration\" font-family=\"sans-serif\" font-size=\"11\">"
    );
    let scale = (width - left - 8.0) / total;
    for stage in 0..stages {
        let y = stage as f64 * (row + gap);
        let _ = write!(out, "<text x=\"0\" y=\"{:.1}\" fill=\"currentColor\">stage {stage}</text>", y + 15.0);
        let _ = write!(
            out,
            "<rect x=\"{left}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{row}\" fill=\"#8882\"/>",
            total * scale
        );
    }
    for bar in bars {
        let fill = match bar.what {
            What::Forward => "#56b4e9",
            What::Backward => "#0072b2",
            What::Links => "#d55e00",
            What::Optimizer => "#009e73",
        };
        let (x, w) = (left + bar.start * scale, ((bar.end - bar.start) * scale).max(0.3));
        let y = bar.stage as f64 * (row + gap);
        let name = match bar.what {
            What::Forward => "forward",
            What::Backward => "backward",
            What::Links => "gradients",
            What::Optimizer => "optimizer",
        };
        let _ = write!(
            out,
            "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{w:.2}\" height=\"{row}\" fill=\"{fill}\" stroke=\"#fff\" stroke-width=\"0.3\"><title>{name} {}: {:.2} ms to {:.2} ms</title></rect>",
            bar.microbatch,
            bar.start * 1e3,
            bar.end * 1e3
        );
    }
    let y = stages as f64 * (row + gap) + 18.0;
    let legend = [
        ("forward", "#56b4e9"),
        ("backward", "#0072b2"),
        ("links", "#d55e00"),
        ("optimizer", "#009e73"),
        ("waiting", "#8882"),
    ];
    for (i, (name, fill)) in legend.iter().enumerate() {
        let x = left + i as f64 * 90.0;
        let _ = write!(
            out,
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{fill}\"/><text x=\"{:.1}\" y=\"{y:.1}\" fill=\"currentColor\">{name}</text>",
            y - 9.0,
            x + 14.0
        );
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(stages: usize) -> Durations {
        Durations {
            forward: vec![1.0; stages],
            backward: vec![2.0; stages],
            transfer: 0.0,
            data: 0.5,
            optimizer: 0.25,
        }
    }

    #[test]
    fn equal_stages_take_microbatches_and_stages_less_one() {
        for schedule in [Schedule::Gpipe, Schedule::OneFOneB] {
            for (p, m) in [(1, 4), (4, 8), (4, 2), (8, 8)] {
                let s = Strategy { pp: p, global_batch: m, schedule, ..Strategy::default() };
                let bars = bars(&s, &durations(p as usize));
                let compute = bars.iter().filter(|b| matches!(b.what, What::Forward | What::Backward));
                let end = compute.clone().map(|b| b.end).fold(0.0, f64::max);
                // (m + p - 1) * (1 + 2)
                assert!((end - 3.0 * (m + p - 1) as f64).abs() < 1e-9, "{schedule:?} p {p} m {m}: {end}");
                assert_eq!(compute.count() as u64, 2 * p * m);
            }
        }
    }

    #[test]
    fn no_row_does_two_things_at_once_and_the_trace_has_every_bar() {
        let s = Strategy { pp: 4, global_batch: 6, ..Strategy::default() };
        let bars = bars(&s, &durations(4));
        for stage in 0..4 {
            let mut own: Vec<&Bar> =
                bars.iter().filter(|b| b.stage == stage && b.what != What::Links).collect();
            own.sort_by(|a, b| a.start.total_cmp(&b.start));
            assert!(own.windows(2).all(|w| w[1].start >= w[0].end - 1e-9));
        }
        let trace = chrome_trace(&bars, "test");
        assert_eq!(
            trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").count(),
            bars.len()
        );
        assert!(svg(&bars, 800.0).ends_with("</svg>"));
    }
}
