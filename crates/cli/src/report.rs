//! What `predict` says: one structure, printed as JSON for scripts or as a page for people.

use crate::grid::Grid;
use crate::launches;
use crate::output::{self, Align, Color, Output};
use crate::room;
use crate::shape;
use preflop_api::predict::{Answer, steps};
use preflop_core::cost::room::Change;
use preflop_core::model::{Iteration, MemoryUse, Phase, Precision, Step};
use preflop_core::report::advise::Advice;
use preflop_core::time::{Bound, IterationPrediction, OpPrediction};
use preflop_core::units::{Bytes, Flops, Seconds};
use preflop_core::{Dtype, Gpu, Pass};
use preflop_language::{Words, words};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

pub use preflop_api::predict::{Question, algorithms_name, layout_name};

/// The answer with what its page needs beside it. As JSON it is the answer alone.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    #[serde(flatten)]
    answer: Answer<'a>,
    /// Every kernel, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launches: Option<Vec<launches::Row<'a>>>,
    /// Ways to run it faster by [`WORTH`] and more, for people; `preflop advise` has all as JSON.
    #[serde(skip)]
    pub helps: Vec<Advice>,
    #[serde(skip)]
    gpu: &'a Gpu,
    /// Tokens asked for in all.
    #[serde(skip)]
    wanted: Option<u64>,
    #[serde(skip)]
    steps: Vec<(&'a Step, &'a OpPrediction)>,
    #[serde(skip)]
    parts: MemoryUse,
}

/// Options named that would help, and the share of the time from which one is.
const HELPS: usize = 3;
pub const WORTH: f64 = 0.05;
/// Operators shown to people.
const SHOWN: usize = 10;

impl<'a> Report<'a> {
    /// Puts the question, the operators and the prediction together. The lines of all operators are for JSON alone.
    pub fn new(
        question: &'a Question,
        gpu: &'a Gpu,
        (iteration, p): (&'a Iteration, &'a IterationPrediction),
        largest_batch: Option<u64>,
        json: bool,
    ) -> Self {
        let put = if json { Answer::new } else { Answer::without_operators };
        let answer = put(question, gpu, iteration, p, largest_batch);
        Self {
            answer,
            launches: None,
            helps: Vec::new(),
            gpu,
            wanted: None,
            steps: steps(iteration, p).0,
            parts: iteration.memory,
        }
    }

    /// Adds what is said in tokens.
    pub fn set_words(&mut self, words: Option<Words>, wanted: Option<u64>) {
        self.answer.words = words;
        self.wanted = wanted;
        self.answer.tokens_hours = words.zip(wanted).map(|(w, n)| words::hours_of(n, w.tokens_per_s));
    }

    /// Adds what would make it fit.
    pub fn set_changes(&mut self, changes: Vec<Change>) {
        self.answer.changes = changes;
    }

    /// Does it fit?
    pub fn fits(&self) -> bool {
        self.answer.fits
    }

    /// What is said where it does not.
    pub fn misfit(&self) -> String {
        format!(
            "does not fit: it needs {} with reserve, {} has {}",
            output::memory(Bytes::from_mib(self.answer.needed_mib)),
            self.gpu.name,
            output::memory(self.gpu.memory)
        )
    }

    /// The page for people.
    pub fn write(&self, out: &mut impl Write, output: &Output) -> io::Result<()> {
        let q = self.answer.question;
        let seq = q.seq.map_or_else(String::new, |s| format!(", sequence {s}"));
        let mode = mode_words(q.mode);
        let seq = q.context.map_or(seq, |c| format!(", context {c}"));
        let gpu =
            if self.gpu.title == self.gpu.name { String::new() } else { format!(" ({})", self.gpu.title) };
        let mut run = if q.run == "eager" { String::new() } else { format!(", {}", q.run) };
        for (what, said, usual) in [
            ("", q.layout, "nchw"),
            ("checkpoint ", q.checkpoint.as_str(), "none"),
            ("", q.algorithms, "heuristic"),
        ] {
            if said != usual {
                let _ = write!(run, ", {what}{said}");
            }
        }
        if let Some(factor) = q.host_factor {
            let factor = (factor * 100.0).round() / 100.0;
            let _ = write!(run, ", a host that takes {factor} times as long as usual");
        }
        let optimizer = optimizer_words(q.optimizer, q.optimizer_implementation);
        let precision = Precision::ALL.into_iter().find(|p| p.name() == q.precision);
        let precision = precision.map_or(q.precision, |p| p.words(self.gpu.has(Dtype::Tf32)));
        let title = format!(
            "{} {mode}, batch {}{seq}, {precision}{optimizer}{run} on {}{gpu}",
            q.model, q.batch, q.gpu
        );
        writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
        if !self.answer.fits {
            self.write_misfit(out, output)?;
        }
        for (what, text) in self.facts(output) {
            writeln!(out, "{}", output::hanging(&format!("  {what:<11} "), &text, output.width))?;
        }
        writeln!(out)?;
        self.write_operators(out, output)?;
        for line in self.remarks() {
            writeln!(out, "\n{}", output::wrapped(&line, output.width, "  "))?;
        }
        Ok(())
    }

    fn facts(&self, output: &Output) -> Vec<(&'static str, String)> {
        let ms = |x: f64| output::time(Seconds(x / 1e3));
        let time = output.bold(&ms(self.answer.iteration_ms));
        let verdict = if self.answer.fits { "fits" } else { "DOES NOT FIT" };
        let memory = output::memory(Bytes::from_mib(self.answer.memory_mib));
        vec![
            (
                "time",
                format!(
                    "{time} per iteration (90 % interval {} to {}; {})",
                    ms(self.answer.low_ms),
                    ms(self.answer.high_ms),
                    self.answer.evidence
                ),
            ),
            ("throughput", self.throughput()),
            ("bound", self.binding()),
            (
                "memory",
                format!(
                    "{memory} ({} with reserve) of {}: {verdict}",
                    output::memory(Bytes::from_mib(self.answer.needed_mib)),
                    output::memory(self.gpu.memory)
                ),
            ),
            ("where", self.by_phase_and_family()),
            (
                "work",
                format!(
                    "{}, {} through DRAM, {} parameters",
                    output::flops(Flops(self.answer.flops)),
                    output::traffic(Bytes(self.answer.dram_bytes)),
                    output::si(self.answer.parameters as f64, "").trim_end()
                ),
            ),
        ]
    }

    /// Shares of the GPU's time by part of the iteration and by family of operators, the largest first.
    fn by_phase_and_family(&self) -> String {
        let mut phases: Vec<(&str, Seconds)> = Vec::new();
        let mut families: Vec<(&str, Seconds)> = Vec::new();
        let mut busy = Seconds::ZERO;
        for (step, p) in &self.steps {
            let time = p.time * f64::from(step.count);
            busy += time;
            for (list, key) in [(&mut phases, step.phase.name()), (&mut families, step.call.family().name())]
            {
                match list.iter_mut().find(|(k, _)| *k == key) {
                    Some((_, sum)) => *sum += time,
                    None => list.push((key, time)),
                }
            }
        }
        families.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
        let say = |list: &[(&str, Seconds)]| {
            let shares =
                list.iter().map(|(k, t)| (k, 100.0 * (*t / busy))).filter(|(_, share)| *share >= 0.5);
            shares.map(|(k, share)| format!("{k} {share:.0} %")).collect::<Vec<_>>().join(", ")
        };
        if phases.len() > 1 { format!("{}; {}", say(&phases), say(&families)) } else { say(&families) }
    }

    /// The verdict first, then what would help and what it costs.
    fn write_misfit(&self, out: &mut impl Write, output: &Output) -> io::Result<()> {
        let line = self.misfit();
        writeln!(out, "{}", output.red(&output::hanging("  ", &line, output.width)))?;
        room::write(&self.answer.changes, out, output)?;
        writeln!(out)
    }

    fn throughput(&self) -> String {
        let samples = format!("{} samples/s", output::three_digits(self.answer.samples_per_s));
        match &self.answer.words {
            None => samples,
            Some(words) => format!(
                "{} tokens/s, {samples}; MFU {:.1} %",
                output::three_digits(words.tokens_per_s),
                100.0 * words.mfu
            ),
        }
    }

    fn binding(&self) -> String {
        let ms = |x: f64| output::time(Seconds(x / 1e3));
        let host = ms(self.answer.host_ms);
        let (kernels, wall) = (self.answer.gpu_busy_ms, self.answer.gpu_wall_ms);
        let beside = kernels > 1.01 * wall;
        let busy =
            if beside { format!("{} (kernels of {} side by side)", ms(wall), ms(kernels)) } else { ms(wall) };
        match self.answer.bound {
            Bound::Host => format!("host: it needs {host} to launch what the GPU does in {busy}"),
            bound => format!("{}: the GPU is busy for {busy}, the host for {host}", bound.name()),
        }
    }

    /// The costliest operators; layers that run the very same call share a line.
    fn write_operators(&self, out: &mut impl Write, output: &Output) -> io::Result<()> {
        let (groups, busy) = self.groups();
        let layout = Layout::of(output.width);
        let largest = groups.first().map_or(1.0, |g| g.time.0);
        let shown = || groups.iter().take(SHOWN);
        // A linear layer's gradients are plain products: the phase tells them from its forward.
        let operator = |group: &Group| match (group.steps[0].call.pass, group.steps[0].phase) {
            (Pass::Fwd, Phase::Backward) => format!("{} bwd", group.steps[0].call.name()),
            (Pass::Fwd, _) => group.steps[0].call.name().to_string(),
            (pass, _) => format!("{} {}", group.steps[0].call.name(), pass.name()),
        };
        let layer = |group: &Group| {
            let names: Vec<&str> = group.steps.iter().map(|s| s.name.as_str()).collect();
            shape::shortened(&shape::common_name(&names), layout.layer)
        };
        let shape = |group: &Group| {
            let call = &group.steps[0].call;
            format!("{} {}", shape::describe(call), self.gpu.runs_in(call.dtype))
        };
        let mut grid = Grid::default();
        // Names of operators that nobody knows may be long.
        let longest = (output.width / 3).max(16);
        grid.add("operator", Align::Keep, 0, shown().map(|g| shape::shortened(&operator(g), longest)));
        grid.add("layer", Align::Keep, 1, shown().map(layer));
        if layout.shape {
            grid.add("shape", Align::Keep, 6, shown().map(shape));
        }
        grid.add("count", Align::Right, 4, shown().map(|g| g.count.to_string()));
        grid.add("time", Align::Right, 0, shown().map(|g| output::time(g.time)));
        grid.add("share", Align::Right, 2, shown().map(|g| output::percent(g.time / busy)));
        if layout.bar > 0 {
            grid.add("", Align::Keep, 5, shown().map(|g| output::bar(g.time.0 / largest, layout.bar)));
            grid.tint(|_| Some(Color::Cyan));
        }
        grid.add("bound", Align::Keep, 3, shown().map(|g| g.bound.name().to_string()));
        grid.tint(bound_color);
        grid.write(out, output)?;
        if groups.len() > SHOWN {
            let rest: Seconds = groups.iter().skip(SHOWN).map(|g| g.time).sum();
            let line = format!(
                "{} more kinds of operators take {:.1} %",
                groups.len() - SHOWN,
                100.0 * (rest / busy)
            );
            writeln!(out, "{}", output.dim(&line))?;
        }
        Ok(())
    }

    fn groups(&self) -> (Vec<Group<'_>>, Seconds) {
        let mut places = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut busy = Seconds::ZERO;
        for (step, p) in &self.steps {
            let time = p.time * f64::from(step.count);
            busy += time;
            let place = *places.entry((step.phase, &step.call)).or_insert_with(|| {
                groups.push(Group { steps: Vec::new(), count: 0, time: Seconds::ZERO, bound: p.bound });
                groups.len() - 1
            });
            groups[place].steps.push(step);
            groups[place].count += u64::from(step.count);
            groups[place].time += time;
        }
        groups.sort_by(|a, b| b.time.0.total_cmp(&a.time.0));
        (groups, if busy.0 > 0.0 { busy } else { Seconds(1.0) })
    }

    /// What a careful reader should know: memory that lacks, operators not modelled, defaults taken.
    fn remarks(&self) -> Vec<String> {
        let mut out = Vec::new();
        if self.answer.autocast == Some("fp16") {
            out.push(format!("amp is fp16 autocast here: {} has no bf16.", self.gpu.name));
        }
        if !self.answer.fits {
            out.push(self.how_to_fit());
        }
        if let (Some(hours), Some(n)) = (self.answer.tokens_hours, self.wanted) {
            let time = output::duration(Seconds(hours * 3600.0));
            out.push(format!("{} tokens take {time} of this GPU.", output::si(n as f64, "").trim_end()));
        }
        out.extend(self.what_would_help());
        out.extend(self.answer.question.notes.iter().map(|n| format!("Note: {n}")));
        if !self.answer.unmodelled.is_empty() {
            let list: Vec<String> = self
                .answer
                .unmodelled
                .iter()
                .map(|u| format!("{} (x{}, {:.1} % of the time)", u.op, u.count, 100.0 * u.share))
                .collect();
            out.push(format!("Not modelled, estimated from bytes alone: {}", list.join(", ")));
        }
        out
    }

    /// The best single options that fit, in the words of `advise`.
    fn what_would_help(&self) -> Option<String> {
        let worth = self.helps.iter().filter(|o| o.fits).take(HELPS);
        let said: Vec<String> =
            worth.map(|o| format!("{} saves {:.0} %", o.options.join(" "), 100.0 * o.gain)).collect();
        (!said.is_empty())
            .then(|| format!("Faster: {}. `preflop advise` tries them together.", said.join(", ")))
    }

    fn how_to_fit(&self) -> String {
        let m = self.parts;
        let parts = [
            ("weights", m.weights),
            ("gradients", m.gradients),
            ("optimizer", m.optimizer),
            ("keys and values", m.cache),
            ("activations", m.activations),
            ("workspace", m.workspace),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, bytes)| bytes.mib() >= 1.0)
            .map(|(name, bytes)| format!("{name} {}", output::memory(*bytes)))
            .collect();
        let what = format!(
            "It needs {} with reserve. At the peak: {}.",
            output::memory(Bytes::from_mib(self.answer.needed_mib)),
            parts.join(", ")
        );
        match self.answer.largest_batch {
            Some(0) => format!("{what} No batch fits."),
            Some(batch) => format!("{what} A batch of {batch} fits."),
            None => what,
        }
    }
}

/// A mode inside a title.
pub fn mode_words(mode: &str) -> &str {
    match mode {
        "train" => "training",
        "infer" => "inference",
        step => step,
    }
}

/// The optimizer's rule and implementation inside a title, where there is a step.
pub fn optimizer_words(rule: Option<&str>, implementation: Option<&str>) -> String {
    match (rule, implementation) {
        (Some(rule), Some(how)) => format!(", {rule} ({how})"),
        (Some(_), None) => ", no optimizer".to_owned(),
        (None, _) => String::new(),
    }
}

/// What a terminal has room for: characters of the layer name and of the bar, and whether shapes are shown.
struct Layout {
    layer: usize,
    bar: usize,
    shape: bool,
}

impl Layout {
    fn of(width: usize) -> Self {
        match width {
            0..72 => Self { layer: 14, bar: 0, shape: false },
            72..100 => Self { layer: 22, bar: 8, shape: false },
            100..116 => Self { layer: 38, bar: 10, shape: false },
            116..140 => Self { layer: 24, bar: 8, shape: true },
            _ => Self { layer: 40, bar: 10, shape: true },
        }
    }
}

struct Group<'a> {
    steps: Vec<&'a Step>,
    count: u64,
    time: Seconds,
    bound: Bound,
}

fn bound_color(bound: &str) -> Option<Color> {
    let colors = [
        (Bound::Compute, Color::Green),
        (Bound::Dram, Color::Yellow),
        (Bound::L2, Color::Yellow),
        (Bound::Latency, Color::Red),
        (Bound::Host, Color::Red),
    ];
    colors.iter().find(|(b, _)| b.name() == bound).map(|(_, color)| *color)
}
