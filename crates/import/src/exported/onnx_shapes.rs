//! Shapes of ONNX results, with every dimension known; small whole-number tensors are computed.

use super::onnx::{Attributes, Facts, Reader};
use super::{axes, elements};
use preflop_core::model::graph::Content;

fn wrap(d: i64, rank: usize) -> usize {
    let r = i64::try_from(rank).unwrap_or(0);
    usize::try_from((if d < 0 { d.saturating_add(r) } else { d }).clamp(0, r.max(0))).unwrap_or(0)
}

/// The shape two operands broadcast to.
fn broadcast(a: &[u64], b: &[u64]) -> Vec<u64> {
    let rank = a.len().max(b.len());
    let at = |s: &[u64], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    (0..rank).map(|i| at(a, i).max(at(b, i))).collect()
}

/// Output length of a sliding window.
fn slid(size: u64, window: u64, stride: u64, pads: u64, dilation: u64, ceil: bool) -> u64 {
    let reach = dilation.max(1).saturating_mul(window.max(1) - 1).saturating_add(1);
    let room = size.saturating_add(pads).saturating_sub(reach);
    if ceil { room.div_ceil(stride.max(1)) + 1 } else { room / stride.max(1) + 1 }
}

impl Reader<'_> {
    fn shape(&self, input: Option<&Option<usize>>) -> Option<Vec<u64>> {
        Some(self.values[(*input?)?].shape.clone())
    }

    fn numbers(&self, input: Option<&Option<usize>>) -> Option<Vec<i64>> {
        self.constants.get(&(*input?)?).cloned()
    }

    /// Shapes of the results, or nothing where only the exporter knows.
    pub(super) fn infer(
        &self,
        op: &str,
        inputs: &[Option<usize>],
        a: &Attributes<'_>,
        results: usize,
    ) -> Facts {
        let whole = inputs.first().copied().flatten().is_some_and(|v| self.values[v].content == Content::Int);
        let numbers = self.compute(op, inputs, a);
        let first = match &numbers {
            Some(n) if n.len() != 1 || op == "Shape" => Some(vec![n.len() as u64]),
            _ => self.one(op, inputs, a),
        };
        let mut shapes = vec![first];
        if op == "Split" {
            shapes = self.split(inputs, a, results).into_iter().map(Some).collect();
        }
        Facts { shapes, whole: whole && op != "Gather" || numbers.is_some(), numbers }
    }

    fn one(&self, op: &str, inputs: &[Option<usize>], a: &Attributes<'_>) -> Option<Vec<u64>> {
        let x = self.shape(inputs.first());
        let second = || self.numbers(inputs.get(1));
        match op {
            "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Equal" | "Less" | "LessOrEqual" | "Greater"
            | "GreaterOrEqual" | "And" | "Or" | "Max" | "Min" | "Mod" => {
                Some(broadcast(&x?, &self.shape(inputs.get(1))?))
            }
            "Where" => {
                let y = broadcast(&self.shape(inputs.get(1))?, &self.shape(inputs.get(2))?);
                Some(broadcast(&x?, &y))
            }
            "MatMul" => {
                let (x, w) = (x?, self.shape(inputs.get(1))?);
                if x.len() < 2 || w.len() < 2 {
                    return None;
                }
                let mut out = broadcast(&x[..x.len() - 2], &w[..w.len() - 2]);
                out.extend([x[x.len() - 2], w[w.len() - 1]]);
                Some(out)
            }
            "Gemm" => {
                let (x, w) = (x?, self.shape(inputs.get(1))?);
                let (ta, tb) = (a.whole("transA") == Some(1), a.whole("transB") == Some(1));
                Some(vec![*x.get(usize::from(ta))?, *w.get(usize::from(!tb))?])
            }
            "Conv" | "MaxPool" | "AveragePool" => self.window(op, &x?, inputs, a),
            "ConvTranspose" => self.transposed(&x?, inputs, a),
            "GlobalAveragePool" => {
                let x = x?;
                Some(x.iter().enumerate().map(|(i, &s)| if i < 2 { s } else { 1 }).collect())
            }
            "Reshape" => Self::reshaped(&x?, &second()?),
            "Flatten" => {
                let x = x?;
                let axis = wrap(a.whole("axis").unwrap_or(1), x.len());
                Some(vec![elements(&x[..axis]), elements(&x[axis..])])
            }
            "Transpose" => {
                let x = x?;
                let order = a.wholes("perm").unwrap_or_else(|| axes(x.len()).rev().collect());
                order.iter().map(|&d| x.get(wrap(d, x.len())).copied()).collect()
            }
            "Unsqueeze" => {
                let (mut x, axes) = (x?, a.wholes("axes").or_else(second)?);
                let rank = x.len() + axes.len();
                let mut axes: Vec<usize> = axes.iter().map(|&d| wrap(d, rank)).collect();
                axes.sort_unstable();
                for axis in axes {
                    x.insert(axis.min(x.len()), 1);
                }
                Some(x)
            }
            "Squeeze" => {
                let (x, axes) = (x?, a.wholes("axes").or_else(second));
                let gone: Option<Vec<usize>> = axes.map(|v| v.iter().map(|&d| wrap(d, x.len())).collect());
                let stays = |i: usize, s: u64| gone.as_ref().map_or(s != 1, |g| !g.contains(&i));
                Some(x.iter().enumerate().filter(|&(i, &s)| stays(i, s)).map(|(_, &s)| s).collect())
            }
            "Concat" => {
                let mut out = x?;
                let axis = wrap(a.whole("axis").unwrap_or(0), out.len());
                for input in &inputs[1..] {
                    let next = self.shape(Some(input))?;
                    let size = out.get_mut(axis)?;
                    *size = size.saturating_add(*next.get(axis)?);
                }
                Some(out)
            }
            "Gather" => {
                let (x, indices) = (x?, self.shape(inputs.get(1))?);
                let axis = wrap(a.whole("axis").unwrap_or(0), x.len());
                let mut out = x.get(..axis)?.to_vec();
                out.extend(indices);
                out.extend(x.get(axis + 1..)?);
                Some(out)
            }
            "Expand" => {
                let to: Vec<u64> = second()?.iter().map(|&n| n.max(1) as u64).collect();
                Some(broadcast(&x?, &to))
            }
            "ConstantOfShape" => {
                Some(self.numbers(inputs.first())?.iter().map(|&n| n.max(0) as u64).collect())
            }
            "Slice" => self.sliced(&x?, inputs),
            "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" | "ReduceProd" => {
                let x = x?;
                let axes = a.wholes("axes").or_else(second).unwrap_or_else(|| axes(x.len()).collect());
                let axes: Vec<usize> = axes.iter().map(|&d| wrap(d, x.len())).collect();
                let keep = a.whole("keepdims") != Some(0);
                let sizes = x.iter().enumerate().filter(|(i, _)| keep || !axes.contains(i));
                Some(sizes.map(|(i, &s)| if axes.contains(&i) { 1 } else { s }).collect())
            }
            "Relu"
            | "LeakyRelu"
            | "Clip"
            | "Sigmoid"
            | "Tanh"
            | "Erf"
            | "Sqrt"
            | "Exp"
            | "Log"
            | "Neg"
            | "Abs"
            | "Softmax"
            | "LogSoftmax"
            | "BatchNormalization"
            | "LayerNormalization"
            | "Dropout"
            | "Identity"
            | "Cast"
            | "Gelu"
            | "HardSigmoid"
            | "HardSwish"
            | "Elu"
            | "Selu"
            | "Softplus"
            | "Mish"
            | "Sin"
            | "Cos"
            | "Reciprocal"
            | "Not"
            | "Floor"
            | "Ceil"
            | "Round"
            | "GroupNormalization"
            | "InstanceNormalization"
            | "SimplifiedLayerNormalization"
            | "RMSNormalization"
            | "PRelu"
            | "Trilu"
            | "CumSum"
            | "Attention" => x,
            _ => None,
        }
    }

    fn window(&self, op: &str, x: &[u64], inputs: &[Option<usize>], a: &Attributes<'_>) -> Option<Vec<u64>> {
        let w = if op == "Conv" { self.shape(inputs.get(1))? } else { Vec::new() };
        let space = x.len().checked_sub(2)?;
        let list = |name: &str, default: i64, n: usize| a.wholes(name).unwrap_or_else(|| vec![default; n]);
        let kernel: Vec<u64> = match a.wholes("kernel_shape") {
            Some(k) => k.iter().map(|&n| n.max(1) as u64).collect(),
            None => w.get(2..)?.to_vec(),
        };
        let (strides, pads, dilations) =
            (list("strides", 1, space), list("pads", 0, 2 * space), list("dilations", 1, space));
        let same = a.text("auto_pad").is_some_and(|p| p.starts_with("SAME"));
        let ceil = a.whole("ceil_mode") == Some(1);
        let mut out = vec![x[0], if op == "Conv" { *w.first()? } else { x[1] }];
        for i in 0..space {
            let stride = (*strides.get(i)?).max(1) as u64;
            if same {
                out.push(x[i + 2].div_ceil(stride));
                continue;
            }
            let padded = pads.get(i)?.saturating_add(*pads.get(i + space)?).max(0) as u64;
            out.push(slid(
                x[i + 2],
                *kernel.get(i)?,
                stride,
                padded,
                (*dilations.get(i)?).max(1) as u64,
                ceil,
            ));
        }
        Some(out)
    }

    fn transposed(&self, x: &[u64], inputs: &[Option<usize>], a: &Attributes<'_>) -> Option<Vec<u64>> {
        let w = self.shape(inputs.get(1))?;
        let space = x.len().checked_sub(2)?;
        let list = |name: &str, default: i64, n: usize| a.wholes(name).unwrap_or_else(|| vec![default; n]);
        let (strides, pads) = (list("strides", 1, space), list("pads", 0, 2 * space));
        let extra = list("output_padding", 0, space);
        let groups = a.whole("group").unwrap_or(1).max(1) as u64;
        let mut out = vec![x[0], w.get(1)?.saturating_mul(groups)];
        for i in 0..space {
            let stride = (*strides.get(i)?).max(1) as u64;
            let grown = (x[i + 2].max(1) - 1).saturating_mul(stride).saturating_add(*w.get(i + 2)?);
            let cut = pads.get(i)?.saturating_add(*pads.get(i + space)?).max(0) as u64;
            out.push(grown.saturating_add((*extra.get(i)?).max(0) as u64).checked_sub(cut)?);
        }
        Some(out)
    }

    fn reshaped(x: &[u64], wanted: &[i64]) -> Option<Vec<u64>> {
        let mut out: Vec<u64> = Vec::new();
        let mut open = None;
        for (i, &n) in wanted.iter().enumerate() {
            match n {
                -1 => {
                    open = Some(i);
                    out.push(1);
                }
                0 => out.push(*x.get(i)?),
                n => out.push(u64::try_from(n).ok()?),
            }
        }
        if let Some(i) = open {
            out[i] = elements(x).checked_div(elements(&out))?;
        }
        Some(out)
    }

    fn sliced(&self, x: &[u64], inputs: &[Option<usize>]) -> Option<Vec<u64>> {
        let (starts, ends) = (self.numbers(inputs.get(1))?, self.numbers(inputs.get(2))?);
        let axes = self.numbers(inputs.get(3)).unwrap_or_else(|| axes(starts.len()).collect());
        let steps = self.numbers(inputs.get(4)).unwrap_or_else(|| vec![1; starts.len()]);
        let mut out = x.to_vec();
        for (i, &axis) in axes.iter().enumerate() {
            let size = out.get_mut(wrap(axis, x.len()))?;
            let (from, to) = bounds(*starts.get(i)?, *ends.get(i)?, *size);
            let step = steps.get(i)?.unsigned_abs().max(1);
            *size = to.saturating_sub(from).div_ceil(step);
        }
        Some(out)
    }

    fn split(&self, inputs: &[Option<usize>], a: &Attributes<'_>, results: usize) -> Vec<Vec<u64>> {
        let Some(x) = self.shape(inputs.first()) else { return Vec::new() };
        let axis = wrap(a.whole("axis").unwrap_or(0), x.len());
        let sizes = a.wholes("split").or_else(|| self.numbers(inputs.get(1)));
        let Some(&whole) = x.get(axis) else { return Vec::new() };
        let sizes = sizes.unwrap_or_else(|| {
            let each = whole.div_ceil(results.max(1) as u64);
            (0..results as u64).map(|i| super::whole(whole.saturating_sub(i * each).min(each))).collect()
        });
        let piece = |&n: &i64| {
            let mut shape = x.clone();
            shape[axis] = n.max(0) as u64;
            shape
        };
        sizes.iter().map(piece).collect()
    }

    /// Shapes and arithmetic on them.
    fn compute(&self, op: &str, inputs: &[Option<usize>], a: &Attributes<'_>) -> Option<Vec<i64>> {
        let first = || self.numbers(inputs.first());
        match op {
            "Shape" => {
                let x = self.shape(inputs.first())?;
                let (from, to) =
                    bounds(a.whole("start").unwrap_or(0), a.whole("end").unwrap_or(i64::MAX), x.len() as u64);
                Some(x.get(from as usize..to as usize)?.iter().map(|&n| super::whole(n)).collect())
            }
            "Gather" => {
                let (data, at) = (first()?, self.numbers(inputs.get(1))?);
                at.iter().map(|&i| data.get(wrap(i, data.len())).copied()).collect()
            }
            "Concat" => {
                let parts: Option<Vec<Vec<i64>>> = inputs.iter().map(|i| self.numbers(Some(i))).collect();
                Some(parts?.concat())
            }
            "Slice" => {
                let data = first()?;
                let (from, to) = bounds(
                    *self.numbers(inputs.get(1))?.first()?,
                    *self.numbers(inputs.get(2))?.first()?,
                    data.len() as u64,
                );
                Some(data.get(from as usize..to as usize)?.to_vec())
            }
            "Unsqueeze" | "Squeeze" | "Cast" | "Identity" | "Reshape" => first(),
            "Add" | "Sub" | "Mul" | "Div" => {
                let (x, y) = (first()?, self.numbers(inputs.get(1))?);
                let n = x.len().max(y.len());
                let at = |v: &[i64], i: usize| v.get(if v.len() == 1 { 0 } else { i }).copied();
                (0..n)
                    .map(|i| {
                        let (x, y) = (at(&x, i)?, at(&y, i)?);
                        match op {
                            "Add" => x.checked_add(y),
                            "Sub" => x.checked_sub(y),
                            "Mul" => x.checked_mul(y),
                            _ => x.checked_div_euclid(y),
                        }
                    })
                    .collect()
            }
            _ => None,
        }
    }
}

/// Start and end of a slice within `size`, negative ones counted from the end.
fn bounds(start: i64, end: i64, size: u64) -> (u64, u64) {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let at = |n: i64| (if n < 0 { n.saturating_add(size) } else { n }).clamp(0, size) as u64;
    (at(start), at(end).max(at(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed_shapes() {
        assert_eq!(broadcast(&[8, 1, 5], &[3, 1]), vec![8, 3, 5]);
        // (224 + 6 - 7) / 2 + 1
        assert_eq!(slid(224, 7, 2, 6, 1, false), 112);
        assert_eq!(Reader::reshaped(&[2, 3, 4], &[0, -1]), Some(vec![2, 12]));
        assert_eq!(bounds(-2, i64::MAX, 5), (3, 5));
    }
}
