//! Kernels that a compiler fused, as our operator.

use super::super::document::FusedKernel;
use super::super::view::{Call, Tensor};
use preflop_ops::{Fused, FusedForm, FusedTraits, Op, OpCall};
use preflop_units::dtype::Dtype;

/// Functions with much arithmetic, as they stand in a kernel's name.
const FUNCTIONS: [&str; 5] = ["gelu", "silu", "sigmoid", "tanh", "softmax"];
/// Rows longer than this beside rows of a few values: an image that becomes channels-last.
const NARROW_FROM: u64 = 1000;

/// Does a name hold a word that no letter stands before (`silu` but not `xsilu`)?
fn holds(name: &str, word: &str) -> bool {
    name.match_indices(word).any(|(at, _)| {
        name.get(..at).and_then(|s| s.chars().next_back()).is_none_or(|c| !c.is_ascii_lowercase())
    })
}

fn form(kernel: &FusedKernel) -> FusedForm {
    match kernel.form.as_str() {
        "pointwise" if kernel.tiled_2d => FusedForm::Tiled,
        "pointwise" => FusedForm::Pointwise,
        "persistent_reduction" => FusedForm::Persistent,
        "reduction" | "cooperative_reduction" | "split_scan" => match kernel.hint.as_deref() {
            Some("inner" | "default") => FusedForm::LoopedInner,
            _ => FusedForm::LoopedOuter,
        },
        _ => FusedForm::Template,
    }
}

/// Bytes of a tensor that exist: what is repeated by a stride of 0 is there once.
fn held(tensor: &Tensor<'_>) -> u64 {
    let places = tensor.sizes.iter().zip(tensor.strides).filter(|(_, stride)| **stride > 0);
    let elements = places.fold(1_u64, |n, (size, _)| n.saturating_mul(*size));
    (elements as f64 * tensor.dtype.size()) as u64
}

/// One launch.
pub(super) fn launch(kernel: &FusedKernel, call: &Call<'_>) -> OpCall {
    let (inputs, outputs) = (call.inputs(), call.outputs());
    let read: u64 = inputs.iter().map(held).sum();
    let written: u64 = outputs.iter().map(held).sum();
    let touched = read.saturating_add(written);
    // The compiler counts what slices and gathers touch, but counts overlapping windows again.
    let bytes = kernel.bytes.min(touched);
    let share = if touched > 0 { written as f64 / touched as f64 } else { 0.0 };
    let written = (bytes as f64 * share) as u64;
    let tiled = kernel.tiled_2d && kernel.form == "pointwise";
    let row = kernel.elements / kernel.y.unwrap_or(1).max(1);
    let functions = FUNCTIONS.iter().filter(|f| holds(&kernel.kernel, f)).count().min(2) as u8;
    let traits = FusedTraits {
        functions,
        random: kernel.random,
        atomics: kernel.atomics,
        pooling_gradient: kernel.kernel.contains("max_pool2d_with_indices_backward"),
        online_softmax: kernel.kernel.contains("softmax_online"),
        narrow: tiled && row > NARROW_FROM && kernel.kernel.contains("_to_copy"),
    };
    let op = Fused {
        form: form(kernel),
        read: bytes - written.min(bytes),
        written,
        elements: kernel.elements.max(1),
        reduced: kernel.reduced.max(1),
        loads: kernel.loads,
        stores: kernel.stores,
        traits,
    };
    let dtype = outputs.first().or(inputs.first()).map_or(Dtype::Fp32, |t| t.dtype);
    OpCall::fwd(Op::Fused(op), dtype)
}
