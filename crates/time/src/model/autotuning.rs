//! What an autotuner would find: the kernels that a library may run for a convolution, each with its time.

use super::TimeModel;
use crate::OpPrediction;
use preflop_gpu::Gpu;
use preflop_learned::choice::Guess;
use preflop_ops::{Op, OpCall};
use preflop_units::Seconds;
use serde::Serialize;

/// One way to run a convolution.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Algorithm {
    /// Family of kernels and their tile, such as `ffma 256x64x8`.
    pub name: String,
    /// By its closed form, without what was learned of the library's own choice.
    #[serde(skip)]
    pub time: Seconds,
    /// How likely the library's heuristic takes it, from 0 to 1.
    pub likelihood: f64,
}

impl TimeModel {
    /// The kernels that may run for a convolution, that of the heuristic first. Nothing for other calls, and where no choice was
    /// learned: there the prediction is the fastest of the closed forms, which is the autotuner's answer already.
    pub fn algorithms(&self, call: &OpCall, gpu: &Gpu) -> Vec<Algorithm> {
        let named = |(guess, time): (Guess, f64)| {
            let v = &guess.variant;
            let tile = v.tile().map_or(String::new(), |[m, n, k]| format!(" {m}x{n}x{k}"));
            Algorithm {
                name: format!("{}{tile}", v.family.name()),
                time: Seconds(time),
                likelihood: f64::from(guess.probability),
            }
        };
        self.ways(call, gpu).into_iter().map(named).collect()
    }

    /// Those kernels, each with its seconds.
    fn ways(&self, call: &OpCall, gpu: &Gpu) -> Vec<(Guess, f64)> {
        let Some(choice) = self.choice(call, gpu) else { return Vec::new() };
        let product = choice.product().map(|g| {
            let call = OpCall { op: Op::Gemm(g), ..call.clone() };
            self.predict(&call, gpu).time.0
        });
        let candidates = self.candidates(&choice, product, &choice.here(gpu));
        let ways = candidates.guesses.into_iter().map(|(guess, time, _)| (guess, time));
        ways.filter(|(_, time)| time.is_finite() && *time > 0.0).collect()
    }

    /// A call with the fastest of its algorithms instead of the library's choice.
    ///
    /// The closed forms of the candidates say that trials gain up to a tenth in 16-bit formats; `cudnn.benchmark` gained less than 0.5 % in each of 14
    /// pairs of iterations of seven convolutional networks on an H200 in bf16. There the prediction stays, and only its lower end follows the fastest candidate. In
    /// other formats nothing was measured: the fastest candidate is the prediction, the heuristic's time its upper end.
    #[must_use]
    pub fn autotuned(&self, call: &OpCall, gpu: &Gpu, one: OpPrediction) -> OpPrediction {
        let ways = self.ways(call, gpu);
        let fastest = ways.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
        let Some((_, chosen)) = ways.first().filter(|(_, time)| fastest < *time) else { return one };
        let share = fastest / chosen;
        let low = one.low.min(one.time * share);
        if call.dtype.is_half() {
            OpPrediction { low, ..one }
        } else {
            OpPrediction { low: one.low * share, time: one.time * share, ..one }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::{Conv, Gemm, Pass};
    use preflop_units::dtype::Dtype;

    #[test]
    fn a_convolution_on_hopper_has_ways_and_a_product_none() {
        let model = TimeModel::embedded();
        let h200 = catalog::find("h200").unwrap();
        let conv = Op::Conv(Conv::square(64, 256, 14, 256, 3, 1, 1));
        let ways = model.algorithms(&OpCall { op: conv, pass: Pass::Fwd, dtype: Dtype::Fp32 }, &h200);
        assert!(!ways.is_empty() && ways.windows(2).all(|w| w[0].likelihood >= w[1].likelihood), "{ways:?}");
        assert!(ways.iter().all(|w| w.time > Seconds::ZERO));
        let product = OpCall::fwd(Op::Gemm(Gemm::linear(64, 64, 64, false)), Dtype::Fp32);
        assert!(model.algorithms(&product, &h200).is_empty());
    }

    #[test]
    fn a_trial_is_never_slower_and_moves_only_the_interval_where_it_was_measured() {
        let model = TimeModel::embedded();
        let h200 = catalog::find("h200").unwrap();
        for dtype in [Dtype::Fp32, Dtype::Bf16] {
            for pass in [Pass::Fwd, Pass::Dgrad, Pass::Wgrad] {
                let call = OpCall { op: Op::Conv(Conv::square(64, 256, 14, 1024, 1, 1, 0)), pass, dtype };
                let one = model.predict(&call, &h200);
                let tried = model.autotuned(&call, &h200, one);
                assert!(
                    tried.low <= tried.time && tried.time <= one.time && tried.high == one.high,
                    "{tried:?}"
                );
                assert!(dtype == Dtype::Fp32 || tried.time == one.time);
            }
        }
    }
}
