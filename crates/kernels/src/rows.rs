//! Softmax and layer norm of fp32 rows outside Hopper, forward: passes over the data, and what a block spends on a row.
//!
//! ```text
//! warp   softmax up to 1024 columns: a warp keeps its row in registers
//!        t = 2n + rows/slots * (step*ceil(cols/32) + row)
//! block  longer softmax: a block reads its row for the maximum, the sum and the result, four elements a thread, then one
//!        t = 4-norm of (2 + 2*miss)n and rows/slots * (3*step*(full + tail) + row)
//! norm   layer norm: a block of 128 threads reads its row for the moments and the result
//!        t = (2 + miss)n + rows/slots * (2*step*ceil(cols/512) + row)
//! ```
//!
//! Where n is the matrix at DRAM speed, `slots` the blocks or warps that the GPU runs at a time, `full` and `tail` the steps of
//! four and of one element, `miss` the share of a row that has left the L2 when it is read again. `step` and `row` are
//! clocks, fitted on published rows of PyTorch 2.1 (`data/fitted`).

use preflop_gpu::{Gpu, Vendor};
use preflop_ops::{Op, OpCall, Pass, Rowwise, RowwiseKind};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// Clocks of a step and of a row.
pub type Figures = [f64; 2];

/// A kernel that works on rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// Softmax of a row in a warp's registers.
    Warp,
    /// Softmax of a row by a block.
    Block,
    /// Layer norm of a row by a block.
    Norm,
}

/// Columns up to which softmax keeps a row in registers.
const IN_REGISTERS: u64 = 1024;
/// Rows in flight over the L2: below the first they all stay there, above the second none. Published layer norms are half way
/// at 0.45 (T4), 0.52 (A100), 0.65 (V100) and 0.77 (P4), long softmaxes at 0.48 (A100), 0.58 (T4) and 0.75 (P4).
const STAYS: [f64; 2] = [0.4, 0.9];
/// Bytes of an element: the forms speak for fp32 alone.
const ELEMENT: f64 = 4.0;

impl Kernel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Warp, Self::Block, Self::Norm];

    /// Key of its constants.
    pub fn key(self) -> &'static str {
        match self {
            Self::Warp => "rows/warp",
            Self::Block => "rows/block",
            Self::Norm => "rows/norm",
        }
    }

    /// Where fits start.
    pub fn start(self) -> Figures {
        match self {
            Self::Warp => [40.0, 900.0],
            Self::Block => [700.0, 7500.0],
            Self::Norm => [400.0, 2500.0],
        }
    }

    /// The kernel of a call, where these forms speak for it.
    pub fn of(call: &OpCall) -> Option<(Self, Rowwise)> {
        let Op::Rowwise(o) = call.op else { return None };
        if call.dtype != Dtype::Fp32 || call.pass != Pass::Fwd {
            return None;
        }
        let kernel = match o.kind {
            RowwiseKind::Softmax | RowwiseKind::LogSoftmax if o.cols <= IN_REGISTERS => Self::Warp,
            RowwiseKind::Softmax | RowwiseKind::LogSoftmax => Self::Block,
            RowwiseKind::LayerNorm => Self::Norm,
            _ => return None,
        };
        Some((kernel, o))
    }

    /// Threads that work on one row.
    fn threads(self, cols: u64, gpu: &Gpu) -> u64 {
        match self {
            Self::Warp => u64::from(gpu.warp_size),
            // As the published grids show.
            Self::Block if gpu.vendor == Vendor::Amd => 1024,
            Self::Block if cols <= 2048 => 256,
            Self::Block => 512,
            Self::Norm => 128,
        }
    }

    /// Seconds on a GPU.
    pub fn time(self, op: &Rowwise, [step, row]: &Figures, gpu: &Gpu) -> f64 {
        let (rows, cols) = (op.rows as f64, op.cols as f64);
        let threads = self.threads(op.cols, gpu);
        let slots = f64::from(gpu.sm_count) * (u64::from(gpu.threads_per_sm) / threads).max(1) as f64;
        let clocks = match self {
            Self::Warp => step * op.cols.div_ceil(threads) as f64,
            Self::Block => {
                let full = op.cols / (4 * threads);
                let tail = (op.cols - full * 4 * threads).div_ceil(threads);
                3.0 * step * (full + tail) as f64
            }
            Self::Norm => 2.0 * step * op.cols.div_ceil(4 * threads) as f64,
        };
        let again = match self {
            Self::Warp => 0.0,
            Self::Block => 2.0,
            Self::Norm => 1.0,
        };
        let [stays, leaves] = STAYS;
        let at_once = |slots: f64| {
            let chain = (rows / slots).max(1.0) * (clocks + row) / gpu.boost_clock.0;
            let in_flight = slots.min(rows) * cols * ELEMENT / gpu.l2_size.0;
            let miss = ((in_flight / stays).natural_log() / (leaves / stays).natural_log()).clamp(0.0, 1.0);
            let passes = (2.0 + again * miss) * rows * cols * ELEMENT / gpu.dram_sustained.0;
            match self {
                Self::Block => (passes.powi(4) + chain.powi(4)).sqrt().sqrt(),
                Self::Warp | Self::Norm => passes + chain,
            }
        };
        // More rows at once may push each other out of the L2; never so many that it takes longer.
        let stay = stays * gpu.l2_size.0 / (cols * ELEMENT);
        let mut together = at_once(slots);
        if again > 0.0 && stay < slots {
            let most = (leaves / stays * stay).min(slots);
            together =
                together.min(least_between(stay.max(1.0).natural_log(), most.max(1.0).natural_log(), |u| {
                    at_once(u.exponential())
                }));
        }
        gpu.kernel_floor.0 + together
    }
}

/// Columns up to which PyTorch's softmax keeps a row in registers today, forward and backward. The published fp32 rows above ran
/// PyTorch 2.1, which ended forward where backward ends. Measured on an H200: 200 rows of 2,048 columns take 8.0 us in bf16 forward, of 3,072 columns 2.5 us;
/// backward 1,024 take longer than 2,048.
const IN_REGISTERS_TODAY: [u64; 2] = [2048, 1024];

/// Does a softmax keep its rows in registers? Nothing for other operators.
pub fn in_registers(call: &OpCall) -> Option<bool> {
    let Op::Rowwise(o) = call.op else { return None };
    let [forward, backward] = IN_REGISTERS_TODAY;
    let most = if call.pass == Pass::Fwd { forward } else { backward };
    matches!(o.kind, RowwiseKind::Softmax | RowwiseKind::LogSoftmax).then_some(o.cols <= most)
}

/// The least value of a convex function between two places, by thirds.
fn least_between(mut from: f64, mut to: f64, f: impl Fn(f64) -> f64) -> f64 {
    // (2/3)^60 of the way is below rounding.
    for _ in 0..60 {
        let third = (to - from) / 3.0;
        if f(from + third) < f(to - third) {
            to -= third;
        } else {
            from += third;
        }
    }
    f(f64::midpoint(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::row;

    fn seconds(op: &str, rows: u64, cols: u64, gpu: &str) -> f64 {
        let shape = format!(r#"{{"rows":{rows},"cols":{cols}}}"#);
        let call = row::parse(op, "fwd", "fp32", &shape).unwrap();
        let (kernel, o) = Kernel::of(&call).unwrap();
        kernel.time(&o, &kernel.start(), &catalog::find(gpu).unwrap())
    }

    #[test]
    fn rows_that_leave_the_l2_are_read_again() {
        // 108 SMs x 16 blocks of rows: 7 MB at 1024 columns, 113 MB at 16384, of 40 MB
        let per_byte = |cols: u64| seconds("layernorm", 1 << 20, cols, "a100-pcie-40gb") / cols as f64;
        assert!(per_byte(16384) > 1.25 * per_byte(1024));
        // 58 SMs x 12 blocks x 16 KiB stay in 48 MB
        let per_byte = |cols: u64| seconds("layernorm", 1 << 20, cols, "l4") / cols as f64;
        assert!(per_byte(4096) < 1.02 * per_byte(1024));
    }

    #[test]
    fn whole_steps_are_faster_than_tails() {
        let whole = seconds("softmax", 1 << 18, 2048, "a100-pcie-40gb");
        let tail = seconds("softmax", 1 << 18, 1984, "a100-pcie-40gb");
        assert!(whole < tail, "{whole} {tail}");
    }

    #[test]
    fn softmax_leaves_the_registers_at_other_lengths_forward_and_backward() {
        let softmax = |pass: &str, cols: u64| {
            let shape = format!(r#"{{"rows":64,"cols":{cols}}}"#);
            in_registers(&row::parse("softmax", pass, "bf16", &shape).unwrap())
        };
        assert_eq!([softmax("fwd", 2048), softmax("fwd", 2049)], [Some(true), Some(false)]);
        assert_eq!([softmax("bwd", 1024), softmax("bwd", 2048)], [Some(true), Some(false)]);
        let sum = row::parse("sum", "fwd", "bf16", r#"{"rows":64,"cols":64}"#).unwrap();
        assert_eq!(in_registers(&sum), None);
    }

    #[test]
    fn other_calls_have_no_such_kernel() {
        for (op, pass, dtype) in
            [("softmax", "bwd", "fp32"), ("softmax", "fwd", "bf16"), ("sum", "fwd", "fp32")]
        {
            let call = row::parse(op, pass, dtype, r#"{"rows":64,"cols":64}"#).unwrap();
            assert!(Kernel::of(&call).is_none());
        }
    }
}
