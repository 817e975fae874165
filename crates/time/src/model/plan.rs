//! What a call launches on a GPU, as a profiler would list it, with the call's time shared out among its kernels.

use super::{KernelForm, TimeModel};
use crate::operator::OpPrediction;
use preflop_gpu::Gpu;
use preflop_kernels::conv::Task;
use preflop_kernels::launch::{Launch, Part, Pipe};
use preflop_ops::{Op, OpCall, Pass};

/// Share of a call's time that each kernel beside the main one is given. A guess: no measurement tells the kernels of one call apart here, and
/// only their sum is the call's.
const HELPER: f64 = 0.05;

impl TimeModel {
    /// The launches of a call whose prediction is known. Their number is the prediction's, their times add up to its time.
    pub fn launches(&self, call: &OpCall, one: &OpPrediction, gpu: &Gpu) -> Vec<Launch> {
        let form = self.kernel_form(call, gpu);
        let all = one.launches.round().max(1.0) as u32;
        let beside = beside(call, &form, all);
        let helpers: u32 = beside.iter().map(|(_, count)| *count).sum();
        let main = all.saturating_sub(helpers).max(1);
        // Helpers together never take more than a third.
        let shares: Vec<f64> = beside.iter().map(|(_, count)| HELPER * f64::from(*count)).collect();
        let scale = (1.0 / 3.0 / shares.iter().sum::<f64>().max(1e-12)).min(1.0);
        let taken: f64 = shares.iter().map(|s| s * scale).sum();
        let pipe = if matches!(call.op, Op::Gemm(_) | Op::Conv(_) | Op::Attention(_) | Op::Rnn(_))
            && call.dtype.on_tensor_cores()
        {
            Pipe::Tensor
        } else {
            Pipe::Plain
        };
        let base = Launch {
            // Kernels that only pass over their data have no algorithm to be named after.
            family: if matches!(call.op, Op::Gemm(_) | Op::Conv(_) | Op::Attention(_) | Op::Rnn(_)) {
                form.algorithm
            } else {
                call.family().name()
            },
            part: Part::Main,
            tile: form.tile,
            ctas: form.ctas,
            count: main,
            flops: one.flops.0,
            pipe,
            bytes: [one.l1.0, one.l2.0, one.dram.0],
            streams: 1,
            seconds: one.time.0 * (1.0 - taken),
        };
        let mut out = Vec::with_capacity(1 + beside.len());
        for ((part, count), share) in beside.into_iter().zip(shares) {
            let seconds = one.time.0 * share * scale;
            let helper = Launch {
                family: part.name(),
                part,
                tile: None,
                ctas: None,
                count,
                flops: 0.0,
                pipe: Pipe::Plain,
                bytes: [0.0; 3],
                seconds,
                ..base
            };
            // What is cleared or converted comes first, what is added up last.
            if part == Part::Reduce {
                out.push(helper);
            } else {
                out.insert(0, helper);
            }
        }
        let at = out.iter().position(|l| l.part == Part::Reduce).unwrap_or(out.len());
        out.insert(at, base);
        out
    }
}

/// Kernels beside the main ones of a call that launches `all`.
fn beside(call: &OpCall, form: &KernelForm, all: u32) -> Vec<(Part, u32)> {
    let mut left = all.saturating_sub(1);
    let mut out = Vec::new();
    let mut take = |part, wanted: u32| {
        let count = wanted.min(left);
        left -= count;
        if count > 0 {
            out.push((part, count));
        }
    };
    match &call.op {
        Op::Gemm(_) => take(Part::Reduce, u32::from(form.split.is_some_and(|s| s > 1.0))),
        Op::Conv(c) => {
            let task = Task::new(c, call.pass, call.dtype);
            if c.groups == 1 {
                take(Part::Reduce, u32::from(call.pass == Pass::Wgrad));
                if call.dtype.on_tensor_cores() {
                    take(Part::Convert, task.conversion().1 as u32);
                }
                take(Part::Clear, u32::MAX);
            }
        }
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::row;

    #[test]
    fn launches_are_whole_and_add_up_to_the_call() {
        let (model, gpu) = (TimeModel::embedded(), catalog::find("h200").unwrap());
        for (op, phase, dtype, shape, main) in [
            ("mm", "fwd", "bf16", r#"{"m":64,"n":64,"k":65536}"#, "matrix product"),
            ("conv2d", "wgrad", "bf16", r#"{"b":64,"ci":64,"hw":56,"co":64,"k":3,"pad":1}"#, "xmma"),
            ("layernorm", "bwd", "fp32", r#"{"rows":4096,"cols":1024}"#, "rowwise"),
            ("lstm", "fwd", "fp32", r#"{"b":64,"s":50,"input":1024,"hidden":1024,"layers":4}"#, "chain"),
        ] {
            let call = row::parse(op, phase, dtype, shape).unwrap();
            let one = model.predict(&call, &gpu);
            let launches = model.launches(&call, &one, &gpu);
            let count: u32 = launches.iter().map(|l| l.count).sum();
            assert_eq!(f64::from(count), one.launches, "{op}: whole launches");
            let seconds: f64 = launches.iter().map(|l| l.seconds).sum();
            assert!((seconds / one.time.0 - 1.0).abs() < 1e-12, "{op}");
            assert!(launches.iter().any(|l| l.family.starts_with(main)), "{op}: {launches:?}");
        }
        // A long sum of few results is split, and its parts are added up last.
        let call = row::parse("mm", "fwd", "bf16", r#"{"m":64,"n":64,"k":65536}"#).unwrap();
        let launches = model.launches(&call, &model.predict(&call, &gpu), &gpu);
        assert_eq!(launches.last().map(|l| l.part), Some(Part::Reduce));
    }
}
