//! Matrix products, convolutions and attention.

use super::{Input, Work, main_dtype};
use crate::kernel_name::KernelFamily;
use preflop_ops::{Attention, Conv, Gemm, Layout, Op, OpCall, Pass};
use preflop_units::dtype::Dtype;

/// Work of a product-like operator, if `name` is one and its shapes are known.
pub fn work(name: &str, inputs: &[Input], backward: bool) -> Option<Work> {
    gemm(name, inputs, backward).or_else(|| conv(name, inputs)).or_else(|| attention(name, inputs))
}

fn matrix(input: Option<&Input>) -> Option<[u64; 2]> {
    <[u64; 2]>::try_from(input?.dims.as_slice()).ok()
}

fn layout(a: &Input, b: &Input, backward: bool) -> Layout {
    if a.is_transposed() {
        Layout::Tn
    } else if b.is_transposed() || (b.strides.is_none() && !backward) {
        Layout::Linear
    } else {
        Layout::Nn
    }
}

fn gemm(name: &str, inputs: &[Input], backward: bool) -> Option<Work> {
    let dtype = main_dtype(inputs)?;
    let gemm = match name {
        "mm" | "_scaled_mm" | "matmul" => {
            let [m, k] = matrix(inputs.first())?;
            let [_, n] = matrix(inputs.get(1))?;
            Gemm::mm(m, n, k, layout(&inputs[0], &inputs[1], backward))
        }
        "addmm" | "_addmm_activation" => {
            let [m, k] = matrix(inputs.get(1))?;
            let [_, n] = matrix(inputs.get(2))?;
            let layout = layout(&inputs[1], &inputs[2], backward);
            Gemm { layout, bias: true, ..Gemm::linear(m, n, k, true) }
        }
        "linear" => {
            let x = &inputs.first()?.dims;
            let [n, k] = matrix(inputs.get(1))?;
            let rows = x.iter().rev().skip(1).product::<u64>().max(1);
            Gemm::linear(rows, n, k, inputs.get(2).is_some_and(|b| !b.dims.is_empty()))
        }
        "bmm" | "baddbmm" => {
            let first = usize::from(name == "baddbmm");
            let a = <[u64; 3]>::try_from(inputs.get(first)?.dims.as_slice()).ok()?;
            let b = <[u64; 3]>::try_from(inputs.get(first + 1)?.dims.as_slice()).ok()?;
            Gemm::bmm(a[0], a[1], b[2], a[2])
        }
        _ => return None,
    };
    Some(Work::of(vec![OpCall::fwd(Op::Gemm(gemm), dtype)], KernelFamily::Gemm))
}

/// Where the arguments of the convolution operators stand.
struct ConvArguments {
    input: usize,
    weight: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
    groups: usize,
    transposed: Option<usize>,
}

fn pair(values: &[u64], default: u64) -> [u64; 2] {
    match values {
        [] => [default; 2],
        [one] => [*one; 2],
        [.., h, w] => [*h, *w],
    }
}

fn conv(name: &str, inputs: &[Input]) -> Option<Work> {
    let backward = name == "convolution_backward";
    let mut always_transposed = false;
    let at = match name {
        // (input, weight, padding, stride, dilation, groups, ..)
        "cudnn_convolution" | "miopen_convolution" => ConvArguments {
            input: 0,
            weight: 1,
            pad: usize::from(name == "miopen_convolution") + 2,
            stride: usize::from(name == "miopen_convolution") + 3,
            dilation: usize::from(name == "miopen_convolution") + 4,
            groups: usize::from(name == "miopen_convolution") + 5,
            transposed: None,
        },
        // (input, weight, padding, output_padding, stride, dilation, groups, ..)
        "cudnn_convolution_transpose" => {
            always_transposed = true;
            ConvArguments { input: 0, weight: 1, pad: 2, stride: 4, dilation: 5, groups: 6, transposed: None }
        }
        // (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, ..)
        "convolution" | "_convolution" | "convolution_overrideable" => ConvArguments {
            input: 0,
            weight: 1,
            stride: 3,
            pad: 4,
            dilation: 5,
            groups: 8,
            transposed: Some(6),
        },
        // (input, weight, bias, stride, padding, dilation, groups)
        "conv2d" | "_conv_depthwise2d" => {
            ConvArguments { input: 0, weight: 1, stride: 3, pad: 4, dilation: 5, groups: 6, transposed: None }
        }
        // (grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask)
        "convolution_backward" => ConvArguments {
            input: 1,
            weight: 2,
            stride: 4,
            pad: 5,
            dilation: 6,
            groups: 9,
            transposed: Some(7),
        },
        _ => return None,
    };
    let x = <[u64; 4]>::try_from(inputs.get(at.input)?.dims.as_slice()).ok()?;
    let w = <[u64; 4]>::try_from(inputs.get(at.weight)?.dims.as_slice()).ok()?;
    let integers = |i: usize| inputs.get(i).map(Input::integers).unwrap_or_default();
    let transposed =
        always_transposed || at.transposed.is_some_and(|i| inputs.get(i).is_some_and(Input::is_true));
    let groups = integers(at.groups).first().copied().unwrap_or(1).max(1);
    let call = Conv {
        batch: x[0],
        ci: x[1],
        h: x[2],
        w: x[3],
        co: if transposed { w[1].saturating_mul(groups) } else { w[0] },
        r: w[2],
        s: w[3],
        stride: pair(&integers(at.stride), 1),
        pad: pair(&integers(at.pad), 0),
        dilation: pair(&integers(at.dilation), 1),
        groups,
        channels_last: inputs[at.input].is_channels_last(),
        transposed,
    };
    let dtype = main_dtype(inputs)?;
    let passes = if backward {
        let mask: Vec<bool> = inputs
            .get(10)
            .map(|m| m.value.split(',').map(|v| v.contains("rue")).collect())
            .unwrap_or_default();
        let wanted = |i: usize| mask.get(i).copied().unwrap_or(true);
        [(wanted(0), Pass::Dgrad), (wanted(1), Pass::Wgrad)]
            .iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, pass)| *pass)
            .collect()
    } else {
        vec![Pass::Fwd]
    };
    let calls = passes.into_iter().map(|pass| OpCall::new(Op::Conv(call), pass, dtype)).collect();
    Some(Work::of(calls, KernelFamily::Conv))
}

fn attention(name: &str, inputs: &[Input]) -> Option<Work> {
    // Operators called with [b, s, h, d]; the others take [b, h, s, d].
    let (first, sequence_first, causal_at, pass) = match name {
        "_flash_attention_forward" => (0, true, Some(8), Pass::Fwd),
        "_flash_attention_backward" => (1, true, Some(11), Pass::Bwd),
        "_efficient_attention_forward" => (0, true, None, Pass::Fwd),
        "_efficient_attention_backward" => (1, true, None, Pass::Bwd),
        "_cudnn_attention_forward" => (0, false, Some(10), Pass::Fwd),
        "_cudnn_attention_backward" => (1, false, Some(14), Pass::Bwd),
        "_scaled_dot_product_flash_attention" => (0, false, Some(4), Pass::Fwd),
        "_scaled_dot_product_efficient_attention" | "_scaled_dot_product_cudnn_attention" => {
            (0, false, Some(6), Pass::Fwd)
        }
        "_scaled_dot_product_flash_attention_backward"
        | "_scaled_dot_product_efficient_attention_backward"
        | "_scaled_dot_product_cudnn_attention_backward" => (1, false, None, Pass::Bwd),
        _ => return None,
    };
    let q = <[u64; 4]>::try_from(inputs.get(first)?.dims.as_slice()).ok()?;
    let k = <[u64; 4]>::try_from(inputs.get(first + 1)?.dims.as_slice()).ok()?;
    let (heads_at, length_at) = if sequence_first { (2, 1) } else { (1, 2) };
    // Memory-efficient attention has a mask type instead of a flag: 0 is none.
    let mask_type = match name {
        "_efficient_attention_forward" => inputs.get(9).map(Input::integers),
        "_efficient_attention_backward" => inputs.get(14).map(Input::integers),
        _ => None,
    };
    let causal = causal_at.is_some_and(|i| inputs.get(i).is_some_and(Input::is_true))
        || mask_type.is_some_and(|m| m.first().is_some_and(|&t| t > 0));
    let op = Attention {
        batch: q[0],
        heads: q[heads_at],
        kv_heads: k[heads_at],
        q_len: q[length_at],
        kv_len: k[length_at],
        head_dim: q[3],
        causal,
        dropout: false,
    };
    let dtype = main_dtype(inputs).unwrap_or(Dtype::Fp32);
    Some(Work::of(vec![OpCall::new(Op::Attention(op), pass, dtype)], KernelFamily::Attention))
}

#[cfg(test)]
mod tests {
    use super::super::tests::tensors;
    use super::super::work_of;
    use super::*;

    #[test]
    fn linear_layer() {
        let inputs = tensors(&[&[1000], &[64, 2048], &[2048, 1000]], "float", &[]);
        let work = work_of("addmm", &inputs, false).unwrap();
        // 2 * 64 * 1000 * 2048
        assert_eq!(work.flops.0, 262_144_000.0);
        assert!(matches!(work.calls[0].op, Op::Gemm(g) if g.bias && g.layout == Layout::Linear));
    }

    #[test]
    fn convolution_backward_has_the_passes_of_its_mask() {
        let scalars = [
            (4, "[2, 2]"),
            (5, "[3, 3]"),
            (6, "[1, 1]"),
            (7, "False"),
            (9, "1"),
            (10, "[False, True, False]"),
        ];
        let dims: &[&[u64]] = &[&[64, 64, 112, 112], &[64, 3, 224, 224], &[64, 3, 7, 7]];
        let work = work_of("convolution_backward", &tensors(dims, "c10::BFloat16", &scalars), true).unwrap();
        assert_eq!(work.calls.len(), 1);
        assert_eq!((work.calls[0].pass, work.calls[0].dtype), (Pass::Wgrad, Dtype::Bf16));
        // 64 images of the ResNet stem: 236,027,904 each
        assert_eq!(work.flops.0, 64.0 * 236_027_904.0);
    }

    #[test]
    fn flash_attention_takes_sequence_before_heads() {
        let dims: &[&[u64]] = &[&[16, 559, 16, 64], &[16, 559, 16, 64], &[16, 559, 16, 64]];
        let work =
            work_of("_flash_attention_forward", &tensors(dims, "c10::BFloat16", &[(8, "True")]), false)
                .unwrap();
        let Op::Attention(a) = work.calls[0].op else { panic!("not attention") };
        assert_eq!((a.heads, a.q_len, a.causal), (16, 559, true));
    }
}
