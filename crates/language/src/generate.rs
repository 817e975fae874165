//! Answers of a model to prompts: how soon the first token comes, how fast the others, how many users at once.
//!
//! ```text
//! TTFT     = prefill(batch, prompt)
//! TPOT     = mean of decode(batch, c) over c = prompt .. prompt + output
//! tokens/s = batch * output / (TTFT + (output - 1) * TPOT)
//! ```
//!
//! All prompts of a batch are read at once and all answers have the same length; [`crate::traffic`] lets requests come one by one. The mean over the
//! context is taken by Simpson's rule over three contexts, since a step's time is nearly a straight line in it.

use preflop_core::Gpu;
use preflop_core::cost::{Reserve, fit};
use preflop_core::model::{CacheKind, Graph, LowerOptions, ModelError, Run, Stage, launched, lower};
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_core::units::{Bytes, Seconds};
use serde::Serialize;

/// One step of generation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepCost {
    /// Its time.
    pub time: Seconds,
    /// Ends of the 90 % interval.
    pub low: Seconds,
    /// Ends of the 90 % interval.
    pub high: Seconds,
    /// Memory at its peak.
    pub peak: Bytes,
    /// Keys and values in it.
    pub cache: Bytes,
}

/// What runs the model: it knows what a step costs.
pub trait Stack {
    /// Reads `prompt` tokens of each of `batch` sequences.
    fn prefill(&self, batch: u64, prompt: u64) -> Result<StepCost, ModelError>;

    /// Writes one token of each of `batch` sequences that have `context` tokens each.
    fn decode(&self, batch: u64, context: u64) -> Result<StepCost, ModelError>;

    /// Memory at the peak of a whole generation.
    fn peak(&self, batch: u64, prompt: u64, output: u64) -> Result<Bytes, ModelError> {
        let start = self.prefill(batch, prompt)?.peak;
        Ok(start.max(self.decode(batch, prompt.saturating_add(output))?.peak))
    }
}

/// Builds the model for a batch, a sequence length and a stage.
pub type Build<'a> = &'a dyn Fn(u64, Option<u64>, Stage) -> Result<Graph, ModelError>;

/// PyTorch: prefill operator by operator, decode as `run` says.
pub struct PyTorch<'a> {
    /// Builds the model.
    pub build: Build<'a>,
    /// Number formats; the mode is inference.
    pub options: LowerOptions,
    /// How decode steps are launched.
    pub run: Run,
    /// How keys and values are kept.
    pub cache: CacheKind,
    /// Times of operators.
    pub model: &'a TimeModel,
    /// The GPU.
    pub gpu: &'a Gpu,
}

impl std::fmt::Debug for PyTorch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PyTorch").field("run", &self.run).field("gpu", &self.gpu.name).finish_non_exhaustive()
    }
}

impl PyTorch<'_> {
    fn step(&self, batch: u64, seq: Option<u64>, stage: Stage, run: Run) -> Result<StepCost, ModelError> {
        let graph = (self.build)(batch, seq, stage)?;
        let iteration = launched(lower(&graph, &self.options)?, run);
        let p = self.model.predict_iteration(&iteration, self.gpu);
        let memory = iteration.memory;
        Ok(StepCost { time: p.time, low: p.low, high: p.high, peak: memory.peak, cache: memory.cache })
    }

    fn memory(&self, batch: u64, seq: Option<u64>, stage: Stage) -> Result<Bytes, ModelError> {
        Ok(lower(&(self.build)(batch, seq, stage)?, &self.options)?.memory.peak)
    }
}

impl Stack for PyTorch<'_> {
    fn prefill(&self, batch: u64, prompt: u64) -> Result<StepCost, ModelError> {
        // A graph is captured for decode alone: prompts have any length.
        let run = if self.run.compiles() { Run::Compile } else { Run::Eager };
        self.step(batch, Some(prompt), Stage::Prefill, run)
    }

    fn decode(&self, batch: u64, context: u64) -> Result<StepCost, ModelError> {
        self.step(batch, None, Stage::Decode { context, cache: self.cache }, self.run)
    }

    fn peak(&self, batch: u64, prompt: u64, output: u64) -> Result<Bytes, ModelError> {
        let end = Stage::Decode { context: prompt.saturating_add(output), cache: self.cache };
        Ok(self.memory(batch, Some(prompt), Stage::Prefill)?.max(self.memory(batch, None, end)?))
    }
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Tokens of a prompt.
    pub prompt: u64,
    /// Tokens of an answer.
    pub output: u64,
    /// Batches to try.
    pub batches: Vec<u64>,
    /// Latency that is wanted.
    pub limits: Limits,
    /// Price of an hour, where there is one.
    pub usd_per_hour: Option<f64>,
}

/// Latency that is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// To the first token.
    pub ttft: Option<Seconds>,
    /// Between two tokens.
    pub tpot: Option<Seconds>,
}

impl Limits {
    /// Are both kept?
    pub fn hold(&self, ttft: Seconds, tpot: Seconds) -> bool {
        self.ttft.is_none_or(|limit| ttft <= limit) && self.tpot.is_none_or(|limit| tpot <= limit)
    }
}

/// One batch. The unit stands in every name.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, utoipa::ToSchema)]
pub struct BatchRun {
    /// Sequences at once.
    pub batch: u64,
    /// Milliseconds to the first token.
    pub ttft_ms: f64,
    /// Milliseconds between two tokens, in the mean over the answer.
    pub tpot_ms: f64,
    /// Lower end of the interval of `tpot_ms`.
    pub tpot_low_ms: f64,
    /// Upper end of the interval of `tpot_ms`.
    pub tpot_high_ms: f64,
    /// Milliseconds of a whole answer.
    pub answer_ms: f64,
    /// Written tokens a second of all users.
    pub tokens_per_s: f64,
    /// Written tokens a second of one user.
    pub tokens_per_s_per_user: f64,
    /// Keys and values at the end.
    pub kv_mib: f64,
    /// Memory at its peak.
    pub memory_mib: f64,
    /// Does it fit, with reserve?
    pub fits: bool,
    /// Are the limits kept?
    pub within_limits: bool,
    /// Dollars of a million written tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub usd_per_million_tokens: Option<f64>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = Generated)]
pub struct Answer {
    /// The batches asked for.
    pub runs: Vec<BatchRun>,
    /// The largest batch that fits with whole answers; 0 if none does.
    pub largest_batch: u64,
    /// Tokens a second of the best batch that fits and keeps the limits; 0 if none does.
    pub goodput_tokens_per_s: f64,
    /// That batch.
    pub goodput_batch: Option<u64>,
}

/// Batches beyond this are no question of one GPU.
const MAX_BATCH: u64 = 1 << 16;

/// Runs every batch.
pub fn answer(stack: &dyn Stack, gpu: &Gpu, asked: &Question) -> Result<Answer, ModelError> {
    let reserve = Reserve::default();
    let runs = asked.batches.iter().map(|&b| run(stack, gpu, asked, b)).collect::<Result<Vec<_>, _>>()?;
    let largest_batch =
        fit::largest_batch(gpu, &reserve, MAX_BATCH, |b| stack.peak(b, asked.prompt, asked.output))?;
    let best = runs
        .iter()
        .filter(|r| r.fits && r.within_limits)
        .max_by(|a, b| a.tokens_per_s.total_cmp(&b.tokens_per_s));
    Ok(Answer {
        largest_batch,
        goodput_tokens_per_s: best.map_or(0.0, |r| r.tokens_per_s),
        goodput_batch: best.map(|r| r.batch),
        runs,
    })
}

fn run(stack: &dyn Stack, gpu: &Gpu, asked: &Question, batch: u64) -> Result<BatchRun, ModelError> {
    let prefill = stack.prefill(batch, asked.prompt)?;
    let end = asked.prompt.saturating_add(asked.output);
    let contexts = [asked.prompt, asked.prompt + asked.output / 2, end];
    let mut steps = Vec::with_capacity(contexts.len());
    for context in contexts {
        steps.push(stack.decode(batch, context)?);
    }
    let [first, middle, last] = [steps[0], steps[1], steps[2]];
    let mean = |of: fn(&StepCost) -> f64| (of(&first) + 4.0 * of(&middle) + of(&last)) / 6.0;
    let tpot = mean(|s| s.time.0);
    let whole = prefill.time.0 + tpot * asked.output.saturating_sub(1) as f64;
    let tokens_per_s = (batch.saturating_mul(asked.output)) as f64 / whole;
    let peak = prefill.peak.max(last.peak);
    Ok(BatchRun {
        batch,
        ttft_ms: prefill.time.ms(),
        tpot_ms: tpot * 1e3,
        tpot_low_ms: mean(|s| s.low.0) * 1e3,
        tpot_high_ms: mean(|s| s.high.0) * 1e3,
        answer_ms: whole * 1e3,
        tokens_per_s,
        tokens_per_s_per_user: tokens_per_s / batch as f64,
        kv_mib: last.cache.mib(),
        memory_mib: peak.mib(),
        fits: Reserve::default().fits(peak, gpu),
        within_limits: asked.limits.hold(prefill.time, Seconds(tpot)),
        usd_per_million_tokens: asked
            .usd_per_hour
            .map(|usd| crate::words::usd_per_million_tokens(usd, tokens_per_s)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::catalog;

    /// A step takes 1 ms for each sequence and 1 us for each token of context; memory 1 GiB for each sequence.
    struct Line;

    impl Stack for Line {
        fn prefill(&self, batch: u64, prompt: u64) -> Result<StepCost, ModelError> {
            self.decode(batch, prompt)
        }

        fn decode(&self, batch: u64, context: u64) -> Result<StepCost, ModelError> {
            let time = Seconds(batch as f64 * (1e-3 + 1e-6 * context as f64));
            let peak = Bytes::from_mib(1024.0 * batch as f64);
            Ok(StepCost { time, low: time, high: time, peak, cache: peak })
        }
    }

    #[test]
    fn hand_computed() {
        let gpu = catalog::find("h200").unwrap();
        let limits = Limits { ttft: None, tpot: Some(Seconds(0.01)) };
        let asked = Question {
            prompt: 1000,
            output: 1000,
            batches: vec![1, 4, 8, 200],
            limits,
            usd_per_hour: Some(3.6),
        };
        let answer = answer(&Line, &gpu, &asked).unwrap();
        let first = answer.runs[0];
        // 1 + 1 ms; 1 + 1.5 ms in the mean; 2 + 999 * 2.5 ms for 1000 tokens
        assert!((first.ttft_ms - 2.0).abs() < 1e-9 && (first.tpot_ms - 2.5).abs() < 1e-9);
        assert!((first.tokens_per_s - 1000.0 / 2.4995).abs() < 1e-6);
        assert!((first.usd_per_million_tokens.unwrap() - 1000.0 / first.tokens_per_s).abs() < 1e-9);
        // 4 sequences take 10 ms a token, 8 take 20: too slow.
        assert_eq!(answer.goodput_batch, Some(4));
        assert!(!answer.runs[3].fits);
        // (140 GiB - 640 MiB) / 1.12 GiB
        assert!((120..130).contains(&answer.largest_batch), "{}", answer.largest_batch);
    }
}
