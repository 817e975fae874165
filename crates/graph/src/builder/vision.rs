//! Calls that only vision models make.

use super::super::graph::GraphOp;
use super::{Builder, Built, Param, Tensor};

impl Builder {
    /// torchvision's `StochasticDepth(p, "row")` with p above 0: each sample times a drawn 0 or 1 / (1 - p).
    pub fn stochastic_depth(&mut self, x: Tensor) -> Built {
        let shape = self.shape(x);
        self.count_module();
        self.call("stochastic_depth", GraphOp::Noise { per_sample: true }, &[x], &[], &shape)
    }

    /// `nn.Dropout(inplace=True)`: not the fused kernel, but drawn noise and a product.
    pub fn dropout_(&mut self, x: Tensor) -> Built {
        let shape = self.shape(x);
        self.count_module();
        self.call("dropout", GraphOp::Noise { per_sample: false }, &[x], &[], &shape)
    }

    /// `LayerNorm2d` of torchvision: over the channels of `[batch, channels, height, width]`, by permuted views.
    pub fn layer_norm_2d(&mut self, name: &str, x: Tensor) -> Built {
        let x = self.permute(x, &[0, 2, 3, 1])?;
        let x = self.layer_norm(name, x)?;
        self.permute(x, &[0, 3, 1, 2])
    }

    /// `table[indices]` of a parameter: a look-up without a module.
    pub fn gather(&mut self, name: &str, indices: Tensor, table: Param) -> Built {
        let mut shape = self.shape(indices).to_vec();
        let Some(&dim) = self.graph.parameters[table.0 as usize].shape.get(1) else {
            return self.error(name, "its table is no matrix");
        };
        shape.push(dim);
        self.call(name, GraphOp::Embedding, &[indices], &[table], &shape)
    }

    /// `x[.., start::step, ..]`: every `step`-th element of dimension `dim`, as a view.
    pub fn strided_slice(&mut self, x: Tensor, dim: usize, step: u64) -> Built {
        let shape = self.shape(x);
        if dim >= shape.len() || step == 0 || !shape[dim].is_multiple_of(step) {
            return self.error("slice", format!("{shape} has no steps of {step} in dimension {dim}"));
        }
        // A view that drops part of a finer dimension: the stride grows, no element moves.
        let mut fine = shape[..dim].to_vec();
        fine.extend([shape[dim] / step, step]);
        fine.extend(&shape[dim + 1..]);
        let x = self.view(x, &fine)?;
        self.select(x, dim + 1)
    }
}
