//! The kernel behind a call, as the closed forms see it: algorithm, tile, waves and the terms of its time.

use super::TimeModel;
use preflop_gpu::Gpu;
use preflop_kernels::conv::Task;
use preflop_kernels::tile::Tiling;
use preflop_kernels::{Machine, attention, kernels_of, linear, rnn, rows, tensor_conv};
use preflop_ops::{Conv, Op, OpCall};
use serde::Serialize;

/// How the main kernel of a call is thought to run. Times are those of the closed form, before what was learned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, utoipa::ToSchema)]
pub struct KernelForm {
    /// Algorithm or kernel family.
    pub algorithm: &'static str,
    /// Rows and columns of the CTA tile, where the kernel has one.
    pub tile: Option<[u32; 2]>,
    /// Parts into which the sum over K (or over the keys) is split.
    pub split: Option<f64>,
    /// CTAs of the grid.
    pub ctas: Option<f64>,
    /// CTAs that one SM runs in turn.
    pub waves: Option<f64>,
    /// Arithmetic.
    pub compute_us: Option<f64>,
    /// Operand tiles from the L2.
    pub l2_us: Option<f64>,
    /// Bytes that come from or go to DRAM.
    pub dram_us: Option<f64>,
    /// Latency along the sum.
    pub latency_us: Option<f64>,
}

impl KernelForm {
    fn streaming(algorithm: &'static str) -> Self {
        Self {
            algorithm,
            tile: None,
            split: None,
            ctas: None,
            waves: None,
            compute_us: None,
            l2_us: None,
            dram_us: None,
            latency_us: None,
        }
    }

    fn tiled(algorithm: &'static str, t: &Tiling) -> Self {
        Self {
            tile: Some([t.bm as u32, t.bn as u32]),
            split: Some(t.split),
            ctas: Some(t.tiles),
            waves: Some(t.waves),
            compute_us: Some(t.compute * 1e6),
            l2_us: Some(t.l2 * 1e6),
            dram_us: Some(t.dram * 1e6),
            latency_us: Some(t.latency * 1e6),
            ..Self::streaming(algorithm)
        }
    }
}

impl TimeModel {
    /// How the main kernel of a call runs on a GPU.
    pub fn kernel_form(&self, call: &OpCall, gpu: &Gpu) -> KernelForm {
        match &call.op {
            Op::Gemm(g) => {
                // PyTorch hands a batch of one to the plain product, whose kernels the library chooses otherwise.
                let name = if g.batch > 1 { "batched matrix product" } else { "matrix product" };
                KernelForm::tiled(name, &self.judge(g, call.dtype, gpu).form)
            }
            Op::Conv(c) => self.conv_form(c, call, gpu),
            Op::Attention(a) => {
                let class = attention::class(a, call.pass, call.dtype);
                let (constants, _) = self.attention_constants(class, gpu);
                let t = attention::form(a, call.pass, call.dtype, constants, gpu, gpu);
                KernelForm {
                    split: Some(t.split),
                    waves: Some(t.waves),
                    compute_us: Some(t.compute * 1e6),
                    dram_us: Some(t.memory * 1e6),
                    latency_us: Some(t.latency * 1e6),
                    ..KernelForm::streaming("fused attention")
                }
            }
            Op::Rnn(_) => KernelForm::streaming("chain of time steps"),
            Op::Unmodelled { .. } => KernelForm::streaming("not modelled: one pass over its bytes"),
            _ => KernelForm::streaming(match rows::in_registers(call) {
                Some(true) => "rows in registers",
                Some(false) => "rows by blocks",
                None => linear::look_up(call).unwrap_or("one pass over the data"),
            }),
        }
    }

    /// Do two calls run kernels of one family?
    pub fn same_kernel(&self, one: &OpCall, other: &OpCall, gpu: &Gpu) -> bool {
        let kernel = |call: &OpCall| {
            if let Op::Rnn(r) = &call.op {
                return (rnn::algorithm_name(r, call.pass, call.dtype, gpu), None, None);
            }
            let form = self.kernel_form(call, gpu);
            (form.algorithm, form.tile, rows::Kernel::of(call).map(|(kernel, _)| kernel))
        };
        kernel(one) == kernel(other)
    }

    /// The family that the chooser thinks most likely.
    fn conv_form(&self, c: &Conv, call: &OpCall, gpu: &Gpu) -> KernelForm {
        let Some(choice) = self.choice(call, gpu) else {
            let task = Task::new(c, call.pass, call.dtype);
            if tensor_conv::applies(&task, kernels_of(gpu), gpu) {
                let t = tensor_conv::form(&task, &self.boards.tensor, gpu);
                return KernelForm {
                    tile: Some([t.tile.0 as u32, t.tile.1 as u32]),
                    split: Some(t.split),
                    ctas: Some(t.ctas),
                    compute_us: Some(t.compute * 1e6),
                    dram_us: Some(t.memory * 1e6),
                    ..KernelForm::streaming("implicit product")
                };
            }
            let machine = Machine::convolution(gpu, task.dtype);
            let (algorithm, tiling, _) = self.plain_algorithm(&task, &machine);
            return KernelForm::tiled(algorithm.name(), &tiling);
        };
        let product = choice.product().map(|g| self.product_time(&g, call.dtype, gpu));
        match self.candidates(&choice, product, &choice.here(gpu)).top() {
            Some((guess, _, Some(form))) => KernelForm::tiled(guess.variant.family.name(), &form.tiling),
            Some((guess, _, None)) => KernelForm::streaming(guess.variant.family.name()),
            None => KernelForm::streaming("convolution"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::row;

    #[test]
    fn a_product_has_a_grid_of_whole_tiles() {
        let model = TimeModel::embedded();
        let gpu = catalog::find("h200").unwrap();
        let call = row::parse("mm", "fwd", "bf16", r#"{"m":8192,"n":4096,"k":1024}"#).unwrap();
        let form = model.kernel_form(&call, &gpu);
        let [m, n] = form.tile.unwrap().map(f64::from);
        let ctas = (8192.0 / m).ceil() * (4096.0 / n).ceil() * form.split.unwrap();
        assert_eq!(form.ctas.unwrap(), ctas);
        assert!(form.waves.unwrap() >= ctas / 132.0);
    }

    #[test]
    fn every_operator_has_a_form() {
        let model = TimeModel::embedded();
        let gpu = catalog::find("a100").unwrap();
        for (op, phase, dtype, shape, tiled) in [
            ("conv2d", "dgrad", "fp32", r#"{"b":64,"ci":64,"hw":56,"co":64,"k":3,"pad":1}"#, true),
            ("sdpa", "fwd", "bf16", r#"{"b":8,"h":12,"kv":12,"s":1024,"d":64,"causal":true}"#, false),
            ("softmax", "fwd", "fp32", r#"{"rows":98304,"cols":512}"#, false),
            ("lstm", "fwd", "fp32", r#"{"b":64,"s":50,"input":1024,"hidden":1024,"layers":4}"#, false),
        ] {
            let form = model.kernel_form(&row::parse(op, phase, dtype, shape).unwrap(), &gpu);
            assert_eq!(form.tile.is_some(), tiled, "{op}: {form:?}");
        }
    }
}
