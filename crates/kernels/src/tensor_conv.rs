//! 16-bit and tf32 convolutions before Hopper: implicit products on tensor cores, the best of what an autotuner would try.
//!
//! ```text
//! rho     = tensor FLOP per clock and SM of the format; tf32 counts double
//! P       = rate * gain * (512/rho)^power * (early on Volta and Turing)
//! share   = r/(r + small) * (1 + small/85),   r = bm*bn/(bm + bn)
//! compute = least over tiles and splits of ceil(tiles*split/SM) * (SM*2*bm*bn*ceil32(K/split)/(P*share) + 1 us)
//!           + (split > 1: 3 us + 4*M*N*split/(0.8*DRAM))
//! main    = (compute^4 + ((x + y + w)/DRAM)^4)^(1/4)
//! NCHW    + (planes*2*(x + y)*one + filters*2*w)/(0.85*DRAM) + 6 us
//! time    = 4 us + main + conversions
//! ```
//!
//! Where `rate` is the datasheet's, DRAM the sustained bandwidth, and `one` is 1, but for 1x1 layers at stride 1, whose products read
//! NCHW as it is: 0 forward and 0.8 in gradients, without filters. Boards that sum in fp32 at half rate (`rho` 512) are not power
//! limited and run above their boost clock, hence a gain above 1; boards with wider tensor cores stay below.
//!
//! Constants: fitted on whole networks on RTX 3090, TITAN V, RTX 2080 Ti and V100, with NCHW and NHWC rows (a study of
//! published runs; GPUs left out in turn 14.4 %, in the fit 12.4 %). The six of [`START`] were fitted there, early and
//! filters to the edge of their range; the other figures and the list of tiles were set by hand.

use super::conv::Task;
use preflop_gpu::{Architecture, Gpu};
use preflop_ops::Pass;
use preflop_units::math::Elementary as _;

/// Fitted constants: gain, power, early, small, planes, filters.
///
/// * gain: share of the datasheet's rate that boards with half-rate sums reach with large tiles
/// * power: how that falls with wider tensor cores
/// * early: what the first two generations reach of it
/// * small: loss of small tiles, in elements
/// * planes, filters: passes over activations and filters that a change of layout takes, of a read and a write each
pub type Figures = [f64; 6];

/// Key of the constants.
pub const KEY: &str = "conv/tensor";

/// Where fits start: figures of the study.
pub const START: Figures = [1.27, 0.40, 0.60, 37.0, 0.76, 0.5];

/// Half the side of the tile whose share is 1.
const FULL: f64 = 85.0;
/// Seconds of a launch, of the kernels that convert, of a wave's start and of a reduction.
const LAUNCH: f64 = 4e-6;
const CONVERT: f64 = 6e-6;
const WAVE: f64 = 1e-6;
const REDUCE: f64 = 3e-6;

const TILES: [(f64, f64); 8] = [
    (256.0, 128.0),
    (128.0, 256.0),
    (128.0, 128.0),
    (256.0, 64.0),
    (128.0, 64.0),
    (64.0, 128.0),
    (64.0, 64.0),
    (32.0, 128.0),
];

/// The form and its parts, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorConv {
    /// All.
    pub time: f64,
    /// Arithmetic.
    pub compute: f64,
    /// Bytes of the three tensors.
    pub memory: f64,
    /// Changes of layout.
    pub conversion: f64,
    /// Rows and columns of the tile.
    pub tile: (f64, f64),
    /// Parts of the sum.
    pub split: f64,
    /// CTAs.
    pub ctas: f64,
}

/// Does the form speak for a task with the kernels of a generation? Groups have kernels of their own.
pub fn applies(task: &Task, generation: Architecture, gpu: &Gpu) -> bool {
    use Architecture as A;
    matches!(generation, A::Volta | A::Turing | A::Ampere | A::Ada)
        && task.conv.groups == 1
        && task.dtype.on_tensor_cores()
        && gpu.has_tensor(task.dtype)
}

/// Seconds of a task.
pub fn form(task: &Task, f: &Figures, gpu: &Gpu) -> TensorConv {
    let [gain, power, early, small, planes, filters] = *f;
    let half = task.dtype.is_half();
    let sm = f64::from(gpu.sm_count);
    let rate = gpu.peak(task.dtype).0;
    let rho = rate / (sm * gpu.boost_clock.0) * if half { 1.0 } else { 2.0 };
    let first_two = matches!(gpu.architecture, Architecture::Volta | Architecture::Turing);
    let peak = rate * gain * (512.0 / rho).power(power) * if first_two { early } else { 1.0 };
    let dram = gpu.dram_sustained.0;
    let (m, n, k) = padded(task);
    let mut best = TensorConv {
        time: f64::INFINITY,
        compute: f64::INFINITY,
        memory: 0.0,
        conversion: 0.0,
        tile: TILES[0],
        split: 1.0,
        ctas: 1.0,
    };
    for (bm, bn) in TILES {
        let r = bm * bn / (bm + bn);
        let share = r / (r + small) * (1.0 + small / FULL);
        let grid = (m / bm).ceil() * (n / bn).ceil();
        let mut split = 1.0;
        loop {
            let part = (k / split / 32.0).ceil() * 32.0;
            let ctas = grid * split;
            let reduction = if split > 1.0 { REDUCE + 4.0 * m * n * split / (0.8 * dram) } else { 0.0 };
            let wave = sm * 2.0 * bm * bn * part / (peak * share) + WAVE;
            let compute = (ctas / sm).ceil() * wave + reduction;
            if compute < best.compute {
                best = TensorConv { compute, tile: (bm, bn), split, ctas, ..best };
            }
            split *= 2.0;
            let most = if task.pass == Pass::Wgrad { 128.0 } else { 8.0 };
            let short = task.pass == Pass::Wgrad && k / split < 256.0;
            if split > most || short || (task.pass != Pass::Wgrad && grid >= sm) {
                break;
            }
        }
    }
    let [x, w, y] = task.bytes();
    let memory = (x + y + w) / dram;
    let conversion = match (task.conv.channels_last, task.pointwise(), task.pass) {
        (true, _, _) | (false, true, Pass::Fwd) => 0.0,
        (false, true, _) => 0.8 * planes * 2.0 * (x + y) / (0.85 * dram),
        (false, false, _) => (planes * 2.0 * (x + y) + filters * 2.0 * w) / (0.85 * dram) + CONVERT,
    };
    let main = (best.compute.powi(4) + memory.powi(4)).sqrt().sqrt();
    TensorConv { time: LAUNCH + main + conversion, memory, conversion, ..best }
}

/// M, N and K with channels padded to 16 bytes; up to four input channels have kernels of their own.
fn padded(task: &Task) -> (f64, f64, f64) {
    let step: u64 = if task.dtype.is_half() { 8 } else { 4 };
    let up = |channels: u64| channels.div_ceil(step) * step;
    let c = &task.conv;
    let few = task.pass == Pass::Fwd && c.ci <= 4;
    let ci = if few { 4 } else { up(c.ci) };
    Task { conv: preflop_ops::Conv { ci, co: up(c.co), ..*c }, ..*task }.dims(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::Conv;
    use preflop_units::Dtype;

    #[test]
    fn layouts_cost_what_their_bytes_take() {
        let gpu = catalog::find("rtx-3090").unwrap();
        let time = |conv: Conv, pass| form(&Task::new(&conv, pass, Dtype::Fp16), &START, &gpu).conversion;
        let wide = Conv::square(64, 256, 56, 256, 3, 1, 1);
        assert!(time(wide, Pass::Fwd) > 0.0);
        assert_eq!(time(Conv { channels_last: true, ..wide }, Pass::Fwd), 0.0);
        let pointwise = Conv::square(64, 256, 56, 256, 1, 1, 0);
        assert_eq!(time(pointwise, Pass::Fwd), 0.0);
        assert!(time(pointwise, Pass::Dgrad) > 0.0);
    }

    #[test]
    fn it_speaks_for_tensor_cores_before_hopper_alone() {
        let task = |dtype| Task::new(&Conv::square(8, 64, 56, 64, 3, 1, 1), Pass::Fwd, dtype);
        let on = |name: &str, dtype| {
            let gpu = catalog::find(name).unwrap();
            applies(&task(dtype), gpu.architecture, &gpu)
        };
        assert!(on("rtx-3090", Dtype::Fp16) && on("a100", Dtype::Tf32) && on("v100", Dtype::Fp16));
        assert!(!on("h200", Dtype::Fp16) && !on("v100", Dtype::Tf32) && !on("a100", Dtype::Fp32));
    }
}
