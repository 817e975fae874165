//! fp32 convolutions on plain pipes: what an autotuner finds besides products and Winograd.
//!
//! ```text
//! FFT tiles   filters over 3 at stride 1, T = 16 or 32; f = T*(T/2 + 1) frequencies, nt = b*ceil(h/(T-r+1))*ceil(w/(T-s+1)) tiles
//!             t = 15 us + 8*f*nt*ci*co/(fft*peak) + 16*f*(nt*ci + nt*co + ci*co)/(transform*DRAM)
//! columns     data gradients: r*s*ci x co x oh*ow products for each image, then columns are added up
//!             t = 10 us + 2*b*r*s*ci*co*oh*ow/(column*peak) + 4*add*b*r*s*ci*oh*ow/L2
//! pointwise   weight gradients of 1x1 filters are slower than their products by a factor
//! ```
//!
//! Constants: fitted by a study on DeepBench (TITAN Xp and V100, all passes); launches are set by hand.

use super::Machine;
use super::conv::Task;
use super::tile::Tiling;
use preflop_ops::Pass;

/// Fitted constants: fft, transform, column, add; factor of 1x1 weight gradients.
///
/// Strided data gradients have none: an autotuned V100 runs them at the rate of other products once the taps are counted as kernels run them, and what they take over
/// that on a TITAN Xp (two to three times, up to 32 channels) is its library's choice by heuristic.
pub type Figures = [f64; 5];

/// Key of the constants.
pub const KEY: &str = "plain/conv/rivals";

/// Where fits start: figures of the study.
pub const START: Figures = [1.3, 0.29, 0.35, 0.5, 1.5];

/// Seconds of the launches of both algorithms.
const FFT_LAUNCH: f64 = 15e-6;
const COLUMN_LAUNCH: f64 = 10e-6;

/// What a gradient's product takes over its form.
pub fn gradient_factor(task: &Task, f: &Figures) -> f64 {
    if task.pass == Pass::Wgrad && task.conv.r * task.conv.s == 1 { f[4] } else { 1.0 }
}

/// Seconds by FFT tiles, if they can do the task.
pub fn fft(task: &Task, f: &Figures, machine: &Machine) -> Option<Tiling> {
    let c = &task.conv;
    let unstrided = c.stride == [1, 1] && c.dilation == [1, 1] && c.groups == 1;
    if !unstrided || c.r.max(c.s) <= 3 {
        return None;
    }
    let (h, w) = if task.pass == Pass::Dgrad { (c.h, c.w) } else { (c.oh(), c.ow()) };
    let (ci, co) = (c.ci as f64, c.co as f64);
    let one = |edge: u64| {
        let (rows, columns) = (edge.checked_sub(c.r - 1)?, edge.checked_sub(c.s - 1)?);
        if rows * columns == 0 {
            return None;
        }
        let frequencies = (edge * (edge / 2 + 1)) as f64;
        let tiles = (c.batch * h.div_ceil(rows) * w.div_ceil(columns)) as f64;
        let compute = 8.0 * frequencies * tiles * ci * co / (f[0] * machine.peak);
        let bytes = 16.0 * frequencies * (tiles * (ci + co) + ci * co);
        Some(tiling(FFT_LAUNCH, compute, bytes / (f[1] * machine.dram), (edge as f64, tiles)))
    };
    let both = [one(16), one(32)];
    both.into_iter().flatten().min_by(|a, b| a.time.total_cmp(&b.time))
}

/// Seconds by column products, if they can do the task.
pub fn columns(task: &Task, f: &Figures, machine: &Machine) -> Option<Tiling> {
    let c = &task.conv;
    if task.pass != Pass::Dgrad || c.groups != 1 || c.r * c.s == 1 {
        return None;
    }
    let rows = (c.r * c.s * c.ci) as f64;
    let pixels = (c.batch * c.oh() * c.ow()) as f64;
    let compute = 2.0 * rows * c.co as f64 * pixels / (f[2] * machine.peak);
    let added = 4.0 * f[3] * rows * pixels / machine.l2;
    Some(tiling(COLUMN_LAUNCH, compute, added, (128.0, pixels)))
}

/// A form that is the sum of arithmetic and bytes.
fn tiling(launch: f64, compute: f64, dram: f64, (edge, tiles): (f64, f64)) -> Tiling {
    Tiling {
        time: launch + compute + dram,
        compute,
        l2: 0.0,
        dram,
        latency: launch,
        reduction: 0.0,
        bm: edge,
        bn: edge,
        split: 1.0,
        part: 0.0,
        tiles,
        waves: 1.0,
        miss: 1.0,
        by_tile: [1.0; 12],
    }
}

/// Useful FLOPs per FLOP that FFT tiles do: the most that an algorithm saves on such a filter.
pub fn fft_gain(r: u64, s: u64) -> f64 {
    let edge = |taps: u64| 33u64.saturating_sub(taps).max(1) as f64;
    // Complex products take three multiplications instead of four at best.
    2.0 * (r * s) as f64 * edge(r) * edge(s) / (6.0 * 32.0 * 17.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::Conv;
    use preflop_units::Dtype;

    fn machine() -> Machine {
        Machine::convolution(&catalog::find("titan-xp").unwrap(), Dtype::Fp32)
    }

    #[test]
    fn large_filters_gain_by_fft() {
        let task = Task::new(&Conv::square(16, 64, 56, 64, 7, 1, 3), Pass::Fwd, Dtype::Fp32);
        let direct = 2.0 * 16.0 * 64.0 * 64.0 * 49.0 * 56.0 * 56.0 / machine().peak;
        assert!(fft(&task, &START, &machine()).unwrap().time < direct);
        let small = Task::new(&Conv::square(16, 64, 56, 64, 3, 1, 1), Pass::Fwd, Dtype::Fp32);
        let strided = Task::new(&Conv::square(16, 64, 56, 64, 7, 2, 3), Pass::Fwd, Dtype::Fp32);
        assert!(fft(&small, &START, &machine()).is_none() && fft(&strided, &START, &machine()).is_none());
    }

    #[test]
    fn columns_are_for_data_gradients() {
        let conv = Conv::square(16, 3, 224, 64, 7, 2, 3);
        let on = |pass| columns(&Task::new(&conv, pass, Dtype::Fp32), &START, &machine());
        assert!(on(Pass::Dgrad).is_some() && on(Pass::Fwd).is_none() && on(Pass::Wgrad).is_none());
    }
}
