//! Requests that arrive one by one at a server with continuous batching and chunked prefill.
//!
//! Every step writes one token for each running request and reads up to `chunk` prompt tokens of those that wait, first come, first
//! served. A request is let in when keys and values of its whole answer have room. Arrivals are a Poisson process with a fixed seed, so that the same
//! question has the same answer.
//!
//! ```text
//! step = D(n, c) + P(k, o) - W        where both parts run; W = D(1, 0), since the weights are read once for both
//! ```
//!
//! Where n requests run with c tokens each in the mean, k prompt tokens are read after o tokens of the same prompts, D is linear in c and between the batches that were asked of
//! the stack, P between sizes of chunks. (Orca: Yu et al. 2022; Sarathi: Agrawal et al. 2023, arXiv:2308.16369.)

use crate::generate::{Limits, Stack};
use preflop_core::model::ModelError;
use preflop_core::units::Seconds;
use preflop_core::units::math::Elementary as _;
use serde::Serialize;
use std::collections::VecDeque;

/// What arrives and what is there for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// Requests a second.
    pub rate: f64,
    /// Seconds of arrivals.
    pub seconds: f64,
    /// Tokens of a prompt.
    pub prompt: u64,
    /// Tokens of an answer.
    pub output: u64,
    /// Prompt tokens that one step reads at most.
    pub chunk: u64,
    /// Requests that run at once at most.
    pub batch: u64,
    /// Latency that is wanted.
    pub limits: Limits,
}

/// Times of steps between those that a stack was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTable {
    /// Batch, seconds without context, seconds for each token of the mean context.
    decode: Vec<[f64; 3]>,
    /// Prompt tokens and seconds.
    prefill: Vec<[f64; 2]>,
    /// Seconds for each token read and each token before it.
    behind: f64,
    /// Seconds that both parts of a step share.
    shared: f64,
}

fn between(points: &[[f64; 2]], x: f64) -> f64 {
    let at = points.partition_point(|p| p[0] < x);
    match (at.checked_sub(1).map(|i| points[i]), points.get(at)) {
        (Some([x0, y0]), Some(&[x1, y1])) => y0 + (y1 - y0) * (x - x0) / (x1 - x0).max(f64::MIN_POSITIVE),
        // Below the first point a step costs what the smallest does; beyond the last it grows in proportion.
        (None, Some(&[_, y])) => y,
        (Some([x0, y0]), None) => y0 * x / x0,
        (None, None) => 0.0,
    }
}

impl StepTable {
    /// Asks the stack for a dozen batches and chunks.
    pub fn new(stack: &dyn Stack, t: &Traffic) -> Result<Self, ModelError> {
        let (near, far) = (t.prompt.max(1), t.prompt.saturating_add(t.output).max(2));
        let mut decode = Vec::new();
        let mut batch = 1;
        loop {
            let [a, b] = [stack.decode(batch, near)?.time.0, stack.decode(batch, far)?.time.0];
            let slope = ((b - a) / (far - near) as f64).max(0.0);
            decode.push([batch as f64, (a - slope * near as f64).max(0.0), slope]);
            if batch >= t.batch {
                break;
            }
            batch = (batch * 4).min(t.batch);
        }
        let chunk = t.chunk.clamp(1, t.prompt.max(1));
        let mut prefill = Vec::new();
        for part in [8, 4, 2, 1] {
            let n = (chunk / part).max(1);
            if prefill.last().is_none_or(|p: &[f64; 2]| p[0] < n as f64) {
                prefill.push([n as f64, stack.prefill(1, n)?.time.0]);
            }
        }
        let whole = stack.prefill(1, near)?.time.0;
        let chunks = near as f64 / chunk as f64;
        let one = prefill.last().map_or(0.0, |p| p[1]);
        // What later chunks pay for the tokens before them: the sum over all tokens of those before is half the square.
        let behind = (whole - chunks * one).max(0.0) / (0.5 * (near as f64).powi(2));
        let shared = decode[0][1].min(prefill[0][1]);
        Ok(Self { decode, prefill, behind, shared })
    }

    /// Seconds of a step.
    fn step(&self, running: u64, context: f64, chunk: u64, before: f64) -> f64 {
        let read = if chunk == 0 {
            0.0
        } else {
            between(&self.prefill, chunk as f64) + self.behind * chunk as f64 * before
        };
        if running == 0 {
            return read;
        }
        let n = running as f64;
        let at = self.decode.partition_point(|d| d[0] < n).clamp(1, self.decode.len().max(2) - 1);
        let written = match (self.decode.get(at - 1), self.decode.get(at)) {
            (Some(a), Some(b)) => {
                let share = ((n - a[0]) / (b[0] - a[0])).max(0.0);
                let line = |d: &[f64; 3]| d[1] + d[2] * context;
                line(a) + (line(b) - line(a)) * share
            }
            (Some(a), None) => a[1] + a[2] * context,
            _ => 0.0,
        };
        if chunk == 0 { written } else { (written + read - self.shared).max(written.max(read)) }
    }
}

/// Percentiles of a time, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, utoipa::ToSchema)]
#[allow(missing_docs)]
pub struct Percentiles {
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
}

impl Percentiles {
    fn of(mut seconds: Vec<f64>) -> Self {
        if seconds.is_empty() {
            return Self::default();
        }
        seconds.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| 1e3 * seconds[((seconds.len() - 1) as f64 * share).round() as usize];
        Self { p50_ms: at(0.5), p90_ms: at(0.9), p99_ms: at(0.99) }
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = TrafficOutcome)]
pub struct Outcome {
    /// Requests a second that arrived.
    pub rate: f64,
    /// Seconds of arrivals.
    pub seconds: f64,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were answered by the end of the arrivals.
    pub answered: u64,
    /// Does the queue grow without end?
    pub saturated: bool,
    /// To the first token.
    pub ttft: Percentiles,
    /// Between tokens, in the mean of an answer.
    pub tpot: Percentiles,
    /// From arrival to the last token.
    pub latency: Percentiles,
    /// Written tokens a second.
    pub tokens_per_s: f64,
    /// Answered requests a second that kept the limits.
    pub goodput_per_s: f64,
    /// Requests that ran at once, in the mean.
    pub mean_batch: f64,
    /// Most that waited at once.
    pub longest_queue: u64,
    /// Steps.
    pub steps: u64,
}

/// Uniform numbers above 0 and up to 1 (Steele, Lea and Flood 2014: `SplitMix64`).
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        ((z >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

const SEED: u64 = 20_261_116;
/// Requests that one simulation takes in; more say nothing new.
pub const MAX_REQUESTS: f64 = 2e6;

/// A request that runs.
struct Running {
    arrived: f64,
    first: f64,
    last_step: u64,
}

/// Lets the requests arrive. `table` has the times, `t.batch` the room.
pub fn simulate(table: &StepTable, t: &Traffic) -> Outcome {
    let end = t.seconds.min(MAX_REQUESTS / t.rate.max(f64::MIN_POSITIVE));
    let mut uniform = Uniform(SEED);
    let mut arrival = -uniform.next().natural_log() / t.rate;
    let (mut now, mut steps, mut arrived, mut context) = (0.0_f64, 0_u64, 0_u64, 0.0_f64);
    let mut waiting: VecDeque<f64> = VecDeque::new();
    let mut running: VecDeque<Running> = VecDeque::new();
    // Tokens of the first waiting prompt that are read.
    let mut read = 0_u64;
    let (mut ttft, mut tpot, mut latency) = (Vec::new(), Vec::new(), Vec::new());
    let (mut good, mut longest, mut batches) = (0_u64, 0_usize, 0.0);
    let output = t.output.max(1);
    while now < end {
        while arrival <= now && arrival < end {
            waiting.push_back(arrival);
            arrived += 1;
            arrival += -uniform.next().natural_log() / t.rate;
        }
        longest = longest.max(waiting.len());
        if running.is_empty() && waiting.is_empty() {
            now = arrival;
            continue;
        }
        // Read as much of the first prompts as a step takes; finished ones run from the next step on.
        let (mut left, mut chunk, mut before, mut started) = (t.chunk.max(1), 0_u64, 0.0, 0_usize);
        while left > 0 && waiting.len() > started && (running.len() + started) < t.batch as usize {
            let part = left.min(t.prompt.saturating_sub(read).max(1));
            before += read as f64 * part as f64;
            (left, chunk, read) = (left - part, chunk + part, read + part);
            if read >= t.prompt {
                (read, started) = (0, started + 1);
            }
        }
        let n = running.len() as u64;
        let mean = if n > 0 { context / n as f64 } else { 0.0 };
        let before = if chunk > 0 { before / chunk as f64 } else { 0.0 };
        now += table.step(n, mean, chunk, before).max(1e-7);
        steps += 1;
        batches += n as f64;
        context += n as f64;
        while running.front().is_some_and(|r| r.last_step <= steps) {
            if let Some(r) = running.pop_front() {
                context -= (t.prompt + output) as f64;
                let each = if output > 1 { (now - r.first) / (output - 1) as f64 } else { 0.0 };
                ttft.push(r.first - r.arrived);
                tpot.push(each);
                latency.push(now - r.arrived);
                good += u64::from(t.limits.hold(Seconds(r.first - r.arrived), Seconds(each)));
            }
        }
        for _ in 0..started {
            let Some(at) = waiting.pop_front() else { break };
            // The prefill has written the first token.
            running.push_back(Running { arrived: at, first: now, last_step: steps + output - 1 });
            context += (t.prompt + 1) as f64;
        }
    }
    let answered = ttft.len() as u64;
    let seconds = now.max(f64::MIN_POSITIVE);
    Outcome {
        rate: t.rate,
        seconds: end,
        arrived,
        answered,
        // Waiting requests would keep the server busy for long after the last arrival.
        saturated: waiting.len() as f64 > (0.05 * arrived as f64).max(8.0),
        ttft: Percentiles::of(ttft),
        tpot: Percentiles::of(tpot),
        latency: Percentiles::of(latency),
        tokens_per_s: answered as f64 * output as f64 / seconds,
        goodput_per_s: good as f64 / seconds,
        mean_batch: batches / (steps as f64).max(1.0),
        longest_queue: longest as u64,
        steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::StepCost;
    use preflop_core::units::Bytes;

    /// 10 ms a step whatever runs, and 1 ms for every 100 prompt tokens.
    struct Fixed;

    impl Stack for Fixed {
        fn prefill(&self, _: u64, prompt: u64) -> Result<StepCost, ModelError> {
            let time = Seconds(prompt as f64 * 1e-5);
            Ok(StepCost { time, low: time, high: time, peak: Bytes::ZERO, cache: Bytes::ZERO })
        }

        fn decode(&self, _: u64, _: u64) -> Result<StepCost, ModelError> {
            let time = Seconds(10e-3);
            Ok(StepCost { time, low: time, high: time, peak: Bytes::ZERO, cache: Bytes::ZERO })
        }
    }

    fn traffic(rate: f64) -> Traffic {
        Traffic {
            rate,
            seconds: 600.0,
            prompt: 1000,
            output: 100,
            chunk: 1000,
            batch: 64,
            limits: Limits { ttft: Some(Seconds(0.1)), tpot: Some(Seconds(0.02)) },
        }
    }

    #[test]
    fn a_quiet_server_answers_as_fast_as_it_can() {
        let t = traffic(0.1);
        let out = simulate(&StepTable::new(&Fixed, &t).unwrap(), &t);
        assert!(out.arrived > 40 && out.answered + 2 >= out.arrived);
        // 1000 tokens at 1 ms for every 100; then one token every 10 ms
        assert!((out.ttft.p50_ms - 10.0).abs() < 1.0, "{}", out.ttft.p50_ms);
        assert!((out.tpot.p50_ms - 10.0).abs() < 0.5, "{}", out.tpot.p50_ms);
        assert!(!out.saturated);
    }

    #[test]
    fn too_many_requests_pile_up() {
        // 64 at once for about a second each: 64 a second at most
        let t = traffic(200.0);
        let out = simulate(&StepTable::new(&Fixed, &t).unwrap(), &t);
        assert!(out.saturated && out.goodput_per_s < 5.0);
        assert!(out.tokens_per_s < 6500.0, "{}", out.tokens_per_s);
    }

    #[test]
    fn more_traffic_waits_longer() {
        let at = |rate| {
            let t = traffic(rate);
            simulate(&StepTable::new(&Fixed, &t).unwrap(), &t).ttft.p90_ms
        };
        assert!(at(1.0) <= at(20.0) && at(20.0) <= at(50.0));
    }

    #[test]
    fn the_same_question_has_the_same_answer() {
        let t = traffic(5.0);
        let table = StepTable::new(&Fixed, &t).unwrap();
        assert_eq!(simulate(&table, &t), simulate(&table, &t));
    }
}
