//! From the keys of a shape to operators, each with its own checks.

use super::keys::{Channels, GemmLayout, Pair, Scale, Shape};
use super::{MAX_DIM, MAX_ELEMENTS, MAX_STEP, RowError};
use crate::{
    Attention, Conv, Elementwise, ElementwiseKind, Gemm, GemmKind, Interpolate, Layout, Listed, ListedKind,
    Movement, MovementKind, Nms, Op, Optimizer, OptimizerKind, Phases, Resize, Rnn, RnnKind, RoiAlign,
    Rowwise, RowwiseKind, Spatial, SpatialKind,
};

/// A row's shape together with the name of its operator, for messages.
pub(super) struct Reader<'a> {
    pub(super) op: &'a str,
    pub(super) shape: Shape,
}

impl Reader<'_> {
    pub(super) fn size(&self, key: &'static str, value: Option<u64>) -> Result<u64, RowError> {
        match value {
            None => Err(RowError::Missing { op: self.op.to_string(), key }),
            Some(0) => Err(self.problem(format!("`{key}` is 0; sizes start at 1"))),
            Some(v) if v > MAX_DIM => Err(self.problem(format!("`{key}` is {v}; sizes end at 2^40"))),
            Some(v) => Ok(v),
        }
    }

    pub(super) fn size_or(
        &self,
        key: &'static str,
        value: Option<u64>,
        default: u64,
    ) -> Result<u64, RowError> {
        value.map_or(Ok(default), |v| self.size(key, Some(v)))
    }

    pub(super) fn step_or(
        &self,
        key: &'static str,
        value: Option<u64>,
        default: u64,
    ) -> Result<u64, RowError> {
        let v = self.size_or(key, value, default)?;
        if v > MAX_STEP {
            return Err(self.problem(format!("`{key}` is {v}; it ends at 2^20")));
        }
        Ok(v)
    }

    pub(super) fn pair(
        &self,
        key: &'static str,
        value: Option<Pair>,
        default: u64,
        min: u64,
    ) -> Result<[u64; 2], RowError> {
        let pair = value.map_or([default; 2], |p| p.0);
        for v in pair {
            if v < min || v > MAX_STEP {
                return Err(self.problem(format!("`{key}` is {v}; it must be from {min} to 2^20")));
            }
        }
        Ok(pair)
    }

    pub(super) fn channels(&self) -> Option<u64> {
        match &self.shape.c {
            Some(Channels::One(c)) => Some(*c),
            Some(Channels::Many(all)) => Some(all.iter().fold(0, |a: u64, b| a.saturating_add(*b))),
            None => None,
        }
    }

    pub(super) fn problem(&self, problem: String) -> RowError {
        RowError::Size { op: self.op.to_string(), problem }
    }

    pub(super) fn gemm(&self, kind: GemmKind) -> Result<Op, RowError> {
        let s = &self.shape;
        let batch = if kind == GemmKind::Bmm { self.size("b", s.b)? } else { 1 };
        let layout = match (kind, s.layout) {
            (GemmKind::Linear, None) | (_, Some(GemmLayout::Linear)) => Layout::Linear,
            (_, None | Some(GemmLayout::Nn | GemmLayout::Other)) => Layout::Nn,
            (_, Some(GemmLayout::Tn)) => Layout::Tn,
        };
        Ok(Op::Gemm(Gemm {
            kind,
            batch,
            m: self.size("m", s.m)?,
            n: self.size("n", s.n)?,
            k: self.size("k", s.k)?,
            layout,
            bias: s.bias.unwrap_or(false),
        }))
    }

    pub(super) fn conv(&self, transposed: bool) -> Result<Op, RowError> {
        let s = &self.shape;
        let conv = Conv {
            batch: self.size("b", s.b)?,
            ci: self.size("ci", s.ci)?,
            h: self.size("hw", s.h.or(s.hw))?,
            w: self.size("hw", s.w.or(s.hw))?,
            co: self.size("co", s.co)?,
            r: self.size("k", s.r.or(s.k))?,
            s: self.size("k", s.s.or(s.k))?,
            stride: self.pair("stride", s.stride, 1, 1)?,
            pad: self.pair("pad", s.pad, 0, 0)?,
            dilation: self.pair("dilation", s.dilation, 1, 1)?,
            groups: self.size_or("groups", s.groups, 1)?,
            channels_last: s.channels_last.unwrap_or(false),
            transposed,
        };
        if !conv.ci.is_multiple_of(conv.groups) || !conv.co.is_multiple_of(conv.groups) {
            let problem =
                format!("{} groups divide neither {} nor {} channels evenly", conv.groups, conv.ci, conv.co);
            return Err(self.problem(problem));
        }
        if conv.oh() == 0 || conv.ow() == 0 {
            let problem = format!(
                "a {}x{} filter (dilation {:?}) does not fit a {}x{} map padded by {:?}",
                conv.r, conv.s, conv.dilation, conv.h, conv.w, conv.pad
            );
            return Err(self.problem(problem));
        }
        for (what, n) in [("input", conv.input()), ("output", conv.output()), ("filter", conv.weight())] {
            if n > MAX_ELEMENTS {
                return Err(self.problem(format!("the {what} has {n:.1e} elements; the limit is 1e15")));
            }
        }
        Ok(Op::Conv(conv))
    }

    pub(super) fn attention(&self) -> Result<Op, RowError> {
        let s = &self.shape;
        let heads = self.size("h", s.h)?;
        let kv_heads = self.size_or("kv", s.kv, heads)?;
        let q_len = self.size("s", s.s)?;
        if heads % kv_heads != 0 {
            return Err(self.problem(format!("{kv_heads} kv heads do not divide {heads} heads")));
        }
        Ok(Op::Attention(Attention {
            batch: self.size("b", s.b)?,
            heads,
            kv_heads,
            q_len,
            kv_len: self.size_or("kv_len", s.kv_len, q_len)?,
            head_dim: self.size("d", s.d)?,
            causal: s.causal.unwrap_or(false),
            dropout: s.dropout.is_some_and(|p| p > 0.0),
        }))
    }

    pub(super) fn rnn(&self, kind: RnnKind) -> Result<Op, RowError> {
        let s = &self.shape;
        let layers = self.size_or("layers", s.layers, 1)?;
        if layers > 1024 {
            return Err(self.problem(format!("`layers` is {layers}; the limit is 1024")));
        }
        Ok(Op::Rnn(Rnn {
            kind,
            batch: self.size("b", s.b)?,
            seq: self.size("s", s.s)?,
            input: self.size("input", s.input)?,
            hidden: self.size("hidden", s.hidden)?,
            layers,
            bidirectional: s.bidirectional.unwrap_or(false),
        }))
    }

    pub(super) fn rowwise(&self, kind: RowwiseKind) -> Result<Op, RowError> {
        let (rows, cols) = self.matrix()?;
        Ok(Op::Rowwise(Rowwise { kind, rows, cols }))
    }

    pub(super) fn matrix(&self) -> Result<(u64, u64), RowError> {
        let s = &self.shape;
        Ok((self.size("rows", s.rows)?, self.size("cols", s.cols)?))
    }

    pub(super) fn spatial(&self, kind: SpatialKind) -> Result<Op, RowError> {
        let s = &self.shape;
        let pooling = matches!(kind, SpatialKind::MaxPool | SpatialKind::AvgPool);
        let kind = if kind == SpatialKind::BatchNorm && s.native == Some(true) {
            SpatialKind::BatchNormNative
        } else {
            kind
        };
        // The operator files pool 3x3 with stride 2 and padding 1 unless they say otherwise.
        let (window, stride, pad) = if pooling { (3, 2, 1) } else { (1, 1, 0) };
        let op = Spatial {
            kind,
            batch: self.size("b", s.b)?,
            channels: self.size("c", self.channels())?,
            h: self.size("hw", s.h.or(s.hw))?,
            w: self.size("hw", s.w.or(s.hw))?,
            window: self.step_or("k", s.k, window)?,
            stride: self.pair("stride", s.stride, stride, 1)?[0],
            pad: self.pair("pad", s.pad, pad, 0)?[0],
            channels_last: s.channels_last.unwrap_or(false),
            groups: self.size_or("groups", s.groups, 1)?,
        };
        if op.window > op.h.min(op.w) + 2 * op.pad {
            return Err(
                self.problem(format!("a window of {} does not fit a {}x{} map", op.window, op.h, op.w))
            );
        }
        if !op.channels.is_multiple_of(op.groups) {
            return Err(self.problem(format!("{} channels do not make {} groups", op.channels, op.groups)));
        }
        Ok(Op::Spatial(op))
    }

    pub(super) fn optimizer(&self, kind: OptimizerKind) -> Result<Op, RowError> {
        let s = &self.shape;
        Ok(Op::Optimizer(Optimizer {
            kind,
            params: self.size("n", s.n)?,
            tensors: self.size_or("parts", s.parts, 1)?,
        }))
    }

    pub(super) fn movement(&self, kind: MovementKind) -> Result<Op, RowError> {
        let s = &self.shape;
        let (rows, cols) = if s.c.is_some() {
            // Feature maps: one row per image. A concatenation counts what both halves hold.
            let image =
                self.size("c", self.channels())?.saturating_mul(self.size("hw", s.hw)?.saturating_pow(2));
            let halves = if kind == MovementKind::Cat { 2 } else { 1 };
            (self.size("b", s.b)?, image.div_ceil(halves))
        } else if kind == MovementKind::Gather && s.rows.is_none() {
            (self.size("n", s.n)?, self.size("d", s.d)?)
        } else if s.rows.is_some() || s.d.is_none() {
            self.matrix()?
        } else {
            let rows = self.size("b", s.b)?.saturating_mul(self.size("s", s.s)?);
            (rows.saturating_mul(self.size("h", s.h)?), self.size("d", s.d)?)
        };
        Ok(Op::Movement(Movement { kind, rows, cols }))
    }

    pub(super) fn elementwise(&self, kind: ElementwiseKind) -> Result<Op, RowError> {
        let s = &self.shape;
        let n = match (s.n, s.rows) {
            (None, Some(_)) => {
                let (rows, cols) = self.matrix()?;
                rows.saturating_mul(cols)
            }
            (n, _) => self.size("n", n)?,
        };
        Ok(Op::Elementwise(Elementwise { kind, n }))
    }

    /// An operator of the table; a `width`, an `area` or `groups` that are not given are 1.
    pub(super) fn listed(&self, kind: ListedKind) -> Result<Op, RowError> {
        let mut sizes = Vec::with_capacity(kind.keys().len());
        for &key in kind.keys() {
            let value = self.shape.listed(key).or(matches!(key, "width" | "area" | "groups").then_some(1));
            sizes.push(self.size(key, value)?);
        }
        let op = Listed::new(kind, &sizes);
        if kind.phases() == Phases::Gradients {
            let [_, ci, co, _, _, _, groups] = op.sizes;
            if !ci.is_multiple_of(groups) || !co.is_multiple_of(groups) {
                let problem = format!("{groups} groups divide neither {ci} nor {co} channels evenly");
                return Err(self.problem(problem));
            }
        }
        Ok(Op::Listed(op))
    }

    pub(super) fn vision(&self) -> Result<Op, RowError> {
        let s = &self.shape;
        Ok(match self.op {
            "interpolate" => {
                let h = self.size("hw", s.h.or(s.hw))?;
                let w = self.size("hw", s.w.or(s.hw))?;
                let scale = match s.scale {
                    Some(Scale::Factor(f)) => f,
                    _ => 2.0,
                };
                if !(scale.is_finite() && scale > 0.0 && scale < 1e4) {
                    return Err(self.problem(format!("`scale` is {scale}; it must be above 0")));
                }
                let given = s.out.map(|n| self.size("out", Some(n))).transpose()?;
                let out = |x: u64| given.unwrap_or(((x as f64 * scale).floor() as u64).max(1));
                Op::Interpolate(Interpolate {
                    batch: self.size("b", s.b)?,
                    channels: self.size("c", self.channels())?,
                    h,
                    w,
                    oh: out(h),
                    ow: out(w),
                    how: s.mode.as_deref().map_or(Resize::default(), Resize::of),
                })
            }
            "roi_align" => Op::RoiAlign(RoiAlign {
                rois: self.size("rois", s.rois)?,
                channels: self.size("c", self.channels())?,
                size: self.step_or("size", s.size.or(s.out), 7)?,
                sampling: self.step_or("sampling", s.sampling, 2)?,
            }),
            _ => Op::Nms(Nms { boxes: self.size("boxes", s.boxes.or(s.n))? }),
        })
    }
}
