//! 16-bit and tf32 convolutions before Hopper: implicit products on tensor cores, the best of what an autotuner would try.
//!
//! ```text
//! rho     = tensor FLOP per clock and SM of the format; tf32 counts double
//! P       = rate * (512/rho)^power * (gain, or early on Volta and Turing)
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
//! M, N and K are those of `conv.rs` as the kernels run them: every tap of a filter has its channels rounded up to the 64 bytes that a step of the
//! sum takes (a first layer of three channels does eleven times its FLOPs, as DeepBench shows on a V100), but for forward layers of up
//! to four channels, which have kernels of their own since Ampere; strided data gradients sum the largest number of taps for each pixel. Volta's and Turing's data gradients do
//! not split their sums (they take 134 us on a V100 with 8 or 16 images of 7 x 7 and 512 channels), and weight gradients have no tile of 32 rows.
//!
//! Constants: fitted on whole networks on RTX 3090, TITAN V, RTX 2080 Ti and V100, with NCHW and NHWC rows, and on DeepBench's 16-bit layers
//! (V100). They start where a study of the published runs ended; what is no constant of [`Figures`] was set by hand.

use super::conv::Task;
use preflop_gpu::{Architecture, Gpu};
use preflop_ops::Pass;
use preflop_units::math::Elementary as _;

/// Fitted constants: gain, power, early, small, planes, filters.
///
/// * gain: share of the datasheet's rate that boards with half-rate sums reach with large tiles
/// * power: how that falls with wider tensor cores
/// * early: the same share in the first two generations
/// * small: loss of small tiles, in elements
/// * planes, filters: passes over activations and filters that a change of layout takes, of a read and a write each
pub type Figures = [f64; 6];

/// Key of the constants.
pub const KEY: &str = "conv/tensor";

/// Where fits start: figures of the study.
pub const START: Figures = [1.27, 0.40, 0.76, 37.0, 0.76, 0.5];

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

fn first_two(gpu: &Gpu) -> bool {
    matches!(gpu.architecture, Architecture::Volta | Architecture::Turing)
}

/// The constants that measurements on some GPUs speak of.
pub fn spoken(gpus: &[Gpu]) -> [bool; 6] {
    let (early, later) = (gpus.iter().any(first_two), gpus.iter().any(|g| !first_two(g)));
    [later, true, early, true, true, true]
}

/// Seconds of a task.
pub fn form(task: &Task, f: &Figures, gpu: &Gpu) -> TensorConv {
    let [gain, power, early, small, planes, filters] = *f;
    let half = task.dtype.is_half();
    let sm = f64::from(gpu.sm_count);
    let rate = gpu.peak(task.dtype).0;
    let rho = rate / (sm * gpu.boost_clock.0) * if half { 1.0 } else { 2.0 };
    let first_two = first_two(gpu);
    let peak = rate * (512.0 / rho).power(power) * if first_two { early } else { gain };
    let dram = gpu.dram_sustained.0;
    let (m, n, k) = padded(task, first_two);
    let most = match task.pass {
        Pass::Wgrad => 128.0,
        Pass::Dgrad if first_two => 1.0,
        _ => 8.0,
    };
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
        if task.pass == Pass::Wgrad && bm < 64.0 {
            continue;
        }
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

/// M, N and K as kernels run them: channels padded to 16 bytes in tensors, and for every tap to the 64 bytes that a step takes.
fn padded(task: &Task, first_two: bool) -> (f64, f64, f64) {
    let (vector, step) = (task.vector(), 4 * task.vector());
    let c = &task.conv;
    let (ci, co) = (c.ci.next_multiple_of(vector), c.co.next_multiple_of(vector));
    let taps = (c.r * c.s) as f64;
    let results = (c.batch * c.oh() * c.ow()) as f64;
    match task.pass {
        Pass::Dgrad => {
            let (share, sums) = task.gradient_taps();
            let pixels = (c.batch * c.h * c.w) as f64;
            (share * pixels, ci as f64, sums * co.next_multiple_of(step) as f64)
        }
        Pass::Wgrad => (co as f64, taps * ci.next_multiple_of(step) as f64, results),
        _ => {
            let few = c.ci <= 4 && !first_two;
            let channels = if few { 4 } else { ci.next_multiple_of(step) };
            (results, co as f64, taps * channels as f64)
        }
    }
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
