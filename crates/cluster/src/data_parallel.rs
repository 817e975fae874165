//! Data parallelism of any model: a recorded or lowered iteration on every GPU, its gradients reduced in buckets, or its
//! parameters sharded and gathered unit by unit.
//!
//! ```text
//! bucket i starts at max(its last gradient is there, bucket i-1 is through)
//! exposed   = end of the last bucket - end of backward
//! iteration = one GPU's + exposed + imbalance * c(n) * one GPU's
//! ```
//!
//! Where c(n) is the mean of the largest of n standard normal numbers: all ranks wait for the slowest, and ranks differ by
//! what their samples cost and by their hosts. On measured boxes with fast links that wait, not the links, is what scaling loses.

use crate::Cluster;
use crate::collective::{Collectives, Group, Kind};
use crate::interval::LogInterval;
use crate::strategy::Fsdp;
use preflop_core::model::{Iteration, Phase};
use preflop_core::ops::Layout;
use preflop_core::time::IterationPrediction;
use preflop_core::units::Bytes;
use preflop_core::units::math::Elementary as _;
use preflop_core::{Op, Pass};

/// Bytes of a bucket, and of the first, which is small so that reduction starts early (PyTorch's defaults).
const BUCKET: f64 = 25.0 * 1024.0 * 1024.0;
const FIRST_BUCKET: f64 = 1024.0 * 1024.0;

/// Standard deviation of one rank's time over its mean where every sample costs the same.
///
/// Fitted on DDP runs of fixed-size inputs (ResNet-50, SSD) in boxes with NVLink; runs with samples of unequal size (detection, speech)
/// lose three to eight times as much. `preflop validate --parallel` prints the value of every model.
pub const EVEN_IMBALANCE: f64 = 0.02;

/// Mean of the largest of n standard normal numbers.
///
/// Blom's approximation: the normal quantile at (n - 0.375) / (n + 0.25).
pub fn largest_of(n: f64) -> f64 {
    if n <= 1.0 {
        return 0.0;
    }
    let p = (n - 0.375) / (n + 0.25);
    // Abramowitz and Stegun 26.2.23, error below 4.5e-4.
    let t = (-2.0 * (1.0 - p).natural_log()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

/// A gradient: when it is there after the start of backward, and its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gradient {
    /// Seconds after the start of backward.
    pub at: f64,
    /// Bytes.
    pub bytes: f64,
}

/// Gradients in the order in which backward makes them, scaled to the model's parameters.
pub fn gradients(iteration: &Iteration, prediction: &IterationPrediction, size: f64) -> (Vec<Gradient>, f64) {
    let mut list = Vec::new();
    let mut clock = 0.0;
    for p in &prediction.steps {
        let step = &iteration.steps[p.step];
        if step.phase != Phase::Backward {
            continue;
        }
        clock += p.one.time.0 * p.count;
        let elements = match &step.call.op {
            Op::Gemm(g) if g.layout == Layout::Tn => g.m * g.n,
            Op::Conv(c) if step.call.pass == Pass::Wgrad => c.co * (c.ci / c.groups.max(1)) * c.r * c.s,
            Op::Embedding(e) => e.vocab * e.dim,
            Op::Rnn(r) if step.call.pass != Pass::Fwd => 4 * r.layers * r.hidden * (r.input + r.hidden),
            _ => 0,
        };
        if elements > 0 {
            list.push(Gradient { at: clock, bytes: elements as f64 * p.count });
        }
    }
    let found: f64 = list.iter().map(|g| g.bytes).sum();
    let wanted = iteration.parameters as f64 * size;
    if found <= 0.0 {
        return (vec![Gradient { at: clock, bytes: wanted }], clock);
    }
    for g in &mut list {
        g.bytes *= wanted / found;
    }
    (list, clock)
}

/// Seconds that DDP's buckets need after the end of backward, and all reductions together.
pub fn exposed(gradients: &[Gradient], backward: f64, reduce: impl Fn(f64) -> f64) -> (f64, f64) {
    let (mut end, mut all, mut held, mut limit) = (0.0_f64, 0.0, 0.0, FIRST_BUCKET);
    let mut ready = 0.0_f64;
    for g in gradients {
        held += g.bytes;
        ready = g.at;
        if held >= limit {
            let time = reduce(held);
            end = end.max(ready) + time;
            all += time;
            held = 0.0;
            limit = BUCKET;
        }
    }
    if held > 0.0 {
        let time = reduce(held);
        end = end.max(ready) + time;
        all += time;
    }
    ((end - backward).max(0.0), all)
}

/// What data parallelism makes of an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataParallel {
    /// Seconds of the iteration.
    pub time: f64,
    /// 90 % interval as logs.
    pub interval: LogInterval,
    /// Seconds of one GPU alone.
    pub alone: f64,
    /// Of the time: reductions and gathers that nothing hides.
    pub exposed: f64,
    /// Of the time: waiting for the slowest rank.
    pub waiting: f64,
    /// All reductions and gathers, hidden or not.
    pub links: f64,
    /// Bytes reduced or gathered by one rank.
    pub bytes: f64,
    /// Time of one GPU over the time of all: the scaling efficiency.
    pub efficiency: f64,
}

/// How the parameters are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// Every rank has all of them.
    Copies,
    /// ZeRO 1 and 2: every rank has all, each steps a part.
    States,
    /// Shards.
    Shards(Fsdp),
}

/// Predicts an iteration that every GPU of the cluster runs on its own batch.
pub fn predict(
    iteration: &Iteration,
    one: &IterationPrediction,
    cluster: &Cluster,
    collectives: &Collectives,
    sharding: Sharding,
    gradient_size: f64,
    imbalance: f64,
) -> DataParallel {
    let n = cluster.gpus();
    let group = Group { gpus: n, per_node: cluster.node.gpus };
    let alone = one.time.0;
    let (gradients, backward) = gradients(iteration, one, gradient_size);
    let bytes: f64 = gradients.iter().map(|g| g.bytes).sum();
    let (exposed, links) = match sharding {
        Sharding::Copies => {
            exposed(&gradients, backward, |b| collectives.predict(Kind::AllReduce, group, b, cluster).time)
        }
        Sharding::States => {
            let (shown, all) = exposed(&gradients, backward, |b| {
                collectives.predict(Kind::ReduceScatter, group, b, cluster).time
            });
            let back = collectives.predict(Kind::AllGather, group, bytes, cluster).time;
            (shown + back, all + back)
        }
        Sharding::Shards(how) => sharded(bytes, one, backward, cluster, collectives, how),
    };
    let waiting = imbalance * largest_of(n as f64) * alone;
    let time = alone + exposed + waiting;
    let own =
        LogInterval { low: (one.low.0 / alone).natural_log(), high: (one.high.0 / alone).natural_log() };
    let link = collectives.predict(Kind::AllReduce, group, BUCKET, cluster).interval;
    let interval = LogInterval::joined(&[(alone, own), (exposed, link), (waiting, LogInterval::factor(3.0))]);
    DataParallel { time, interval, alone, exposed, waiting, links, bytes, efficiency: alone / time }
}

/// Bytes that one rank holds at its peak: that of one GPU, less what ZeRO's stage shards, and with what reductions take: a bucket,
/// or two of the units that FSDP gathers, each of `bytes` over 24.
pub fn peak(iteration: &Iteration, alone: Bytes, cluster: &Cluster, stage: u8, bytes: f64) -> f64 {
    let m = &iteration.memory;
    let sharded = match stage {
        3 => m.weights.0 + m.gradients.0 + m.optimizer.0,
        2 => m.gradients.0 + m.optimizer.0,
        1 => m.optimizer.0,
        _ => 0.0,
    };
    let besides = if stage == 3 { bytes / 12.0 } else { BUCKET };
    alone.0 - sharded * (1.0 - 1.0 / cluster.gpus() as f64) + besides
}

/// Units that FSDP wraps: about as many as a deep model has blocks.
const UNITS: f64 = 24.0;

fn sharded(
    bytes: f64,
    one: &IterationPrediction,
    backward: f64,
    cluster: &Cluster,
    collectives: &Collectives,
    how: Fsdp,
) -> (f64, f64) {
    let group = Group { gpus: cluster.gpus(), per_node: cluster.node.gpus };
    let inside = if how == Fsdp::Hybrid { Group { gpus: group.per_node, ..group } } else { group };
    let unit = bytes / UNITS;
    let gather = collectives.predict(Kind::AllGather, inside, unit, cluster).time;
    let scatter = collectives.predict(Kind::ReduceScatter, inside, unit, cluster).time;
    let forward = (one.gpu_wall.0 - backward).max(0.0) / UNITS;
    let back = scatter + if how == Fsdp::GradOp { 0.0 } else { gather };
    let mut shown =
        UNITS * ((gather - forward).max(0.0) + (back - backward / UNITS).max(0.0)) + gather + scatter;
    let mut all = UNITS * (gather + back);
    if inside != group {
        let across = Group { gpus: cluster.count, per_node: 1 };
        let reduce = collectives.predict(Kind::AllReduce, across, bytes / inside.gpus as f64, cluster).time;
        shown += (reduce - backward).max(0.1 * reduce);
        all += reduce;
    }
    (shown, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_two_four_and_eight() {
        for (n, known) in [(2.0, 0.564), (4.0, 1.029), (8.0, 1.424), (16.0, 1.766)] {
            assert!((largest_of(n) - known).abs() < 0.03, "{n} {}", largest_of(n));
        }
        assert_eq!(largest_of(1.0), 0.0);
    }

    #[test]
    fn buckets_start_when_their_gradients_are_there() {
        let mib = 1024.0 * 1024.0;
        let list = [
            Gradient { at: 1.0, bytes: mib },
            Gradient { at: 2.0, bytes: 30.0 * mib },
            Gradient { at: 10.0, bytes: 5.0 * mib },
        ];
        // Reductions of 3 s: 1 to 4, 4 to 7 (bucket 2 is ready at 2), the last from 10 to 13; backward ends at 10.
        let (shown, all) = exposed(&list, 10.0, |_| 3.0);
        assert_eq!((shown, all), (3.0, 9.0));
    }
}
