//! The inputs of a recorded operator: sizes, types, strides and scalars, read from the recorder's JSON.

use super::{HostOp, Names};
use preflop_units::dtype::Dtype;
use serde_json::Value;

/// One input.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Input {
    /// Sizes; empty for scalars and absent tensors.
    pub dims: Vec<u64>,
    /// Strides, where recorded.
    pub strides: Option<Vec<u64>>,
    /// Tensors of a list, where the input is one.
    pub list: Vec<Vec<u64>>,
    /// Type as the recorder writes it, such as `c10::BFloat16`.
    pub kind: String,
    /// Value of a scalar or list of scalars.
    pub value: String,
}

impl Input {
    /// Elements of the tensor or of all tensors of the list; as f64 so that no size overflows.
    pub fn elements(&self) -> f64 {
        let product = |dims: &[u64]| dims.iter().map(|&d| d as f64).product::<f64>();
        if !self.list.is_empty() {
            return self.list.iter().map(|d| product(d)).sum();
        }
        if self.dims.is_empty() { 0.0 } else { product(&self.dims) }
    }

    /// Bytes of an element, by type.
    pub fn element_bytes(&self) -> f64 {
        element_bytes(&self.kind)
    }

    /// Number format, by type.
    pub fn dtype(&self) -> Option<Dtype> {
        dtype(&self.kind)
    }

    /// A list of whole numbers such as `[2, 2]`, or one number.
    pub fn integers(&self) -> Vec<u64> {
        self.value
            .trim_matches(['[', ']', ' '])
            .split(',')
            .filter_map(|n| n.trim().parse::<i64>().ok())
            .map(|n| n.max(0) as u64)
            .collect()
    }

    /// Is the scalar `True`?
    pub fn is_true(&self) -> bool {
        self.value.eq_ignore_ascii_case("true")
    }

    /// Does the last but one size lie together in memory, as in a transposed matrix?
    pub fn is_transposed(&self) -> bool {
        match &self.strides {
            Some(s) if s.len() >= 2 && self.dims.len() >= 2 => {
                let (row, column) = (s[s.len() - 2], s[s.len() - 1]);
                row == 1 && column != 1
            }
            _ => false,
        }
    }

    /// Does an image tensor lie channels-last?
    pub fn is_channels_last(&self) -> bool {
        match &self.strides {
            Some(s) if s.len() == 4 && self.dims.len() == 4 => {
                s[1] == 1 && (self.dims[1] > 1 || s[3] == self.dims[1]) && s[3] >= self.dims[1]
            }
            _ => false,
        }
    }

    /// Does a tensor of two or more dimensions not lie row by row?
    pub fn is_permuted(&self) -> bool {
        let Some(strides) = &self.strides else { return false };
        let mut expected = 1_u64;
        for (&size, &stride) in self.dims.iter().zip(strides).rev() {
            if size > 1 && stride != expected {
                return true;
            }
            expected = expected.saturating_mul(size);
        }
        false
    }
}

/// Number format of a PyTorch type name.
pub fn dtype(kind: &str) -> Option<Dtype> {
    Some(match kind {
        "float" => Dtype::Fp32,
        "double" => Dtype::Fp64,
        "c10::BFloat16" => Dtype::Bf16,
        "c10::Half" => Dtype::Fp16,
        "signed char" | "unsigned char" | "bool" => Dtype::Int8,
        "long int" | "long" | "int" | "short" => Dtype::Int64,
        k if k.contains("Float8") => Dtype::Fp8,
        _ => return None,
    })
}

fn element_bytes(kind: &str) -> f64 {
    match kind {
        "double" | "long int" | "long" | "c10::complex<float>" => 8.0,
        "c10::BFloat16" | "c10::Half" | "short" => 2.0,
        "bool" | "unsigned char" | "signed char" => 1.0,
        k if k.contains("Float8") => 1.0,
        _ => 4.0,
    }
}

fn sizes(value: &Value) -> Vec<u64> {
    value.as_array().map(|a| a.iter().filter_map(Value::as_u64).collect()).unwrap_or_default()
}

/// Reads the inputs of an operator. What cannot be read is left empty: the shape is then unknown, not wrong.
pub fn read(op: &HostOp, names: &Names) -> Vec<Input> {
    let array = |id| match serde_json::from_str::<Value>(names.text(id)) {
        Ok(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let (dims, types) = (array(op.dims), array(op.types));
    let (strides, concrete) = (array(op.strides), array(op.concrete));
    let count = dims.len().max(types.len()).max(concrete.len());
    (0..count)
        .map(|i| {
            let mut input = Input::default();
            if let Some(d) = dims.get(i) {
                if d.as_array().is_some_and(|a| a.first().is_some_and(Value::is_array)) {
                    input.list = d.as_array().map(|a| a.iter().map(sizes).collect()).unwrap_or_default();
                } else {
                    input.dims = sizes(d);
                }
            }
            input.strides = strides.get(i).map(sizes).filter(|s| s.len() == input.dims.len());
            input.kind = types.get(i).and_then(Value::as_str).unwrap_or_default().to_string();
            input.value = match concrete.get(i) {
                Some(Value::String(s)) => s.clone(),
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            };
            input
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_by_stride() {
        let input = |dims: &[u64], strides: &[u64]| Input {
            dims: dims.to_vec(),
            strides: Some(strides.to_vec()),
            ..Input::default()
        };
        assert!(input(&[512, 128], &[1, 512]).is_transposed());
        assert!(!input(&[512, 128], &[128, 1]).is_transposed());
        assert!(input(&[8, 64, 56, 56], &[64 * 56 * 56, 1, 64 * 56, 64]).is_channels_last());
        assert!(!input(&[8, 64, 56, 56], &[64 * 56 * 56, 56 * 56, 56, 1]).is_channels_last());
        assert!(input(&[2, 8, 4, 16], &[512, 16, 128, 1]).is_permuted());
        assert!(!input(&[2, 1, 4], &[4, 77, 1]).is_permuted());
    }

    #[test]
    fn scalar_lists() {
        let input = |value: &str| Input { value: value.into(), ..Input::default() };
        assert_eq!(input("[2, 3]").integers(), vec![2, 3]);
        assert_eq!(input("1").integers(), vec![1]);
        assert!(input("[]").integers().is_empty());
    }
}
