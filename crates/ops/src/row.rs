//! Reads one row of an operator file (`op, phase, dtype, shape`) into a checked call.

mod keys;
mod reader;

use super::{
    CrossEntropy, ElementwiseKind, Embedding, GemmKind, ListedKind, MovementKind, Op, OpCall, OptimizerKind,
    Pass, RnnKind, RowwiseKind, SpatialKind,
};
use keys::Shape;
use preflop_units::dtype::Dtype;
use preflop_units::names::{did_you_mean, one_line};
use reader::Reader;
use serde::Deserialize as _;

/// Why a row cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The shape is not a JSON object of numbers and flags.
    #[error("shape: {0}")]
    Shape(String),
    /// No such operator.
    #[error("unknown op `{op}`{hint}", op = one_line(.0), hint = .1)]
    Op(String, String),
    /// No such phase, or not one of this operator.
    #[error("op `{op}` has no phase `{}` (it has {known})", one_line(phase))]
    Phase {
        /// Operator.
        op: String,
        /// Phase asked for.
        phase: String,
        /// Phases it has.
        known: &'static str,
    },
    /// No such number format.
    #[error("unknown dtype `{}` (fp32, tf32, bf16, fp16, fp8)", one_line(.0))]
    Dtype(String),
    /// A key that the operator needs.
    #[error("op `{op}` needs `{key}` in its shape")]
    Missing {
        /// Operator.
        op: String,
        /// Missing key.
        key: &'static str,
    },
    /// A key that the operator does not know.
    #[error("op `{op}` has no `{}` in its shape{hint} (it has {known})", one_line(key))]
    Key {
        /// Operator.
        op: String,
        /// The key.
        key: String,
        /// Close names.
        hint: String,
        /// The keys it has.
        known: String,
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

/// Names of the operators that a file may hold, beside elementwise ones and those of the table ([`ListedKind`]).
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
    "sum_channels",
    "batchnorm",
    "batchnorm_native",
    "batchnorm_eval",
    "groupnorm",
    "maxpool",
    "avgpool",
    "adaptive_avgpool",
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
    "cat_strided",
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
    let shape: Shape = serde_json::from_str(shape).map_err(|e| shape_error(op, &e.to_string()))?;
    call(op, phase, dtype, shape)
}

/// Reads one row whose shape is not JSON text: the fields of a table's row, say.
pub fn parse_fields<'de, D: serde::Deserializer<'de>>(
    op: &str,
    phase: &str,
    dtype: &str,
    shape: D,
) -> Result<OpCall, RowError> {
    let shape = Shape::deserialize(shape).map_err(|e| shape_error(op, &e.to_string()))?;
    call(op, phase, dtype, shape)
}

fn call(op: &str, phase: &str, dtype: &str, shape: Shape) -> Result<OpCall, RowError> {
    if let Some(key) = shape.other_than(keys::of(op)) {
        return Err(unknown_key(op, key));
    }
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
        "sum_channels" => r.rowwise(RowwiseKind::SumChannels),
        "batchnorm" => r.spatial(SpatialKind::BatchNorm),
        "batchnorm_native" => r.spatial(SpatialKind::BatchNormNative),
        "batchnorm_eval" => r.spatial(SpatialKind::BatchNormEval),
        "groupnorm" => r.spatial(SpatialKind::GroupNorm),
        "maxpool" => r.spatial(SpatialKind::MaxPool),
        "avgpool" => r.spatial(SpatialKind::AvgPool),
        "adaptive_avgpool" => r.spatial(SpatialKind::AdaptiveAvgPool),
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
        "cat_strided" => r.movement(MovementKind::CatStrided),
        "permute_copy" => r.movement(MovementKind::Permute),
        "gather" | "roll" => r.movement(MovementKind::Gather),
        "layout_conversion" | "to_channels_last" => r.movement(MovementKind::LayoutConversion),
        "interpolate" | "roi_align" | "nms" => r.vision(),
        "elementwise" => r.elementwise(ElementwiseKind::Add),
        _ => match ListedKind::from_name(op) {
            Some(kind) => r.listed(kind),
            None => return elementwise_row(&r, phase, dtype),
        },
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
        (Op::Listed(o), Some(p)) if o.kind.phases().has(p) => p,
        (Op::Listed(o), _) => return Err(bad_phase(op, phase, o.kind.phases().names())),
        (_, Some(p @ (Pass::Fwd | Pass::Bwd))) => p,
        (_, _) => return Err(bad_phase(op, phase, "fwd, bwd")),
    };
    checked(&r, OpCall::new(made, pass, dtype))
}

fn unknown_key(op: &str, key: &str) -> RowError {
    // Short keys are close to everything; names that other tools use are told apart by their beginning.
    let known = keys::of(op);
    let begins = known.iter().find(|k| k.len() > 2 && (key.starts_with(**k) || k.starts_with(key)));
    let hint = match begins {
        Some(near) => format!("; did you mean `{near}`?"),
        None => did_you_mean(key, known.iter().copied()),
    };
    RowError::Key { op: op.to_string(), key: key.to_string(), hint, known: known.join(", ") }
}

/// What the JSON reader said, without its list of all keys.
fn shape_error(op: &str, said: &str) -> RowError {
    let key = said.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    match key {
        Some(key) if !Shape::KEYS.contains(&key) => unknown_key(op, key),
        _ => RowError::Shape(said.replace('\n', " ")),
    }
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
        let tables =
            ElementwiseKind::ALL.iter().map(|k| k.name()).chain(ListedKind::ALL.iter().map(|k| k.name()));
        let known = OPS.iter().copied().chain(tables);
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
        for op in OPS.iter().copied().chain(ListedKind::ALL.iter().map(|k| k.name())) {
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
        // Keys of other tools and of other operators are told, not ignored.
        let conv = r#"{"b":1,"ci":3,"hw":8,"co":8,"k":3,"padding":1}"#;
        assert!(
            say("conv2d", "fwd", "fp32", conv).contains("no `padding` in its shape; did you mean `pad`?")
        );
        assert!(say("mm", "fwd", "fp32", r#"{"m":1,"n":2,"k":3,"stride":2}"#).contains("no `stride`"));
        assert!(say("relu", "fwd", "fp32", r#"{"n":1,"count":2}"#).contains("no `count`"));
        assert!(say("mm", "dgrad", "fp32", r#"{"m":1,"n":2,"k":3}"#).contains("phase"));
        assert!(
            say("conv2d", "fwd", "fp32", r#"{"b":1,"ci":3,"hw":4,"co":8,"k":7}"#).contains("does not fit")
        );
        let norm = say("groupnorm", "fwd", "fp32", r#"{"b":1,"c":64,"hw":4,"groups":48}"#);
        assert!(norm.contains("64 channels do not make 48 groups"), "{norm}");
        assert!(
            say("bmm", "fwd", "fp32", r#"{"b":1099511627776,"m":1099511627776,"n":1099511627776,"k":1}"#)
                .contains("too large")
        );
        assert!(say("mm", "fwd", "fp32", r#"{"m":1e300,"n":2,"k":1}"#).contains("shape"));
    }
}
