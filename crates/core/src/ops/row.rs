//! Reads one row of an operator file (`op, phase, dtype, shape`) into a checked call.

use super::{
    Attention, Conv, CrossEntropy, Elementwise, ElementwiseKind, Embedding, Gemm, GemmKind, Interpolate,
    Layout, Movement, MovementKind, Nms, Op, OpCall, Optimizer, OptimizerKind, Pass, Rnn, RnnKind, RoiAlign,
    Rowwise, RowwiseKind, Spatial, SpatialKind,
};
use crate::dtype::Dtype;
use crate::names::did_you_mean;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::fmt;

/// Why a row cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The shape is not a JSON object of numbers and flags.
    #[error("shape: {0}")]
    Shape(String),
    /// No such operator.
    #[error("unknown op `{0}`{1}")]
    Op(String, String),
    /// No such phase, or not one of this operator.
    #[error("op `{op}` has no phase `{phase}` (it has {known})")]
    Phase {
        /// Operator.
        op: String,
        /// Phase asked for.
        phase: String,
        /// Phases it has.
        known: &'static str,
    },
    /// No such number format.
    #[error("unknown dtype `{0}` (fp32, tf32, bf16, fp16, fp8)")]
    Dtype(String),
    /// A key that the operator needs.
    #[error("op `{op}` needs `{key}` in its shape")]
    Missing {
        /// Operator.
        op: String,
        /// Missing key.
        key: &'static str,
    },
    /// A size that is zero or too large, or sizes that do not go together.
    #[error("op `{op}`: {problem}")]
    Size {
        /// Operator.
        op: String,
        /// What is wrong.
        problem: String,
    },
}

/// Largest size of one dimension and largest element count of one tensor.
const MAX_DIM: u64 = 1 << 40;
const MAX_ELEMENTS: f64 = 1e15;
/// Largest stride, padding, dilation, window or sampling: their products stay far from overflow.
const MAX_STEP: u64 = 1 << 20;

/// A size that may be given once or as [height, width].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair([u64; 2]);

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Pair;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a whole number or [height, width]")
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Pair, E> {
                Ok(Pair([v; 2]))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Pair, E> {
                u64::try_from(v).map(|v| Pair([v; 2])).map_err(|_| E::custom(format!("{v} is negative")))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Pair, A::Error> {
                let missing = || de::Error::custom("needs two numbers");
                let h = seq.next_element()?.ok_or_else(missing)?;
                let w = seq.next_element()?.ok_or_else(missing)?;
                if seq.next_element::<u64>()?.is_some() {
                    return Err(missing());
                }
                Ok(Pair([h, w]))
            }
        }
        d.deserialize_any(V)
    }
}

/// Every key that any operator's shape may have.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Shape {
    b: Option<u64>,
    m: Option<u64>,
    n: Option<u64>,
    k: Option<u64>,
    bias: Option<bool>,
    layout: Option<GemmLayout>,
    ci: Option<u64>,
    co: Option<u64>,
    hw: Option<u64>,
    r: Option<u64>,
    s: Option<u64>,
    stride: Option<Pair>,
    pad: Option<Pair>,
    dilation: Option<Pair>,
    groups: Option<u64>,
    channels_last: Option<bool>,
    native: Option<bool>,
    input: Option<u64>,
    hidden: Option<u64>,
    layers: Option<u64>,
    bidirectional: Option<bool>,
    h: Option<u64>,
    w: Option<u64>,
    kv: Option<u64>,
    kv_len: Option<u64>,
    d: Option<u64>,
    causal: Option<bool>,
    rows: Option<u64>,
    cols: Option<u64>,
    c: Option<Channels>,
    v: Option<u64>,
    parts: Option<u64>,
    boxes: Option<u64>,
    rois: Option<u64>,
    size: Option<u64>,
    sampling: Option<u64>,
    scale: Option<Scale>,
    out: Option<u64>,
}

/// A resize factor, or the scaling mode of an fp8 product.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Scale {
    Factor(f64),
    Mode(serde::de::IgnoredAny),
}

/// Channels of one tensor, or of each tensor that is joined.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Channels {
    One(u64),
    Many(Vec<u64>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GemmLayout {
    Linear,
    Nn,
    Tn,
    /// Layouts of other operators, which do not change their model.
    #[serde(other)]
    Other,
}

struct Reader<'a> {
    op: &'a str,
    shape: Shape,
}

impl Reader<'_> {
    fn size(&self, key: &'static str, value: Option<u64>) -> Result<u64, RowError> {
        match value {
            None => Err(RowError::Missing { op: self.op.to_string(), key }),
            Some(0) => Err(self.problem(format!("`{key}` is 0; sizes start at 1"))),
            Some(v) if v > MAX_DIM => Err(self.problem(format!("`{key}` is {v}; sizes end at 2^40"))),
            Some(v) => Ok(v),
        }
    }

    fn size_or(&self, key: &'static str, value: Option<u64>, default: u64) -> Result<u64, RowError> {
        value.map_or(Ok(default), |v| self.size(key, Some(v)))
    }

    fn step_or(&self, key: &'static str, value: Option<u64>, default: u64) -> Result<u64, RowError> {
        let v = self.size_or(key, value, default)?;
        if v > MAX_STEP {
            return Err(self.problem(format!("`{key}` is {v}; it ends at 2^20")));
        }
        Ok(v)
    }

    fn pair(
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

    fn channels(&self) -> Option<u64> {
        match &self.shape.c {
            Some(Channels::One(c)) => Some(*c),
            Some(Channels::Many(all)) => Some(all.iter().fold(0, |a: u64, b| a.saturating_add(*b))),
            None => None,
        }
    }

    fn problem(&self, problem: String) -> RowError {
        RowError::Size { op: self.op.to_string(), problem }
    }

    fn gemm(&self, kind: GemmKind) -> Result<Op, RowError> {
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

    fn conv(&self, transposed: bool) -> Result<Op, RowError> {
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

    fn attention(&self) -> Result<Op, RowError> {
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
        }))
    }

    fn rnn(&self, kind: RnnKind) -> Result<Op, RowError> {
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

    fn rowwise(&self, kind: RowwiseKind) -> Result<Op, RowError> {
        let (rows, cols) = self.matrix()?;
        Ok(Op::Rowwise(Rowwise { kind, rows, cols }))
    }

    fn matrix(&self) -> Result<(u64, u64), RowError> {
        let s = &self.shape;
        Ok((self.size("rows", s.rows)?, self.size("cols", s.cols)?))
    }

    fn spatial(&self, kind: SpatialKind) -> Result<Op, RowError> {
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
        };
        if op.window > op.h.min(op.w) + 2 * op.pad {
            return Err(
                self.problem(format!("a window of {} does not fit a {}x{} map", op.window, op.h, op.w))
            );
        }
        Ok(Op::Spatial(op))
    }

    fn optimizer(&self, kind: OptimizerKind) -> Result<Op, RowError> {
        let s = &self.shape;
        Ok(Op::Optimizer(Optimizer {
            kind,
            params: self.size("n", s.n)?,
            tensors: self.size_or("parts", s.parts, 1)?,
        }))
    }

    fn movement(&self, kind: MovementKind) -> Result<Op, RowError> {
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

    fn elementwise(&self, kind: ElementwiseKind) -> Result<Op, RowError> {
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

    fn vision(&self) -> Result<Op, RowError> {
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
                let out = |x: u64| ((x as f64 * scale).floor() as u64).max(1);
                Op::Interpolate(Interpolate {
                    batch: self.size("b", s.b)?,
                    channels: self.size("c", self.channels())?,
                    h,
                    w,
                    oh: out(h),
                    ow: out(w),
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

/// Names of all operators that a file may hold.
pub const OPS: &[&str] = &[
    "mm",
    "linear",
    "bmm",
    "conv2d",
    "conv_transpose2d",
    "sdpa",
    "lstm",
    "gru",
    "rnn",
    "softmax",
    "log_softmax",
    "layernorm",
    "rmsnorm",
    "sum",
    "sum_cols",
    "cumsum",
    "batchnorm",
    "batchnorm_native",
    "batchnorm_eval",
    "groupnorm",
    "maxpool",
    "avgpool",
    "gap",
    "embedding",
    "cross_entropy",
    "adam",
    "adam_single",
    "adam_foreach",
    "sgd_foreach",
    "sgd_plain",
    "transpose",
    "cat",
    "permute_copy",
    "gather",
    "layout_conversion",
    "interpolate",
    "roi_align",
    "nms",
    "elementwise",
];

/// Reads one row. `shape` is a JSON object.
pub fn parse(op: &str, phase: &str, dtype: &str, shape: &str) -> Result<OpCall, RowError> {
    let shape: Shape =
        serde_json::from_str(shape).map_err(|e| RowError::Shape(e.to_string().replace('\n', " ")))?;
    let dtype = Dtype::from_name(dtype).ok_or_else(|| RowError::Dtype(dtype.to_string()))?;
    let r = Reader { op, shape };
    let made = match op {
        "mm" => r.gemm(GemmKind::Mm),
        "linear" => r.gemm(GemmKind::Linear),
        "bmm" => r.gemm(GemmKind::Bmm),
        "conv2d" => r.conv(false),
        "conv_transpose2d" => r.conv(true),
        "sdpa" => r.attention(),
        "lstm" => r.rnn(RnnKind::Lstm),
        "gru" => r.rnn(RnnKind::Gru),
        "rnn" => r.rnn(RnnKind::Tanh),
        "softmax" => r.rowwise(RowwiseKind::Softmax),
        "log_softmax" => r.rowwise(RowwiseKind::LogSoftmax),
        "layernorm" => r.rowwise(RowwiseKind::LayerNorm),
        "rmsnorm" => r.rowwise(RowwiseKind::RmsNorm),
        "sum" | "mean" | "argmax" => r.rowwise(RowwiseKind::Sum),
        "sum_cols" => r.rowwise(RowwiseKind::SumCols),
        "cumsum" => r.rowwise(RowwiseKind::CumSum),
        "batchnorm" => r.spatial(SpatialKind::BatchNorm),
        "batchnorm_native" => r.spatial(SpatialKind::BatchNormNative),
        "batchnorm_eval" => r.spatial(SpatialKind::BatchNormEval),
        "groupnorm" => r.spatial(SpatialKind::GroupNorm),
        "maxpool" => r.spatial(SpatialKind::MaxPool),
        "avgpool" => r.spatial(SpatialKind::AvgPool),
        "gap" => r.spatial(SpatialKind::GlobalAvgPool),
        "embedding" => {
            let s = &r.shape;
            Ok(Op::Embedding(Embedding {
                vocab: r.size("v", s.v)?,
                dim: r.size("d", s.d)?,
                tokens: r.size("n", s.n)?,
            }))
        }
        "cross_entropy" => {
            let s = &r.shape;
            Ok(Op::CrossEntropy(CrossEntropy { rows: r.size("n", s.n)?, classes: r.size("v", s.v)? }))
        }
        "adam" => r.optimizer(OptimizerKind::AdamFused),
        "adam_single" => r.optimizer(OptimizerKind::AdamSingle),
        "adam_foreach" => r.optimizer(OptimizerKind::AdamForeach),
        "sgd_foreach" => r.optimizer(OptimizerKind::SgdForeach),
        "sgd_plain" => r.optimizer(OptimizerKind::SgdPlain),
        "transpose" => r.movement(MovementKind::Transpose),
        "cat" | "cat_channels" => r.movement(MovementKind::Cat),
        "permute_copy" => r.movement(MovementKind::Permute),
        "gather" | "index_select" | "roll" => r.movement(MovementKind::Gather),
        "layout_conversion" | "to_channels_last" => r.movement(MovementKind::LayoutConversion),
        "interpolate" | "roi_align" | "nms" => r.vision(),
        "elementwise" => r.elementwise(ElementwiseKind::Add),
        _ => return elementwise_row(&r, phase, dtype),
    }?;
    let pass = match (&made, Pass::from_name(phase)) {
        (Op::Conv(_), Some(p @ (Pass::Fwd | Pass::Dgrad | Pass::Wgrad))) => p,
        (Op::Conv(_), _) => return Err(bad_phase(op, phase, "fwd, dgrad, wgrad")),
        (
            Op::Gemm(_) | Op::Movement(_) | Op::Optimizer(_) | Op::Elementwise(_) | Op::Nms(_),
            Some(Pass::Fwd),
        ) => Pass::Fwd,
        (Op::Gemm(_) | Op::Movement(_) | Op::Optimizer(_) | Op::Elementwise(_) | Op::Nms(_), _) => {
            return Err(bad_phase(op, phase, "fwd"));
        }
        (_, Some(p @ (Pass::Fwd | Pass::Bwd))) => p,
        (_, _) => return Err(bad_phase(op, phase, "fwd, bwd")),
    };
    checked(&r, OpCall::new(made, pass, dtype))
}

fn bad_phase(op: &str, phase: &str, known: &'static str) -> RowError {
    RowError::Phase { op: op.to_string(), phase: phase.to_string(), known }
}

/// Elementwise operators go by their own names; their backward may be written as phase `bwd`.
fn elementwise_row(r: &Reader, phase: &str, dtype: Dtype) -> Result<OpCall, RowError> {
    let kind = match phase {
        "fwd" => ElementwiseKind::from_name(r.op),
        "bwd" => ElementwiseKind::from_name(&format!("{}_bwd", r.op)),
        _ => None,
    };
    let Some(kind) = kind else {
        if ElementwiseKind::from_name(r.op).is_some() {
            return Err(bad_phase(r.op, phase, "fwd, and bwd for activations"));
        }
        let known = OPS.iter().copied().chain(ElementwiseKind::ALL.iter().map(|k| k.name()));
        return Err(RowError::Op(r.op.to_string(), did_you_mean(r.op, known)));
    };
    checked(r, OpCall::fwd(r.elementwise(kind)?, dtype))
}

fn checked(r: &Reader, call: OpCall) -> Result<OpCall, RowError> {
    let bytes = call.traffic().total().0;
    if !bytes.is_finite() || bytes > MAX_ELEMENTS * 8.0 || !call.flops().0.is_finite() {
        return Err(r.problem(format!("it would move {bytes:.1e} bytes; sizes are too large")));
    }
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_documented_forms() {
        let c = parse("conv2d", "wgrad", "bf16", r#"{"b":2,"ci":8,"h":9,"w":7,"co":4,"r":3,"s":1,"stride":2,"pad":[1,0],"dilation":1,"groups":2,"channels_last":true}"#)
            .unwrap();
        let Op::Conv(conv) = c.op else { panic!("not a convolution") };
        assert_eq!((conv.oh(), conv.ow(), conv.pad, c.pass), (5, 4, [1, 0], Pass::Wgrad));
        let d =
            parse("sdpa", "fwd", "fp16", r#"{"b":1,"h":8,"kv":2,"s":1,"d":64,"causal":false,"kv_len":500}"#)
                .unwrap();
        assert!(matches!(d.op, Op::Attention(a) if a.kv_len == 500 && a.kv_heads == 2));
        assert!(parse("gelu", "bwd", "bf16", r#"{"n":10}"#).is_ok());
        for op in OPS {
            assert_ne!(parse(op, "fwd", "fp32", "{}").unwrap_err().to_string(), "");
        }
    }

    #[test]
    fn wrong_rows_say_why() {
        let say = |op: &str, phase: &str, dtype: &str, shape: &str| {
            parse(op, phase, dtype, shape).unwrap_err().to_string()
        };
        assert!(say("conv2", "fwd", "fp32", "{}").contains("`conv2d`"));
        assert!(say("mm", "fwd", "fp32", r#"{"m":1,"n":2}"#).contains("`k`"));
        assert!(say("mm", "fwd", "fp32", r#"{"m":0,"n":2,"k":1}"#).contains("is 0"));
        assert!(say("mm", "fwd", "fp32", r#"{"m":-1,"n":2,"k":1}"#).contains("shape"));
        assert!(say("mm", "fwd", "fp32", r#"{"m":NaN}"#).contains("shape"));
        assert!(say("mm", "fwd", "fp33", "{}").contains("fp33"));
        assert!(say("mm", "dgrad", "fp32", r#"{"m":1,"n":2,"k":3}"#).contains("phase"));
        assert!(
            say("conv2d", "fwd", "fp32", r#"{"b":1,"ci":3,"hw":4,"co":8,"k":7}"#).contains("does not fit")
        );
        assert!(
            say("bmm", "fwd", "fp32", r#"{"b":1099511627776,"m":1099511627776,"n":1099511627776,"k":1}"#)
                .contains("too large")
        );
        assert!(say("mm", "fwd", "fp32", r#"{"m":1e300,"n":2,"k":1}"#).contains("shape"));
    }
}
