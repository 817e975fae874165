//! fp32 convolutions outside Hopper: the fastest of the library's algorithms, corrected.

use super::draft::{Draft, Question, Sketch, Then};
use super::{TimeModel, bound_of, plain_as_measured};
use crate::evidence::{Evidence, Library, Nearness};
use crate::fitted::Fitted;
use preflop_gpu::{Gpu, Vendor};
use preflop_kernels::Machine;
use preflop_kernels::conv::Task;
use preflop_kernels::plain_conv::{Algorithm, Figures, features, gemm, winograd};
use preflop_kernels::plain_rivals;
use preflop_kernels::tile::Tiling;
use preflop_kernels::traffic;
use preflop_ops::Pass;
use preflop_units::dtype::Dtype;

/// Name of the forest, and of the interval.
pub(super) const FOREST: &str = "plain/conv";
/// Published convolutions end here: below, their times are the host's.
const SHORTEST: f64 = 200e-6;

/// Fewer channels than this were rarely among them.
const FEWEST_CHANNELS: u64 = 16;

/// The constants of all algorithms.
pub(super) fn figures(fitted: &Fitted) -> [Figures; 3] {
    Algorithm::ALL.map(|a| fitted.form(a.key()).and_then(|f| f.try_into().ok()).unwrap_or(a.start()))
}

/// Do these forms speak for a task on a GPU?
pub(super) fn applies(task: &Task, gpu: &Gpu) -> bool {
    task.dtype == Dtype::Fp32 && task.conv.groups == 1 && !plain_as_measured(gpu)
}

/// Is a task like those that were learned from? They are forward 3x3 layers (a data gradient is one with channels
/// swapped) with any numbers of channels, rarely few; layers of networks, with multiples of 32, run as the forms say.
fn like_learned(task: &Task) -> bool {
    let c = &task.conv;
    let even = c.ci.is_multiple_of(32) && c.co.is_multiple_of(32);
    winograd(task) && task.pass != Pass::Wgrad && !even && c.ci.min(c.co) >= FEWEST_CHANNELS
}

impl TimeModel {
    /// The fastest algorithm and its tiles, and the seconds of all (infinite where one cannot do the task).
    pub(super) fn plain_algorithm(&self, task: &Task, machine: &Machine) -> (Algorithm, Tiling, [f64; 3]) {
        let [first, ..] = &self.plain;
        let product = gemm(task, first, machine);
        let slower = plain_rivals::gradient_factor(task, &self.boards.rivals);
        let mut best = (Algorithm::Gemm, Tiling { time: slower * product.time, ..product });
        let mut times = [best.1.time, f64::INFINITY, f64::INFINITY];
        for ((algorithm, figures), time) in
            Algorithm::ALL.into_iter().zip(&self.plain).zip(&mut times).skip(1)
        {
            if let Some(tiling) = algorithm.tiling(task, figures, machine) {
                *time = tiling.time;
                if tiling.time < best.1.time {
                    best = (algorithm, tiling);
                }
            }
        }
        let rivals = [
            (Algorithm::Fft, plain_rivals::fft(task, &self.boards.rivals, machine)),
            (Algorithm::Columns, plain_rivals::columns(task, &self.boards.rivals, machine)),
        ];
        for (algorithm, tiling) in rivals {
            if let Some(tiling) = tiling.filter(|t| t.time < best.1.time) {
                best = (algorithm, tiling);
            }
        }
        (best.0, best.1, times)
    }

    pub(super) fn plain_conv<'a>(&'a self, task: &Task, gpu: &'a Gpu) -> Sketch<'a> {
        let Evidence { reference, nearness } = self.references.nearest(Library::Plain, None, gpu);
        let there = Machine::convolution(reference, task.dtype);
        let (algorithm, at, times) = self.plain_algorithm(task, &there);
        let (_, tiling, _) = self.plain_algorithm(task, &Machine::convolution(gpu, task.dtype));
        let learned = like_learned(task) && gpu.vendor != Vendor::Amd;
        let draft = Draft {
            reference: tiling.time,
            at: at.time,
            correction: 0.0,
            interval: self
                .fitted
                .unseen_interval(if nearness == Nearness::Elsewhere { "conv" } else { FOREST }, "conv"),
            bound: bound_of(&tiling),
            levels: traffic::conv::levels(task, gpu),
            abreast: 1.0,
            launches: match algorithm {
                Algorithm::Gemm | Algorithm::Fused => 2.0,
                Algorithm::Unfused => 4.0,
                Algorithm::Columns => 3.0,
                Algorithm::Fft => 5.0,
            },
        };
        let question = if learned {
            // The times there follow from the layer and the reference.
            let about = (std::ptr::from_ref(reference).addr(), task.conv, task.pass, task.dtype);
            self.question(self.fitted.forest(FOREST), &about, || features(task, &times, &there))
        } else {
            Question::nobody()
        };
        Sketch { draft, question, then: Then::trusted((at.time / SHORTEST).min(1.0), 1.0) }
    }
}
