//! The calls that only move or make tensors.

use super::super::builder::Built;
use super::super::dims::Dims;
use super::super::graph::GraphOp;
use super::{Import, ProgramCall, Role, wrap};

impl Import<'_> {
    pub(super) fn shaping(&mut self, call: &ProgramCall, name: &str) -> Built<()> {
        match name {
            "view" | "reshape" | "flatten" | "unflatten" | "unsqueeze" | "squeeze" | "_unsafe_view"
            | "view_as" | "reshape_as" => self.one(call, GraphOp::View),
            "permute" | "transpose" | "t" | "swapaxes" => self.permute(call, name),
            "expand" | "expand_as" | "broadcast_to" => self.expand(call),
            "contiguous" | "clone" => self.one(call, GraphOp::Contiguous),
            "to"
            | "_to_copy"
            | "type_as"
            | "alias"
            | "detach"
            | "lift_fresh_copy"
            | "identity"
            | "float"
            | "_assert_tensor_metadata" => match call.value(0) {
                Some(x) => self.alias(call, x),
                None => Ok(()),
            },
            "slice" | "narrow" => self.slice(call),
            "select" => {
                let Some(x) = call.value(0) else { return self.unmodelled(call) };
                let dim = call.dimension(1, self.shape(x).len(), 0);
                self.one(call, GraphOp::Slice { dim, squeeze: true })
            }
            "split" | "chunk" | "split_with_sizes" | "tensor_split" => self.split(call),
            "unbind" => self.unbind(call),
            "cat" | "concat" => self.cat(call),
            "stack" => self.stack(call),
            "roll" | "flip" | "pixel_shuffle" | "channel_shuffle" => self.one(call, GraphOp::Reorder),
            "arange" | "zeros" | "ones" | "full" | "new_ones" | "new_zeros" | "new_full" | "zeros_like"
            | "ones_like" | "full_like" | "rand" | "randn" | "scalar_tensor" | "create" => {
                self.put(call, GraphOp::Create, &[], &[])
            }
            _ => self.unmodelled(call),
        }
    }

    fn permute(&mut self, call: &ProgramCall, name: &str) -> Built<()> {
        let Some(x) = call.value(0) else { return self.unmodelled(call) };
        let rank = self.shape(x).len();
        let mut order: Vec<usize> = (0..rank).collect();
        match name {
            "permute" => order = call.wholes(1).iter().map(|&d| wrap(d, rank)).collect(),
            "t" => order.reverse(),
            _ => order.swap(call.dimension(1, rank, 0), call.dimension(2, rank, 1)),
        }
        if rank == 2 && order == [1, 0] && self.role(x) == Role::Parameter {
            // A weight about to be multiplied with: the product reads it as it lies.
            if let Some(&out) = call.outputs.first() {
                self.transposed.insert(out, x);
                let used_otherwise = self.program.calls.iter().any(|c| {
                    !matches!(c.op.as_str(), "addmm" | "mm" | "matmul")
                        && (0..c.args.len()).any(|i| c.values(i).contains(&out))
                });
                if !used_otherwise {
                    return Ok(());
                }
            }
        }
        self.one(call, GraphOp::Permute { order })
    }

    fn expand(&mut self, call: &ProgramCall) -> Built<()> {
        let (Some(x), Some(&out)) = (call.value(0), call.outputs.first()) else {
            return self.unmodelled(call);
        };
        let mut t = self.tensor(x)?;
        let (from, to) = (self.b.shape(t), self.shape(out));
        if from.len() < to.len() {
            let mut padded = vec![1; to.len() - from.len()];
            padded.extend_from_slice(&from);
            t = self.b.view(t, &padded)?;
        }
        if self.b.shape(t) == Dims::new(&to) {
            self.tensors[out] = Some(t);
            return Ok(());
        }
        self.put(call, GraphOp::Expand, &[t], &[])
    }

    fn slice(&mut self, call: &ProgramCall) -> Built<()> {
        let (Some(x), Some(&out)) = (call.value(0), call.outputs.first()) else {
            return self.unmodelled(call);
        };
        let (from, to) = (self.shape(x), self.shape(out));
        if from == to {
            return self.alias(call, x);
        }
        let dim = call.dimension(1, from.len(), 0);
        self.one(call, GraphOp::Slice { dim, squeeze: false })
    }

    fn split(&mut self, call: &ProgramCall) -> Built<()> {
        let Some(x) = call.value(0) else { return self.unmodelled(call) };
        let rank = self.shape(x).len();
        let dim = call.dimension(2, rank, 0);
        let t = self.tensor(x)?;
        let sizes: Vec<u64> =
            call.outputs.iter().map(|&o| self.shape(o).get(dim).copied().unwrap_or(1)).collect();
        for (&out, piece) in call.outputs.iter().zip(self.b.split(t, &sizes, dim)?) {
            self.tensors[out] = Some(piece);
        }
        Ok(())
    }

    fn unbind(&mut self, call: &ProgramCall) -> Built<()> {
        let Some(x) = call.value(0) else { return self.unmodelled(call) };
        let dim = call.dimension(1, self.shape(x).len(), 0);
        let t = self.tensor(x)?;
        for &out in &call.outputs {
            let piece = self.b.select(t, dim)?;
            self.tensors[out] = Some(piece);
        }
        Ok(())
    }

    fn cat(&mut self, call: &ProgramCall) -> Built<()> {
        let mut inputs = Vec::new();
        for v in call.values(0) {
            inputs.push(self.tensor(v)?);
        }
        let rank = call.outputs.first().map_or(1, |&o| self.shape(o).len());
        self.put(call, GraphOp::Cat { dim: call.dimension(1, rank, 0) }, &inputs, &[])
    }

    fn stack(&mut self, call: &ProgramCall) -> Built<()> {
        let Some(&out) = call.outputs.first() else { return Ok(()) };
        let shape = self.shape(out);
        let dim = call.dimension(1, shape.len(), 0);
        let one = Dims::new(&shape).with(dim, 1);
        let mut inputs = Vec::new();
        for v in call.values(0) {
            let t = self.tensor(v)?;
            inputs.push(self.b.view(t, &one)?);
        }
        self.put(call, GraphOp::Cat { dim }, &inputs, &[])
    }
}
