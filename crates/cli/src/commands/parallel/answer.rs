//! What is said about a sharded iteration: as JSON for scripts, as a page for people.

use super::{Advice, Asked};
use crate::cluster_args;
use crate::output::{self, Output, three_digits};
use preflop_cluster::iteration::Outcome;
use preflop_cluster::strategy::Strategy;
use preflop_core::Dtype;
use preflop_core::units::{Bytes, Seconds};
use serde_json::json;
use std::io::Write as _;

/// The answer.
pub(super) struct Answer<'a> {
    asked: &'a Asked<'a>,
    strategy: &'a Strategy,
    outcome: &'a Outcome,
    formats: [Dtype; 2],
    suggestions: Vec<Advice>,
    tokens_per_s: f64,
    mfu: f64,
    efficiency: Option<f64>,
    price: Option<(f64, String)>,
}

impl<'a> Answer<'a> {
    /// Puts it together.
    pub(super) fn new(
        asked: &'a Asked<'a>,
        strategy: &'a Strategy,
        outcome: &'a Outcome,
        alone: Option<f64>,
        formats: [Dtype; 2],
        suggestions: Vec<Advice>,
    ) -> Self {
        let tokens = (strategy.global_batch * asked.subject.seq) as f64;
        let peak = asked.cluster.node.gpu.peak(formats[1]).0 * strategy.gpus() as f64;
        let flops = asked.transformer.flops_per_token(asked.subject.seq) * tokens;
        let efficiency = alone.map(|one| one / outcome.time);
        Self {
            asked,
            strategy,
            outcome,
            formats,
            suggestions,
            tokens_per_s: tokens / outcome.time,
            mfu: flops / outcome.time / peak,
            efficiency,
            price: cluster_args::price(asked.cluster),
        }
    }

    fn usd_per_million_tokens(&self) -> Option<f64> {
        self.price.as_ref().map(|(usd, _)| usd / 3600.0 / self.tokens_per_s * 1e6)
    }

    /// With the names that scripts rely on.
    pub(super) fn json(&self) -> serde_json::Value {
        let (s, o, cluster) = (self.strategy, self.outcome, self.asked.cluster);
        let (low, high) = o.ends();
        let mib = 1_048_576.0;
        let fullest = o.fullest();
        let b = o.breakdown;
        let breakdown: serde_json::Map<String, serde_json::Value> =
            b.parts().iter().map(|(name, t)| ((*name).to_string(), json!(t * 1e3))).collect();
        let collectives: Vec<_> = o
            .uses
            .iter()
            .map(|u| {
                json!({"what": u.kind, "group": u.dimension, "where": if u.group.nodes() > 1 { "outside" } else { "inside" },
                    "gpus": u.group.gpus, "bytes": u.bytes, "count": u.count, "time_us": u.time * 1e6,
                    "exposed_us": u.exposed * 1e6, "bus_gbs": u.bus / 1e9})
            })
            .collect();
        let ranks: Vec<_> = o
            .ranks
            .iter()
            .map(|r| {
                json!({"stage": r.stage, "memory_mib": r.reserved() / mib, "needed_mib": r.total() / mib, "states_mib": r.states() / mib,
                    "activations_mib": r.activations / mib, "gathered_mib": r.gathered / mib,
                    "reserve_mib": r.reserve / mib, "allocated_mib": r.allocated() / mib, "fits": r.fits})
            })
            .collect();
        let samples = s.global_batch as f64 / o.time;
        json!({
            "model": self.asked.transformer.name, "gpu": cluster.node.gpu.name, "cluster": cluster.name,
            "batch": s.global_batch, "seq": self.asked.subject.seq, "precision": self.formats[1], "mode": "train",
            "iteration_ms": o.time * 1e3, "low_ms": low * 1e3, "high_ms": high * 1e3,
            "gpu_busy_ms": (b.compute + b.recompute + b.optimizer) * 1e3, "host_ms": b.host_exposed * 1e3,
            "memory_mib": fullest.map(|r| r.reserved() / mib), "needed_mib": fullest.map(|r| r.total() / mib),
            "gpu_memory_mib": cluster.node.gpu.memory.mib(), "fits": o.fits(),
            "samples_per_s": samples, "bound": self.bound().0,
            "flops": self.asked.transformer.flops_per_token(self.asked.subject.seq) * (s.global_batch * self.asked.subject.seq) as f64,
            "parameters": self.asked.transformer.parameters(),
            "parallel": {"gpus": s.gpus(), "nodes": cluster.count, "dp": s.dp, "tp": s.tp, "pp": s.pp, "cp": s.cp,
                "ep": s.ep, "zero": s.stage(), "fsdp": s.fsdp, "micro_batch": s.micro_batch,
                "microbatches": s.microbatches(), "global_batch": s.global_batch, "interleave": s.interleave,
                "schedule": s.schedule.name(), "sequence_parallel": s.sequence_parallel, "recompute": s.recompute,
                "offload": s.offload, "stack": s.stack, "profile": s.stack, "attention": s.attention},
            "breakdown_ms": breakdown, "collectives": collectives, "ranks": ranks,
            "unmeasured": s.unmeasured(), "mfu": self.mfu, "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.tokens_per_s / s.gpus() as f64,
            "usd_per_hour": self.price.as_ref().map(|(usd, _)| usd),
            "usd_per_million_tokens": self.usd_per_million_tokens(), "scaling_efficiency": self.efficiency,
            "advice": self.suggestions.iter().map(|a| json!({"change": a.what, "gain": a.gain, "fits": a.fits,
                "needed_mib": a.memory / mib})).collect::<Vec<_>>(),
        })
    }

    /// What limits the iteration, and a sentence about it.
    fn bound(&self) -> (&'static str, String) {
        let (s, o) = (self.strategy, self.outcome);
        let share = |t: f64| 100.0 * t / o.time;
        let mut parts = o.breakdown.parts().to_vec();
        parts.retain(|(name, _)| !matches!(*name, "compute" | "recompute" | "optimizer"));
        let (name, time) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("compute", 0.0));
        if share(time) < 10.0 {
            return (
                "compute",
                format!(
                    "compute: {:.0} % of the time the GPUs work on the model",
                    share(o.breakdown.compute)
                ),
            );
        }
        let m = s.microbatches() as f64;
        let text = match name {
            "pp_bubble" => {
                let more = 4.0 * m;
                let steady = o.time - time;
                format!(
                    "pipeline bubble {:.0} %: {more} microbatches would make it {:.0} %",
                    share(time),
                    100.0 * time / (time + steady * 4.0)
                )
            }
            "tp_exposed" => format!("tensor parallel {:.0} %: every layer waits for its sums", share(time)),
            "dp_exposed" => format!(
                "data parallel {:.0} %: gradients or shards travel longer than they hide",
                share(time)
            ),
            "host_exposed" => format!("host {:.0} %: it cannot launch as fast as the GPUs work", share(time)),
            other => format!("{other} {:.0} %", share(time)),
        };
        let bound = match name {
            "pp_bubble" => "bubble",
            "host_exposed" => "host",
            "tp_exposed" | "cp_exposed" if s.tp <= self.asked.cluster.node.gpus => "link",
            _ => "network",
        };
        (bound, text)
    }

    /// For people.
    pub(super) fn print(&self, output: &Output) -> anyhow::Result<()> {
        let (s, o, cluster) = (self.strategy, self.outcome, self.asked.cluster);
        let mut out = output::stdout();
        let title = format!(
            "{} training, {} sequences of {} tokens, {} on {} ({} GPUs)",
            self.asked.transformer.name,
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
                    output::si(self.tokens_per_s, "").trim_end(),
                    output::si(self.tokens_per_s / s.gpus() as f64, "").trim_end(),
                    100.0 * self.mfu
                ),
            ),
        ];
        if let (Some(usd), Some((hour, source))) = (self.usd_per_million_tokens(), &self.price) {
            facts.push((
                "price",
                format!(
                    "{} USD per million tokens ({} USD/h: {source})",
                    three_digits(usd),
                    three_digits(*hour)
                ),
            ));
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
        facts.push(("bound", self.bound().1));
        facts.push(("memory", self.memory()));
        let unmeasured = s.unmeasured();
        if !unmeasured.is_empty() {
            facts.push((
                "unsure",
                format!(
                    "{} checked against no measurements of whole runs: the interval is wide",
                    unmeasured.join(" and ")
                ),
            ));
        }
        if let Some(e) = self.efficiency {
            facts.push((
                "scaling",
                format!(
                    "{:.0} % of what as many GPUs would do alone, each with its part of the samples",
                    100.0 * e
                ),
            ));
        }
        for (what, text) in facts {
            let text = output::wrapped(&text, output.width.saturating_sub(14), "              ");
            writeln!(out, "  {what:<11} {text}")?;
        }
        writeln!(out, "\n  {}", self.bar(output.width.saturating_sub(4).min(96)))?;
        for a in &self.suggestions {
            let gain = if a.gain >= 0.0 {
                format!("{:.1} % faster", 100.0 * a.gain)
            } else {
                format!("{:.1} % slower", -100.0 * a.gain)
            };
            let fit = if o.fits() {
                String::new()
            } else {
                format!(", fits with {}", output::memory(Bytes(a.memory)))
            };
            writeln!(out, "  try {}: {gain}{fit}", a.what)?;
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
