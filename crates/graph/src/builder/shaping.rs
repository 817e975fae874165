//! Views, copies and reductions.

use super::super::graph::{Content, GraphOp};
use super::{Builder, Built, Tensor};

impl Builder {
    fn content(&self, t: Tensor) -> Content {
        self.graph.tensors[t.0 as usize].content
    }

    fn same(&mut self, name: &str, op: GraphOp, x: Tensor, shape: &[u64]) -> Built {
        let content = self.content(x);
        self.push_new(name, op, &[x], &[], shape, content)
    }

    /// `reshape`: a view where the layout allows it, else a copy.
    pub fn view(&mut self, x: Tensor, shape: &[u64]) -> Built {
        let old = self.shape(x);
        let n = shape.iter().try_fold(1_u64, |n, &s| n.checked_mul(s));
        if n != Some(old.numel()) {
            return self.error("view", format!("{old} cannot be seen as {shape:?}"));
        }
        self.same("view", GraphOp::View, x, shape)
    }

    /// `flatten(start)`: all dimensions from `start` on become one.
    pub fn flatten(&mut self, x: Tensor, start: usize) -> Built {
        let old = self.shape(x);
        let start = start.min(old.len());
        let mut shape = old[..start].to_vec();
        shape.push(old[start..].iter().product());
        self.view(x, &shape)
    }

    /// `permute`.
    pub fn permute(&mut self, x: Tensor, order: &[usize]) -> Built {
        let old = self.shape(x);
        let mut seen = order.to_vec();
        seen.sort_unstable();
        if !seen.iter().copied().eq(0..old.len()) {
            return self.error("permute", format!("{order:?} is no order of the dimensions of {old}"));
        }
        let shape = old.permuted(order);
        self.same("permute", GraphOp::Permute { order: order.to_vec() }, x, &shape)
    }

    /// `transpose(a, b)`.
    pub fn transpose(&mut self, x: Tensor, a: usize, b: usize) -> Built {
        let rank = self.shape(x).len();
        if a >= rank || b >= rank {
            return self.error("transpose", format!("{} has no dimension {}", self.shape(x), a.max(b)));
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(a, b);
        self.permute(x, &order)
    }

    /// `expand` of dimensions of size 1.
    pub fn expand(&mut self, x: Tensor, shape: &[u64]) -> Built {
        let old = self.shape(x);
        let fits = old.len() == shape.len() && old.iter().zip(shape).all(|(&a, &b)| a == b || a == 1);
        if !fits {
            return self.error("expand", format!("{old} cannot be expanded to {shape:?}"));
        }
        self.same("expand", GraphOp::Expand, x, shape)
    }

    /// `contiguous()`.
    pub fn contiguous(&mut self, x: Tensor) -> Built {
        let shape = self.shape(x);
        self.same("contiguous", GraphOp::Contiguous, x, &shape)
    }

    /// A copy that moves elements about (`roll`, window partition by index): same elements, `shape` out.
    pub fn reorder(&mut self, name: &str, x: Tensor, shape: &[u64]) -> Built {
        self.same(name, GraphOp::Reorder, x, shape)
    }

    /// `torch.cat`.
    pub fn cat(&mut self, xs: &[Tensor], dim: usize) -> Built {
        let Some(&first) = xs.first() else {
            return self.error("cat", "nothing to concatenate");
        };
        let shape = self.shape(first);
        if dim >= shape.len() {
            return self.error("cat", format!("{shape} has no dimension {dim}"));
        }
        let mut total = 0_u64;
        for &x in xs {
            let s = self.shape(x);
            if s.len() != shape.len() || s.with(dim, 1) != shape.with(dim, 1) {
                return self.error("cat", format!("{s} does not fit to {shape} along dimension {dim}"));
            }
            total = total.saturating_add(s[dim]);
        }
        let content = self.content(first);
        self.push_new("cat", GraphOp::Cat { dim }, xs, &[], &shape.with(dim, total), content)
    }

    /// `split` into pieces of the given sizes, as views.
    pub fn split(&mut self, x: Tensor, sizes: &[u64], dim: usize) -> Built<Vec<Tensor>> {
        let shape = self.shape(x);
        if dim >= shape.len() || sizes.iter().sum::<u64>() != shape[dim] {
            return self
                .error("split", format!("{shape} does not split into {sizes:?} along dimension {dim}"));
        }
        let shapes: Vec<_> = sizes.iter().map(|&s| shape.with(dim, s)).collect();
        let shapes: Vec<&[u64]> = shapes.iter().map(|s| &**s).collect();
        let content = self.content(x);
        self.push_many("split", GraphOp::Split { dim }, &[x], &[], &shapes, content)
    }

    /// `chunk` into `n` equal pieces.
    pub fn chunk(&mut self, x: Tensor, n: u64, dim: usize) -> Built<Vec<Tensor>> {
        let size = self.dim(x, dim);
        if n == 0 || !size.is_multiple_of(n) {
            return self.error("chunk", format!("{} does not split into {n} equal pieces", self.shape(x)));
        }
        self.split(x, &vec![size / n; n as usize], dim)
    }

    /// `x[:, .., a:b, ..]`: `len` elements of dimension `dim`, as a view.
    pub fn slice(&mut self, x: Tensor, dim: usize, len: u64) -> Built {
        let shape = self.shape(x);
        if dim >= shape.len() || len > shape[dim] {
            return self.error("slice", format!("{shape} has no {len} elements in dimension {dim}"));
        }
        self.same("slice", GraphOp::Slice { dim, squeeze: false }, x, &shape.with(dim, len))
    }

    /// `x.select(dim, i)`: one index of dimension `dim`, as a view without it.
    pub fn select(&mut self, x: Tensor, dim: usize) -> Built {
        let shape = self.shape(x);
        if dim >= shape.len() {
            return self.error("select", format!("{shape} has no dimension {dim}"));
        }
        let mut out = shape.to_vec();
        out.remove(dim);
        self.same("select", GraphOp::Slice { dim, squeeze: true }, x, &out)
    }

    /// `mean` over dimensions (ascending).
    pub fn mean(&mut self, x: Tensor, dims: &[usize], keep: bool) -> Built {
        self.reduce("mean", x, dims, keep, GraphOp::Mean { dims: dims.to_vec() })
    }

    /// `sum` over dimensions (ascending).
    pub fn sum(&mut self, x: Tensor, dims: &[usize], keep: bool) -> Built {
        self.reduce("sum", x, dims, keep, GraphOp::Sum { dims: dims.to_vec() })
    }

    fn reduce(&mut self, name: &str, x: Tensor, dims: &[usize], keep: bool, op: GraphOp) -> Built {
        let shape = self.shape(x);
        if dims.iter().any(|&d| d >= shape.len()) {
            return self.error(name, format!("{shape} has not all of the dimensions {dims:?}"));
        }
        let out: Vec<u64> = shape
            .iter()
            .enumerate()
            .filter(|(i, _)| keep || !dims.contains(i))
            .map(|(i, &s)| if dims.contains(&i) { 1 } else { s })
            .collect();
        self.call(name, op, &[x], &[], &out)
    }

    /// `.float()`: to fp32 (nothing where it already is).
    pub fn to_float(&mut self, x: Tensor) -> Built {
        let shape = self.shape(x);
        self.call("float", GraphOp::ToFloat, &[x], &[], &shape)
    }

    /// `.to(like.dtype)`.
    pub fn to_like(&mut self, x: Tensor, like: Tensor) -> Built {
        let shape = self.shape(x);
        self.call("to", GraphOp::ToLike, &[x, like], &[], &shape)
    }

    /// An integer tensor made on the device (`arange`).
    pub fn arange(&mut self, n: u64) -> Built {
        self.push_new("arange", GraphOp::Create, &[], &[], &[n], Content::Int)
    }

    /// A float tensor made on the device (`zeros`, a mask).
    pub fn create(&mut self, name: &str, shape: &[u64]) -> Built {
        self.call(name, GraphOp::Create, &[], &[], shape)
    }

    /// The first of `xs` that is computed in the mode of the run; all have one shape.
    pub fn either(&mut self, xs: &[Tensor]) -> Built {
        let Some(&first) = xs.first() else {
            return self.error("either", "nothing to choose from");
        };
        let shape = self.shape(first);
        if let Some(&odd) = xs.iter().find(|&&x| self.shape(x) != shape) {
            return self.error("either", format!("{shape} and {} differ", self.shape(odd)));
        }
        self.call("either", GraphOp::Either, xs, &[], &shape)
    }
}
