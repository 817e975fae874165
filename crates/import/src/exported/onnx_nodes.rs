//! ONNX operators as ATen calls.

use super::onnx::{Attributes, Reader};
use super::{axes, elements, whole};
use preflop_core::model::program::{Arg, Role};

/// Operators that differ from ATen's in name only.
const SAME: &[(&str, &str)] = &[
    ("Relu", "relu"),
    ("LeakyRelu", "leaky_relu"),
    ("PRelu", "leaky_relu"),
    ("Clip", "clamp"),
    ("Sigmoid", "sigmoid"),
    ("Tanh", "tanh"),
    ("Erf", "erf"),
    ("Gelu", "gelu"),
    ("HardSigmoid", "hardsigmoid"),
    ("HardSwish", "hardswish"),
    ("Elu", "elu"),
    ("Selu", "elu"),
    ("Softplus", "softplus"),
    ("Mish", "mish"),
    ("Sqrt", "sqrt"),
    ("Exp", "exp"),
    ("Log", "log"),
    ("Sin", "sin"),
    ("Cos", "cos"),
    ("Neg", "neg"),
    ("Abs", "abs"),
    ("Not", "logical_not"),
    ("Reciprocal", "reciprocal"),
    ("Softmax", "softmax"),
    ("LogSoftmax", "log_softmax"),
    ("Dropout", "dropout"),
    ("Identity", "identity"),
    ("Cast", "identity"),
    ("Reshape", "reshape"),
    ("Flatten", "reshape"),
    ("Squeeze", "reshape"),
    ("Unsqueeze", "reshape"),
    ("Expand", "expand"),
    ("Range", "create"),
    ("ConstantOfShape", "create"),
    ("Add", "add"),
    ("Sub", "sub"),
    ("Mul", "mul"),
    ("Div", "div"),
    ("Equal", "eq"),
    ("Less", "lt"),
    ("LessOrEqual", "le"),
    ("Greater", "gt"),
    ("GreaterOrEqual", "ge"),
    ("And", "logical_and"),
    ("Or", "logical_or"),
    ("Max", "maximum"),
    ("Min", "minimum"),
    ("Where", "where"),
    ("Resize", "upsample_nearest2d"),
    ("GlobalAveragePool", "adaptive_avg_pool2d"),
];

impl Reader<'_> {
    /// A tensor as an argument; a constant of one element is a number.
    fn operand(&self, input: Option<&Option<usize>>) -> Arg {
        let Some(&Some(v)) = input else { return Arg::None };
        let value = &self.values[v];
        let single = value.role == Role::Buffer && elements(&value.shape) <= 1;
        if single { Arg::Real(1.0) } else { Arg::Value(v) }
    }

    fn constant(&self, input: Option<&Option<usize>>) -> Option<Vec<i64>> {
        self.constants.get(&(*input?)?).cloned()
    }

    /// Writes the call that a node stands for.
    pub(super) fn translate(
        &mut self,
        op: &str,
        inputs: &[Option<usize>],
        a: &Attributes<'_>,
        outputs: Vec<usize>,
        path: &str,
    ) {
        let tensor = |i: usize| inputs.get(i).copied().flatten().map_or(Arg::None, Arg::Value);
        let wholes =
            |name: &str, default: &[i64]| Arg::Wholes(a.wholes(name).unwrap_or_else(|| default.to_vec()));
        let pads = Arg::Wholes(a.wholes("pads").map_or(vec![0, 0], |p| p[..p.len() / 2].to_vec()));
        let group = Arg::Whole(a.whole("group").unwrap_or(1));
        if let Some((_, name)) = SAME.iter().find(|(n, _)| *n == op) {
            let args = (0..inputs.len()).map(|i| self.operand(inputs.get(i))).collect();
            self.push(name, path, args, outputs);
            return;
        }
        match op {
            "Conv" => {
                let args = vec![
                    tensor(0),
                    tensor(1),
                    tensor(2),
                    wholes("strides", &[1, 1]),
                    pads,
                    wholes("dilations", &[1, 1]),
                    group,
                ];
                self.push("conv2d", path, args, outputs);
            }
            "ConvTranspose" => {
                let (extra, dilation) = (wholes("output_padding", &[0, 0]), wholes("dilations", &[1, 1]));
                let args = vec![
                    tensor(0),
                    tensor(1),
                    tensor(2),
                    wholes("strides", &[1, 1]),
                    pads,
                    extra,
                    group,
                    dilation,
                ];
                self.push("conv_transpose2d", path, args, outputs);
            }
            "MaxPool" | "AveragePool" => {
                let name = if op == "MaxPool" { "max_pool2d" } else { "avg_pool2d" };
                let args = vec![tensor(0), wholes("kernel_shape", &[1, 1]), wholes("strides", &[1, 1]), pads];
                self.push(name, path, args, outputs);
            }
            "Gemm" if a.whole("transA").unwrap_or(0) == 0 && a.whole("transB") == Some(1) => {
                self.push("linear", path, vec![tensor(0), tensor(1), tensor(2)], outputs);
            }
            "Gemm" if a.whole("transA").unwrap_or(0) == 0 && inputs.len() > 2 => {
                self.push("addmm", path, vec![tensor(2), tensor(0), tensor(1)], outputs);
            }
            "MatMul" | "Gemm" => self.push("matmul", path, vec![tensor(0), tensor(1)], outputs),
            "BatchNormalization" => {
                self.push("batch_norm", path, vec![tensor(0), tensor(1), tensor(2)], outputs);
            }
            "LayerNormalization" => {
                let cols = self.normalised(inputs, a);
                self.push("layer_norm", path, vec![tensor(0), cols, tensor(1), tensor(2)], outputs);
            }
            "SimplifiedLayerNormalization" | "RMSNormalization" => {
                let cols = self.normalised(inputs, a);
                self.push("rms_norm", path, vec![tensor(0), cols, tensor(1)], outputs);
            }
            "GroupNormalization" => {
                let groups = Arg::Whole(a.whole("num_groups").unwrap_or(1));
                self.push("group_norm", path, vec![tensor(0), groups, tensor(1), tensor(2)], outputs);
            }
            "Pow" => self.push("pow", path, vec![tensor(0)], outputs),
            "Transpose" => {
                let rank = inputs.first().copied().flatten().map_or(0, |v| self.values[v].shape.len());
                let order = a.wholes("perm").unwrap_or_else(|| axes(rank).rev().collect());
                self.push("permute", path, vec![tensor(0), Arg::Wholes(order)], outputs);
            }
            "Concat" => {
                let joined = Arg::Values(inputs.iter().copied().flatten().collect());
                self.push("cat", path, vec![joined, Arg::Whole(a.whole("axis").unwrap_or(0))], outputs);
            }
            "Split" => {
                let axis = Arg::Whole(a.whole("axis").unwrap_or(0));
                self.push("split", path, vec![tensor(0), Arg::None, axis], outputs);
            }
            "Slice" => {
                let axis = self.constant(inputs.get(3)).and_then(|v| v.first().copied()).unwrap_or(0);
                self.push("slice", path, vec![tensor(0), Arg::Whole(axis)], outputs);
            }
            "Gather" => self.gather(inputs, a, outputs, path),
            "ReduceMean" | "ReduceSum" => {
                let axes = a.wholes("axes").or_else(|| self.constant(inputs.get(1))).unwrap_or_default();
                let name = if op == "ReduceMean" { "mean" } else { "sum" };
                self.push(name, path, vec![tensor(0), Arg::Wholes(axes)], outputs);
            }
            _ => {
                let args = (0..inputs.len()).map(|i| self.operand(inputs.get(i))).collect();
                self.push(&format!("onnx::{op}"), path, args, outputs);
            }
        }
    }

    fn normalised(&self, inputs: &[Option<usize>], a: &Attributes<'_>) -> Arg {
        let shape = inputs.first().copied().flatten().map_or(&[][..], |v| &self.values[v].shape);
        let axis = a.whole("axis").unwrap_or(-1);
        let from =
            if axis < 0 { shape.len().saturating_sub(axis.unsigned_abs() as usize) } else { axis as usize };
        Arg::Wholes(shape.get(from..).unwrap_or_default().iter().map(|&n| whole(n)).collect())
    }

    /// A look-up in a table of weights, one index of a tensor, or rows picked from it.
    fn gather(&mut self, inputs: &[Option<usize>], a: &Attributes<'_>, outputs: Vec<usize>, path: &str) {
        let (Some(&Some(data)), Some(&Some(at))) = (inputs.first(), inputs.get(1)) else { return };
        let axis = a.whole("axis").unwrap_or(0);
        let table =
            self.values[data].role == Role::Parameter && self.values[data].shape.len() == 2 && axis == 0;
        if table {
            self.push("embedding", path, vec![Arg::Value(data), Arg::Value(at)], outputs);
        } else if self.values[at].shape.is_empty() {
            self.push("select", path, vec![Arg::Value(data), Arg::Whole(axis)], outputs);
        } else {
            self.push("onnx::Gather", path, vec![Arg::Value(data), Arg::Value(at)], outputs);
        }
    }
}
