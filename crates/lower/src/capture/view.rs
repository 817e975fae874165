//! One recorded operator, ready to be asked about its tensors and arguments.

use super::document::{Argument, Capture, Operator, dtype};
use preflop_units::dtype::Dtype;

/// A tensor of a recorded operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tensor<'a> {
    pub sizes: &'a [u64],
    pub strides: &'a [u64],
    pub dtype: Dtype,
    pub storage: Option<u32>,
}

impl Tensor<'_> {
    /// Elements; a tensor without dimensions has one.
    pub fn elements(&self) -> u64 {
        self.sizes.iter().product()
    }

    pub fn bytes(&self) -> u64 {
        (self.elements() as f64 * self.dtype.size()) as u64
    }

    /// Is it on the GPU?
    pub fn on_gpu(&self) -> bool {
        self.storage.is_some()
    }

    /// Row-major without gaps?
    pub fn is_contiguous(&self) -> bool {
        follows(self.sizes.iter().zip(self.strides).rev())
    }

    /// Feature maps with the channels innermost (and not also row-major)?
    pub fn is_channels_last(&self) -> bool {
        let (n, s) = (self.sizes, self.strides);
        self.sizes.len() == 4
            && !self.is_contiguous()
            && follows([1, 3, 2, 0].into_iter().map(|i| (&n[i], &s[i])))
    }

    /// Without gaps or overlap, whatever the order of dimensions?
    pub fn is_dense(&self) -> bool {
        let mut order: Vec<usize> = (0..self.sizes.len()).filter(|&i| self.sizes[i] != 1).collect();
        order.sort_by_key(|&i| self.strides[i]);
        follows(order.into_iter().map(|i| (&self.sizes[i], &self.strides[i])))
    }

    /// Do the elements of both lie in the same order, without gaps?
    pub fn lies_like(&self, other: &Self) -> bool {
        let places = self.sizes.iter().zip(self.strides).zip(other.strides);
        self.sizes == other.sizes
            && self.is_dense()
            && places.into_iter().all(|((n, a), b)| *n == 1 || a == b)
    }

    /// Is a matrix stored column by column?
    pub fn is_transposed(&self) -> bool {
        let n = self.strides.len();
        n >= 2 && self.strides[n - 2] == 1 && self.strides[n - 1] != 1
    }
}

/// Do the strides, innermost first, follow from the sizes?
fn follows<'a>(innermost_first: impl Iterator<Item = (&'a u64, &'a u64)>) -> bool {
    let mut expected = 1_u64;
    for (&size, &stride) in innermost_first {
        if size != 1 {
            if stride != expected {
                return false;
            }
            expected = expected.saturating_mul(size);
        }
    }
    true
}

/// A recorded operator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    capture: &'a Capture,
    pub op: &'a Operator,
}

impl<'a> Call<'a> {
    pub fn new(capture: &'a Capture, op: &'a Operator) -> Self {
        Self { capture, op }
    }

    /// The name without namespace, and whether the operator writes over its first argument.
    pub fn plain_name(&self) -> (&'a str, bool) {
        let name = self.op.name.strip_prefix("aten::").unwrap_or(&self.op.name);
        match name.strip_suffix('_') {
            Some(stem) if !stem.is_empty() => (stem, true),
            _ => (name, false),
        }
    }

    fn entry(&self, number: u32) -> Option<Tensor<'a>> {
        let t = self.capture.tensors.get(number as usize)?;
        Some(Tensor { sizes: &t.1, strides: &t.2, dtype: dtype(&t.0), storage: t.3 })
    }

    /// Argument `i` as a tensor.
    pub fn tensor(&self, i: usize) -> Option<Tensor<'a>> {
        match self.op.inputs.get(i)? {
            Argument::Tensor { t } => self.entry(*t),
            _ => None,
        }
    }

    /// Argument `i` as a list of tensors.
    pub fn list(&self, i: usize) -> Vec<Tensor<'a>> {
        match self.op.inputs.get(i) {
            Some(Argument::List(items)) => items
                .iter()
                .filter_map(|a| match a {
                    Argument::Tensor { t } => self.entry(*t),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Where the list of argument `i` has tensors: `x[:, i]` has none at 0.
    pub fn given(&self, i: usize) -> impl Iterator<Item = usize> + use<'a> {
        let items: &'a [Argument] = match self.op.inputs.get(i) {
            Some(Argument::List(items)) => items,
            _ => &[],
        };
        items.iter().enumerate().filter(|(_, a)| matches!(a, Argument::Tensor { .. })).map(|(at, _)| at)
    }

    /// All tensors among the arguments.
    pub fn inputs(&self) -> Vec<Tensor<'a>> {
        fn walk<'a>(call: &Call<'a>, a: &Argument, into: &mut Vec<Tensor<'a>>) {
            match a {
                Argument::Tensor { t } => into.extend(call.entry(*t)),
                Argument::List(items) => items.iter().for_each(|i| walk(call, i, into)),
                _ => {}
            }
        }
        let mut tensors = Vec::new();
        self.op.inputs.iter().for_each(|a| walk(self, a, &mut tensors));
        tensors
    }

    /// Result `i`.
    pub fn output(&self, i: usize) -> Option<Tensor<'a>> {
        self.entry(*self.op.outputs.get(i)?)
    }

    /// All results.
    pub fn outputs(&self) -> Vec<Tensor<'a>> {
        self.op.outputs.iter().filter_map(|&t| self.entry(t)).collect()
    }

    /// Argument `i` as whole numbers: a list, or one.
    pub fn wholes(&self, i: usize) -> Vec<i64> {
        match self.op.inputs.get(i) {
            Some(Argument::Whole(n)) => vec![*n],
            Some(Argument::List(items)) => items
                .iter()
                .filter_map(|a| match a {
                    Argument::Whole(n) => Some(*n),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Argument `i` as a height and a width.
    pub fn pair(&self, i: usize, default: u64) -> [u64; 2] {
        let sizes: Vec<u64> = self.wholes(i).iter().map(|&n| n.max(0) as u64).collect();
        match sizes[..] {
            [] => [default; 2],
            [one] => [one; 2],
            [.., h, w] => [h, w],
        }
    }

    /// Argument `i` as a number.
    pub fn number(&self, i: usize) -> Option<f64> {
        match self.op.inputs.get(i)? {
            Argument::Real(x) => Some(*x),
            Argument::Whole(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// Argument `i` as a flag.
    pub fn flag(&self, i: usize) -> bool {
        matches!(self.op.inputs.get(i), Some(Argument::Flag(true)))
    }

    /// Flags in a list, such as which gradients are wanted.
    pub fn flags(&self, i: usize) -> Vec<bool> {
        match self.op.inputs.get(i) {
            Some(Argument::List(items)) => items.iter().map(|a| matches!(a, Argument::Flag(true))).collect(),
            _ => Vec::new(),
        }
    }

    /// Argument `i` as a dimension of a tensor of `rank` dimensions.
    pub fn dimension(&self, i: usize, rank: usize, default: i64) -> usize {
        let d = self.wholes(i).first().copied().unwrap_or(default);
        wrapped(d, rank)
    }
}

/// A dimension counted from the end if negative, within the rank.
pub(super) fn wrapped(d: i64, rank: usize) -> usize {
    let r = i64::try_from(rank).unwrap_or(0);
    let d = if d < 0 { d.saturating_add(r) } else { d };
    usize::try_from(d.clamp(0, (r - 1).max(0))).unwrap_or(0)
}
