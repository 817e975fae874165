//! What people read about a sharded iteration; scripts get the same answer as JSON.

use super::Asked;
use crate::output::{self, Output, three_digits};
use preflop_api::cluster::parallel;
use preflop_cluster::iteration::Outcome;
use preflop_cluster::model::Transformer;
use preflop_cluster::strategy::{Offload, Strategy};
use preflop_core::Dtype;
use preflop_core::units::{Bytes, Seconds};
use std::io::Write as _;

/// The answer, and what it is about.
pub(super) struct Answer<'a> {
    pub(super) asked: &'a Asked<'a>,
    pub(super) transformer: &'a Transformer,
    pub(super) strategy: &'a Strategy,
    pub(super) outcome: &'a Outcome,
    pub(super) formats: [Dtype; 2],
    pub(super) said: parallel::Answer,
    /// Of an hour of the cluster, and who says so.
    pub(super) price: Option<(f64, String)>,
}

impl Answer<'_> {
    /// A sentence about what limits the iteration.
    fn bound(&self) -> String {
        let (s, o) = (self.strategy, self.outcome);
        let share = |t: f64| 100.0 * t / o.time;
        let Some((_, part, time)) = parallel::limit(s, o, self.asked.cluster) else {
            let share = share(o.breakdown.compute);
            return format!("compute: {share:.0} % of the time the GPUs work on the model");
        };
        let percent = share(time);
        match part {
            "pp_bubble" => {
                let more = 4 * s.microbatches();
                let left = 100.0 * time / (time + (o.time - time) * 4.0);
                format!("pipeline bubble {percent:.0} %: {more} microbatches would make it {left:.0} %")
            }
            "tp_exposed" => format!("tensor parallel {percent:.0} %: every layer waits for its sums"),
            "dp_exposed" => {
                format!("data parallel {percent:.0} %: gradients or shards travel longer than they hide")
            }
            "optimizer" => format!("optimizer {percent:.0} %: the host's cores step the parameters"),
            "host_exposed" if s.offload == Offload::Activations => {
                format!(
                    "host {percent:.0} %: activations travel to its memory and back longer than they hide"
                )
            }
            "host_exposed" => format!("host {percent:.0} %: it cannot launch as fast as the GPUs work"),
            other => format!("{other} {percent:.0} %"),
        }
    }

    /// For people.
    pub(super) fn print(&self, output: &Output) -> anyhow::Result<()> {
        let (s, o, cluster) = (self.strategy, self.outcome, self.asked.cluster);
        let mut out = output::stdout();
        let title = format!(
            "{} training, {} sequences of {} tokens, {} on {} ({} GPUs)",
            self.transformer.name,
            s.global_batch,
            self.asked.subject.seq,
            self.formats[1],
            cluster.name,
            s.gpus()
        );
        writeln!(out, "{}\n", output.bold(&output::wrapped(&title, output.width, "  ")))?;
        let (low, high) = o.ends();
        let time = |t: f64| output::time(Seconds(t));
        let mut facts = vec![
            (
                "time",
                format!(
                    "{} per iteration (90 % interval {} to {})",
                    output.bold(&time(o.time)),
                    time(low),
                    time(high)
                ),
            ),
            (
                "throughput",
                format!(
                    "{} tokens/s, {} tokens/s per GPU, {:.1} % of peak (MFU)",
                    output::si(self.said.tokens_per_s, "").trim_end(),
                    output::si(self.said.tokens_per_s / s.gpus() as f64, "").trim_end(),
                    100.0 * self.said.mfu
                ),
            ),
        ];
        if let (Some(usd), Some((hour, source))) = (self.said.usd_per_million_tokens, &self.price) {
            facts.push((
                "price",
                format!(
                    "{} USD per million tokens ({} USD/h: {source})",
                    three_digits(usd),
                    three_digits(*hour)
                ),
            ));
        }
        if let (Some(n), Some(hours)) = (self.asked.wanted.tokens, self.said.tokens_hours) {
            facts.push(("tokens", tokens(n, hours)));
        }
        facts.push((
            "plan",
            format!(
                "{}, micro batch {} x {}, recompute {}, {} stack{}",
                preflop_cluster::scale::short(s),
                s.micro_batch,
                s.microbatches(),
                s.recompute.name(),
                s.stack.name(),
                if s.sequence_parallel { ", sequence parallel" } else { "" }
            ),
        ));
        facts.push(("where", self.split()));
        facts.push(("bound", self.bound()));
        facts.push(("memory", self.memory()));
        let unmeasured = s.unmeasured();
        if !unmeasured.is_empty() {
            facts.push((
                "unsure",
                format!(
                    "{} checked against no measurements of whole runs, or too few: the interval is wide",
                    unmeasured.join(" and ")
                ),
            ));
        }
        if let Some(e) = self.said.scaling_efficiency {
            facts.push((
                "scaling",
                format!(
                    "{:.0} % of what as many GPUs would do alone, each with its part of the samples",
                    100.0 * e
                ),
            ));
        }
        for (what, text) in facts {
            writeln!(out, "{}", output::hanging(&format!("  {what:<11} "), &text, output.width))?;
        }
        writeln!(out, "\n  {}", self.bar(output.width.saturating_sub(4).min(96)))?;
        for a in &self.said.advice {
            let gain = if a.gain >= 0.0 {
                format!("{:.1} % faster", 100.0 * a.gain)
            } else {
                format!("{:.1} % slower", -100.0 * a.gain)
            };
            let fit = if o.fits() {
                String::new()
            } else {
                format!(", fits with {}", output::memory(Bytes::from_mib(a.needed_mib)))
            };
            writeln!(out, "  try {}: {gain}{fit}", a.change)?;
        }
        Ok(out.flush()?)
    }

    fn split(&self) -> String {
        let total = self.outcome.time;
        let parts = self.outcome.breakdown.parts();
        let shown = parts.iter().filter(|(_, t)| t / total >= 0.005);
        shown
            .map(|(name, t)| format!("{} {:.0} %", name.replace('_', " "), 100.0 * t / total))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// One bar over the whole width, a letter for each part.
    fn bar(&self, width: usize) -> String {
        const LETTERS: [char; 11] = ['█', '▓', 't', 'c', 'e', 'd', '░', 'p', 'o', 'h', 's'];
        let total = self.outcome.time.max(1e-12);
        let mut out = String::new();
        for ((_, t), letter) in self.outcome.breakdown.parts().iter().zip(LETTERS) {
            let n = (t / total * width as f64).round() as usize;
            out.extend(std::iter::repeat_n(letter, n));
        }
        out
    }

    fn memory(&self) -> String {
        let room = self.asked.cluster.node.gpu.memory;
        let Some(r) = self.outcome.fullest() else { return String::new() };
        let m = |b: f64| output::memory(Bytes(b));
        let verdict = if self.outcome.fits() {
            "fits".to_string()
        } else {
            format!("DOES NOT FIT by {}", m(r.total() - room.0))
        };
        format!(
            "{} of {} on the fullest rank (stage {}): {verdict}; weights {}, gradients {}, optimizer {}, activations {}{}",
            m(r.total()),
            output::memory(room),
            r.stage,
            m(r.weights),
            m(r.gradients),
            m(r.optimizer),
            m(r.activations),
            if r.gathered > 0.0 { format!(", gathered layers {}", m(r.gathered)) } else { String::new() }
        )
    }
}

/// How long so many tokens take.
pub(super) fn tokens(n: u64, hours: f64) -> String {
    let time = output::duration(Seconds(hours * 3600.0));
    format!("{} tokens take {time} of all GPUs", output::si(n as f64, "").trim_end())
}
