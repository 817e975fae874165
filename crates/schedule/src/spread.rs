//! How far the GPU's time of an iteration may be from its prediction.
//!
//! ```text
//! var(ln T) = network^2 + sum over f, p of (shared_f T_fp / T)^2 + own^2 sum over i of (n_i t_i s_i / T)^2
//!           + (sum over u of n_u t_u s_u / T)^2
//! ```
//!
//! Where `T` is the GPU's time, `T_fp` that of the operators of family `f` in pass `p`, and `t_i`, `n_i`, `s_i` the time, number and standard deviation (in
//! log, from its own interval) of call `i`; `u` are calls that no measurement speaks for. Errors of calls are partly their own and cancel in a sum, partly shared by all kernels of one kind, and `network` is what no fit of single operators sees:
//! what kernels find in the caches, how warm the board is, which operators a framework adds. Constants: `data/fitted/spread.toml`, from whole
//! iterations of an H200, each model left out in turn.

use crate::iteration::StepPrediction;
use preflop_gpu::Vendor;
use preflop_graph::Iteration;
use preflop_ops::{Family, Pass};
use preflop_time::{Nearness, OpPrediction};
use preflop_units::math::Elementary as _;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const FITTED: &str = include_str!("../data/fitted/spread.toml");

/// 90 % of a normal distribution lies within this many standard deviations.
pub const NORMAL_90: f64 = 1.645;
/// Share of a network's time above which it counts as convolutional or recurrent.
const LAYERED: f64 = 0.3;
const PASSES: usize = [Pass::Fwd, Pass::Bwd, Pass::Dgrad, Pass::Wgrad].len();

/// Standard deviations in log, by what shares an error.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The whole network.
    pub network: f64,
    /// A call alone, over what its interval says.
    pub own: f64,
    /// All operators of a family in one pass, by family.
    pub shared: [f64; Family::ALL.len()],
}

#[derive(Deserialize)]
struct File {
    network: f64,
    own: f64,
    shared: BTreeMap<String, f64>,
}

impl Figures {
    /// As they ship.
    pub fn fitted() -> &'static Self {
        static READ: OnceLock<Figures> = OnceLock::new();
        READ.get_or_init(|| {
            // A test reads the file, so what ships can be read.
            Self::parse(FITTED).unwrap_or(Self { network: 0.05, own: 1.0, shared: [0.1; Family::ALL.len()] })
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let file: File = toml::from_str(text).ok()?;
        let mut shared = [0.0; Family::ALL.len()];
        for family in Family::ALL {
            shared[family as usize] = *file.shared.get(family.name())?;
        }
        Some(Self { network: file.network, own: file.own, shared })
    }
}

/// What an iteration consists of, as far as errors are concerned. Shares of the GPU's time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parts {
    /// By family and pass.
    kinds: [[f64; PASSES]; Family::ALL.len()],
    /// Variance that errors of the calls add up to where each is its own, downwards and upwards.
    own: [f64; 2],
    /// Standard deviation of what no measurement speaks for, which is one error.
    unmeasured: [f64; 2],
}

/// Logs of the time over its lower end, and of its upper end over the time.
fn logs(p: &OpPrediction) -> [f64; 2] {
    [(p.time / p.low).natural_log(), (p.high / p.time).natural_log()]
}

impl Parts {
    /// Of the steps of an iteration that was predicted.
    pub fn of(iteration: &Iteration, steps: &[StepPrediction]) -> Self {
        let mut parts = Self::default();
        let mut total = 0.0;
        let calls = steps.iter().map(|s| s.call + 1).max().unwrap_or(0);
        // Equal calls have one error, and the same logs, which take longer than the sums.
        let mut known: Vec<Option<[f64; 2]>> = vec![None; calls];
        let mut seconds = vec![[0.0; 2]; calls];
        for s in steps {
            let step = &iteration.steps[s.step];
            let time = s.one.time.0 * s.count;
            total += time;
            parts.kinds[step.call.family() as usize][step.call.pass as usize] += time;
            let (sums, [down, up]) = if iteration.stand_ins.has(step) {
                (&mut parts.unmeasured, logs(&s.one))
            } else {
                let logs = *known[s.call].get_or_insert_with(|| logs(&s.one));
                let unmodelled = step.call.family() == Family::Unmodelled;
                (if unmodelled { &mut parts.unmeasured } else { &mut seconds[s.call] }, logs)
            };
            sums[0] += time * down / NORMAL_90;
            sums[1] += time * up / NORMAL_90;
        }
        if total > 0.0 {
            for [down, up] in seconds {
                parts.own[0] += down * down;
                parts.own[1] += up * up;
            }
            parts.kinds.iter_mut().flatten().for_each(|kind| *kind /= total);
            parts.unmeasured.iter_mut().for_each(|side| *side /= total);
            parts.own.iter_mut().for_each(|side| *side /= total * total);
        }
        parts
    }

    /// Has the iteration operators of this family?
    pub fn has(&self, family: Family) -> bool {
        self.kinds[family as usize].iter().any(|share| *share > 0.0)
    }

    /// Distances to the ends of the 90 % interval in log, downwards and upwards.
    pub fn ends(&self, figures: &Figures) -> [f64; 2] {
        self.beside(figures.network, figures)
    }

    /// The same with another spread of whole networks.
    fn beside(&self, network: f64, figures: &Figures) -> [f64; 2] {
        let mut common = network * network;
        for (kinds, shared) in self.kinds.iter().zip(figures.shared) {
            common += shared * shared * kinds.iter().map(|share| share * share).sum::<f64>();
        }
        let own = figures.own * figures.own;
        let side = |i: usize| (common + own * self.own[i] + self.unmeasured[i] * self.unmeasured[i]).sqrt();
        [NORMAL_90 * side(0), NORMAL_90 * side(1)]
    }

    /// Factors of the GPU's time between which 90 % of measurements lie, on a GPU to which measurements are as near as that.
    ///
    /// Errors of the operators on a GPU that was not measured are one error, not many: they do not average out over a network. Spread of
    /// ln(measured/predicted) of whole networks with their GPU left out: 0.10 between GPUs of known generations and 0.15 within one in
    /// convolutional and recurrent networks, 0.08 in others; a precaution where the generation is unknown too. AMD's libraries are measured in fp32 operators of
    /// an MI100 alone, whose products without it come out 27 to 38 % off: twice the precaution elsewhere.
    pub(crate) fn factors(&self, nearness: Nearness, vendor: Vendor) -> [f64; 2] {
        let figures = Figures::fitted();
        let layered: f64 =
            [Family::Conv, Family::Rnn, Family::Spatial].iter().flat_map(|f| &self.kinds[*f as usize]).sum();
        let [gpu, layers, others] = match nearness {
            Nearness::Here => [figures.network, 0.0, 0.0],
            _ if vendor == Vendor::Amd => [0.30, 0.18, 0.18],
            Nearness::Generation => [0.10, 0.15, 0.08],
            Nearness::Elsewhere => [0.15, 0.18, 0.10],
        };
        let network = f64::hypotenuse(gpu, if layered > LAYERED { layers } else { others });
        let [down, up] = self.beside(network, figures);
        [(-down).exponential(), up.exponential()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: Figures = Figures { network: 0.0, own: 1.0, shared: [0.0; Family::ALL.len()] };

    fn parts(kinds: &[(Family, Pass, f64)]) -> Parts {
        let mut out = Parts::default();
        for (family, pass, share) in kinds {
            out.kinds[*family as usize][*pass as usize] = *share;
        }
        out
    }

    #[test]
    fn what_ships_can_be_read() {
        let figures = Figures::parse(FITTED).unwrap();
        assert!(figures.network > 0.0 && figures.own > 0.0 && figures.shared.iter().all(|s| *s > 0.0));
    }

    #[test]
    fn errors_that_kernels_of_a_kind_share_do_not_cancel() {
        let shared = [0.1; Family::ALL.len()];
        let figures = Figures { shared, ..FIGURES };
        let one = parts(&[(Family::Gemm, Pass::Fwd, 1.0)]);
        let two = parts(&[(Family::Gemm, Pass::Fwd, 0.5), (Family::Conv, Pass::Fwd, 0.5)]);
        let passes = parts(&[(Family::Conv, Pass::Fwd, 0.6), (Family::Conv, Pass::Wgrad, 0.4)]);
        // 1.645 x 0.1; of halves over sqrt(2); sqrt(0.36 + 0.16) = 0.7211
        for (parts, end) in [(one, 0.1645), (two, 0.116_319), (passes, 0.118_623)] {
            for side in parts.ends(&figures) {
                assert!((side - end).abs() < 1e-6, "{side} instead of {end}");
            }
        }
    }

    #[test]
    fn what_the_network_adds_stays_where_operators_are_sure() {
        let sure = parts(&[(Family::Gemm, Pass::Fwd, 1.0)]);
        let [down, up] = sure.ends(&Figures { network: 0.03, ..FIGURES });
        // 1.645 x 0.03
        assert!((down - 0.049_35).abs() < 1e-9 && (up - down).abs() < 1e-12);
    }

    #[test]
    fn a_gpu_that_nobody_measured_is_never_surer() {
        for family in Family::ALL {
            let parts = parts(&[(family, Pass::Fwd, 1.0)]);
            let width = |nearness, vendor| {
                let [low, high] = parts.factors(nearness, vendor);
                high / low
            };
            let order = [
                width(Nearness::Here, Vendor::Nvidia),
                width(Nearness::Generation, Vendor::Nvidia),
                width(Nearness::Elsewhere, Vendor::Nvidia),
                width(Nearness::Elsewhere, Vendor::Amd),
            ];
            assert!(order.is_sorted(), "{family:?}: {order:?}");
        }
    }
}
