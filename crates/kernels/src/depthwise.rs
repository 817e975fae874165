//! Depthwise convolutions: kernels that stream their tensors, and PyTorch's weight gradient, which does not.

use super::Machine;
use super::conv::{ConvFamily, Task};
use preflop_ops::Pass;
use preflop_units::math::Elementary as _;

/// Constants of a family that is bound by memory and a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamConstants {
    /// Seconds of launch, start and end.
    pub t0: f64,
    /// Share of the sustained DRAM bandwidth.
    pub rate: f64,
    /// Seconds of one SM for a multiplication; for a step of a warp in PyTorch's weight gradients.
    pub work: f64,
    /// Seconds from one step of a warp to its next in PyTorch's weight gradients; from one tap of a thread to its next in its other passes.
    pub wait: f64,
    /// Seconds of one SM for a block of the weight gradients; for a result of the other passes.
    pub block: f64,
    /// Seconds of one SM for a tap that PyTorch's other passes try, inside the map or not.
    pub tried: f64,
}

/// How the kernels of a family go through a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// cuDNN's: bytes and multiplications.
    Map,
    /// PyTorch's forward and data gradient: a thread for each result tries all taps of the filter's rows that meet the map.
    Taps,
    /// PyTorch's weight gradient: a block for each weight.
    Weights,
}

impl StreamConstants {
    /// Where fits start.
    pub fn start(walk: Walk) -> Vec<f64> {
        match walk {
            Walk::Map => vec![3e-6, 0.5, 4e-11],
            // A twentieth of a clock for a tap, two for a result, 40 from one tap to the next.
            Walk::Taps => vec![2e-6, 0.7, 2.5e-11, 2e-8, 1e-9, 2.5e-11],
            Walk::Weights => vec![2e-6, 0.5, 6e-9, 0.15e-6, 60e-9],
        }
    }

    /// From a list; what is missing is 0.
    pub fn from_slice(a: &[f64]) -> Option<Self> {
        let at = |i: usize| a.get(i).copied().unwrap_or_default();
        (2..=6).contains(&a.len()).then(|| Self {
            t0: at(0),
            rate: at(1),
            work: at(2),
            wait: at(3),
            block: at(4),
            tried: at(5),
        })
    }
}

/// Threads of a warp, of the largest block of PyTorch's weight gradients, and of an SM; blocks of an SM.
const WARP: f64 = 32.0;
const LARGEST_BLOCK: f64 = 256.0;
const SM_THREADS: f64 = 2048.0;
const SM_BLOCKS: f64 = 32.0;
/// Steps of a warp that beginning another image is worth: the best fit in all formats (2.5 to 2.7).
const IMAGE_STEPS: f64 = 2.6;

/// Time of a depthwise task with the constants of its key: `t0` and the 3-norm of bytes and work; in PyTorch's forward and data gradient
/// their sum, since each thread waits for every tap.
pub fn depthwise_time(task: &Task, family: ConvFamily, c: &StreamConstants, machine: &Machine) -> f64 {
    let [x, w, y] = task.bytes();
    let bytes = (x + w + y) / (c.rate * machine.dram);
    let cube = |x: f64| x * x * x;
    let (busy, chain) = match walk(task, family) {
        Walk::Map => (task.conv.flops().0 / 2.0 * c.work / machine.sm, 0.0),
        Walk::Weights => filter_gradient(task, c, machine),
        Walk::Taps => {
            let kept = machine.reuse.miss([x, w, y], machine.l2_size);
            return c.t0 + bytes * kept + machine.latency * taps(task, c, machine);
        }
    };
    let latency = cube(machine.latency);
    c.t0 + (cube(bytes) + (cube(busy) + cube(chain)) * latency).cube_root()
}

/// How a family's kernels go through a task.
pub fn walk(task: &Task, family: ConvFamily) -> Walk {
    match (family, task.pass) {
        (ConvFamily::TorchDepthwise, Pass::Wgrad) => Walk::Weights,
        (ConvFamily::TorchDepthwise, _) => Walk::Taps,
        _ => Walk::Map,
    }
}

/// Pairs of a result and a tap that lie inside the map along one side; taps are counted one by one up to this many.
fn inside(size: u64, taps: u64, [stride, pad, dilation]: [u64; 3], results: u64) -> f64 {
    const COUNTED: u64 = 4096;
    if taps > COUNTED {
        return taps as f64 * results as f64;
    }
    // The tap `t` of the result `o` reads place `o stride + t dilation - pad`, which must lie in 0..size.
    let pairs = |t: u64| {
        let first = pad.saturating_sub(t * dilation).div_ceil(stride);
        let end = (size + pad).saturating_sub(t * dilation).div_ceil(stride);
        end.min(results).saturating_sub(first) as f64
    };
    (0..taps).map(pairs).sum()
}

/// PyTorch's forward and data gradient: seconds of the SMs for results, for taps inside the map and for those that are tried (all of a row of the filter that
/// meets the map), and what the taps of one thread take one after the other, as often as SMs begin anew.
fn taps(task: &Task, c: &StreamConstants, machine: &Machine) -> f64 {
    let conv = &task.conv;
    let along = |i: usize| [conv.stride[i], conv.pad[i], conv.dilation[i]];
    let rows = inside(conv.h, conv.r, along(0), conv.oh());
    let columns = inside(conv.w, conv.s, along(1), conv.ow());
    let maps = (conv.batch * conv.co) as f64;
    let (results, width) = if task.pass == Pass::Dgrad {
        (conv.batch * conv.ci * conv.h * conv.w, conv.w)
    } else {
        (conv.batch * conv.co * conv.oh() * conv.ow(), conv.ow())
    };
    let tried = maps * rows * width as f64 * conv.s as f64;
    let results = results.max(1) as f64;
    let busy = results * c.block + maps * rows * columns * c.work + tried * c.tried;
    let turns = (results / (SM_THREADS * machine.sm)).ceil();
    busy / machine.sm + turns * tried / results * c.wait
}

/// PyTorch's depthwise weight gradient: a block per weight, in it a warp per image, 32 pixels a step. Seconds that the
/// SMs are busy, and that a chain of blocks one after the other takes.
fn filter_gradient(task: &Task, c: &StreamConstants, machine: &Machine) -> (f64, f64) {
    let conv = &task.conv;
    let (images, pixels) = (conv.batch as f64, (conv.oh() * conv.ow()) as f64);
    let blocks = (conv.co * conv.r * conv.s) as f64;
    let threads = (WARP * images).min(LARGEST_BLOCK);
    let image = (pixels / WARP).ceil() + IMAGE_STEPS;
    let busy = (blocks / machine.sm).ceil() * (images * image * c.work + c.block);
    let resident = (SM_THREADS / threads).min(SM_BLOCKS) * machine.sm;
    let chain = (blocks / resident).ceil() * (images * WARP / threads).ceil() * image * c.wait;
    (busy, chain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_ops::Conv;
    use preflop_units::dtype::Dtype;

    #[test]
    fn only_taps_inside_the_map_count() {
        // 7 places, 3 taps, padded by 1: the outer results have two each, the others three
        assert_eq!(inside(7, 3, [1, 1, 1], 7), 19.0);
        // 31 taps over 7 places: every result sees all 7
        assert_eq!(inside(7, 31, [1, 15, 1], 7), 49.0);
        // every second of 8 places, taps two apart, padded by 2: places 0, 2, 4 and 6, and those two before and behind
        assert_eq!(inside(8, 3, [2, 2, 2], 4), 10.0);
        let machine = Machine::of(&preflop_gpu::catalog::find("h200").unwrap(), Dtype::Fp32);
        let start = StreamConstants::from_slice(&StreamConstants::start(Walk::Taps)).unwrap();
        let time = |side: u64, area: u64| {
            let conv = Conv { groups: 96, ..Conv::square(64, 96, area, 96, side, 1, side / 2) };
            let task = Task::new(&conv, Pass::Fwd, Dtype::Fp32);
            depthwise_time(&task, ConvFamily::TorchDepthwise, &start, &machine)
        };
        // a filter four times as wide as the map takes less than its taps say
        assert!(time(31, 7) < 3.0 * time(7, 7));
        assert!(time(31, 56) > 10.0 * time(7, 56));
    }

    #[test]
    fn filter_gradients_grow_with_taps() {
        let machine = Machine::of(&preflop_gpu::catalog::find("h200").unwrap(), Dtype::Fp32);
        let start = StreamConstants::from_slice(&StreamConstants::start(Walk::Weights)).unwrap();
        let time = |side: u64, batch: u64| {
            let conv = Conv { groups: 96, ..Conv::square(batch, 96, 56, 96, side, 1, side / 2) };
            let task = Task::new(&conv, Pass::Wgrad, Dtype::Fp32);
            depthwise_time(&task, ConvFamily::TorchDepthwise, &start, &machine)
        };
        assert!(time(7, 32) > 4.0 * time(3, 32));
        // a block has a warp per image: an eighth of the images is no eighth of the time
        assert!(time(3, 1) > 0.3 * time(3, 8));
    }
}
