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
    /// Seconds from one step of a warp to its next in PyTorch's weight gradients.
    pub wait: f64,
    /// Seconds of one SM for a block of them.
    pub block: f64,
}

impl StreamConstants {
    /// Where fits start; three constants serve all but PyTorch's weight gradients.
    pub fn start(steps: bool) -> Vec<f64> {
        if steps { vec![2e-6, 0.5, 6e-9, 0.15e-6, 60e-9] } else { vec![3e-6, 0.5, 4e-11] }
    }

    /// From a list; what is missing is 0.
    pub fn from_slice(a: &[f64]) -> Option<Self> {
        let at = |i: usize| a.get(i).copied().unwrap_or_default();
        (2..=5).contains(&a.len()).then(|| Self {
            t0: at(0),
            rate: at(1),
            work: at(2),
            wait: at(3),
            block: at(4),
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

/// Time of a depthwise task: `t0` and the 3-norm of bytes and work, with the constants of its key.
pub fn depthwise_time(task: &Task, family: ConvFamily, c: &StreamConstants, machine: &Machine) -> f64 {
    let [x, w, y] = task.bytes();
    let bytes = (x + w + y) / (c.rate * machine.dram);
    let cube = |x: f64| x * x * x;
    let (busy, chain) = if steps(task, family) {
        filter_gradient(task, c, machine)
    } else {
        (task.conv.flops().0 / 2.0 * c.work / machine.sm, 0.0)
    };
    let latency = cube(machine.latency);
    c.t0 + (cube(bytes) + (cube(busy) + cube(chain)) * latency).cube_root()
}

/// Is it PyTorch's depthwise weight gradient, which has a form of its own?
pub fn steps(task: &Task, family: ConvFamily) -> bool {
    family == ConvFamily::TorchDepthwise && task.pass == Pass::Wgrad
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
    fn filter_gradients_grow_with_taps() {
        let machine = Machine::of(&preflop_gpu::catalog::find("h200").unwrap(), Dtype::Fp32);
        let start = StreamConstants::from_slice(&StreamConstants::start(true)).unwrap();
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
