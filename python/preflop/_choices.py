"""What PyTorch chooses by looking at the device, chosen here as on a recent NVIDIA GPU.

Composite operators (`batch_norm`, `dropout`, attention, ..) pick a kernel in C++ by the device of their arguments. For recorded
tensors these picks are made here, each as its C++ source makes it; they are registered with PyTorch's dispatcher for the length of a
recording, so that they hold wherever the operator is called from.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import torch

from ._recurrent import recurrent
from ._sizes import value_of
from ._tensor import META, GpuTensor

aten = torch.ops.aten


def _lies_channels_last(tensor: torch.Tensor | None) -> bool:
    if tensor is None or tensor.dim() != 4 or tensor.dtype == torch.float64:
        return False
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def convolution_layout(name: str, args: Sequence[Any], out: Any) -> Any:
    """The results of a convolution in the layout that cuDNN gives them: channels-last if an operand lies so.

    Fake tensors come out row-major, since their convolution asks a device that is not there.
    """
    if name == "aten::convolution":
        if _lies_channels_last(args[0]) or _lies_channels_last(args[1]):
            return torch.empty_like(out, memory_format=torch.channels_last)
        return out
    # (grad, input, weight, ..) to (grad_input, grad_weight, grad_bias)
    if not any(map(_lies_channels_last, args[:3])):
        return out
    return tuple(
        torch.empty_like(t, memory_format=torch.channels_last) if t is not None and t.dim() == 4 else t for t in out
    )


def batch_norm(
    session: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Any:
    """cuDNN's kernel where it has one (`_select_batch_norm_backend`), else PyTorch's own."""
    half = torch.bfloat16 in (x.dtype, weight.dtype if weight is not None else None)
    mixed = x.dtype == torch.float16 and (weight is None or weight.dtype != torch.float32)
    statistics = (mean is not None and var is not None) or (mean is None and var is None and training)
    fits = x.dim() >= 3 and x.size(0) <= (880801 if training else 65535) and x.numel() < 2**31 - 1
    if not half and not mixed and weight is not None and bias is not None and statistics and fits and eps >= 1e-5 and cudnn:
        return aten.cudnn_batch_norm(x, weight, bias, mean, var, training, momentum, eps)[0]
    return aten.native_batch_norm(x, weight, bias, mean, var, training, momentum, eps)[0]


def dropout(session: Any, x: Any, p: float, train: bool) -> Any:
    """One fused kernel."""
    if p == 0 or not train or x.numel() == 0:
        return x
    if p == 1:
        return x.mul(torch.zeros((), dtype=x.dtype, device=META))
    return aten.native_dropout(x, p, train)[0]


def _softmax(op: Any, session: Any, x: Any, dim: int, dtype: torch.dtype | None = None) -> Any:
    """fp16 becomes fp32 inside the kernel; other formats are converted first."""
    if x.dtype == torch.float16 and dtype == torch.float32:
        return op(x, dim, True)
    return op(x if dtype is None else x.to(dtype), dim, False)


def grid_sampler(session: Any, x: Any, grid: Any, interpolation: int, padding: int, align: bool) -> Any:
    """cuDNN's sampler for fp32 maps with bilinear interpolation, zeros around and aligned corners."""
    if x.dtype == torch.float32 and x.dim() == 4 and x.size(1) <= 1024 and (interpolation, padding, align) == (0, 0, True):
        return aten.cudnn_grid_sampler(x, grid)
    op = aten.grid_sampler_2d if x.dim() == 4 else aten.grid_sampler_3d
    return op(x, grid, interpolation, padding, align)


def _gates(x: Any, hidden: Any, w_ih: Any, w_hh: Any) -> tuple[Any, Any]:
    return torch.matmul(x, w_ih.t()), torch.matmul(hidden, w_hh.t())


def lstm_cell(session: Any, x: Any, states: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """Two products and one fused kernel."""
    return aten._thnn_fused_lstm_cell(*_gates(x, states[0], w_ih, w_hh), states[1], b_ih, b_hh)[:2]


def gru_cell(session: Any, x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """Two products and one fused kernel."""
    return aten._thnn_fused_gru_cell(*_gates(x, state, w_ih, w_hh), state, b_ih, b_hh)[0]


def weight_norm(session: Any, v: Any, g: Any, dim: int = 0) -> Any:
    """Fused where the norm runs over all but the first or the last dimension."""
    if v.dtype not in (torch.float16, torch.bfloat16) and dim in (0, v.dim() - 1):
        return aten._weight_norm_interface(v, g, dim)[0]
    return v * (g / torch.norm_except_dim(v, 2, dim))


def ctc_loss(
    session: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: int = 1, zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """PyTorch's own kernel, which runs for targets on the GPU; lengths that are not known are the longest."""

    def listed(lengths: Any, longest: int) -> list[int]:
        if not isinstance(lengths, torch.Tensor):
            return list(lengths)
        known = value_of(lengths)
        if known is not None:
            return known.tolist()
        session.assumed("ctc_loss", f"lengths: the longest, {longest}", lengths.numel())
        return [longest] * lengths.numel()

    inputs = listed(input_lengths, log_probs.size(0))
    words = targets.size(1) if targets.dim() == 2 else targets.numel() // max(1, len(inputs))
    lengths = listed(target_lengths, words)
    loss = aten._ctc_loss(log_probs, targets, inputs, lengths, blank, zero_infinity)[0]
    if zero_infinity:
        loss = torch.where(loss == float("inf"), torch.zeros((), dtype=loss.dtype, device=META), loss)
    if reduction == 1:
        sizes = torch.tensor(lengths, dtype=loss.dtype).to(META).clamp_min(1)
        return (loss / sizes).mean()
    return loss.sum() if reduction == 2 else loss


def _enabled(name: str) -> bool:
    return getattr(torch._C, f"_get_{name}_sdp_enabled", lambda: False)()


#: cuDNN's attention goes first since this version; before, flash attention did.
_CUDNN_FIRST = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 9)

#: Elements at whose multiples the memory-efficient kernel wants the rows of a mask to begin.
_MASK_ROWS = 8


def attention(
    session: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """``scaled_dot_product_attention``: in half precision cuDNN's kernel or flash attention, in fp32 the memory-efficient one, among
    those that ``torch.nn.attention.sdpa_kernel`` leaves.

    fp32 with fewer key heads than query heads, key heads that would have to be broadcast, heads whose features don't lie together (transposed ones) and masks whose rows
    don't lie together fall back to plain products. A mask that needs a gradient gets one from the memory-efficient kernel alone, in every format. Read off traces of
    PyTorch 2.11 on an H200 (tools/measure/gaps.py --probe).
    """
    half = query.dtype in (torch.float16, torch.bfloat16)
    grouped = enable_gqa and query.size(-3) != key.size(-3)
    unfit = attn_mask is not None and attn_mask.stride(-1) != 1
    learned = attn_mask is not None and attn_mask.requires_grad and torch.is_grad_enabled()
    apart = any(t.stride(-1) != 1 and t.size(-1) > 1 for t in (query, key, value))
    # One key head for all query heads is broadcast, which only plain products do.
    alike = grouped or query.dim() != 4 or all(t.shape[:2] == query.shape[:2] for t in (key, value))
    fused = query.dim() == 4 and alike and not unfit and not apart and query.dtype != torch.float64
    needs_statistics = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    order = ("cudnn", "flash", "mem_efficient") if _CUDNN_FIRST else ("flash", "mem_efficient", "cudnn")
    can = {
        "cudnn": half and not learned and query.size(-1) <= 256,
        "flash": half and attn_mask is None and query.size(-1) <= 256,
        "mem_efficient": not grouped,
    }
    kernel = next((k for k in order if fused and can[k] and _enabled(k)), None)
    if kernel is None:
        if not _enabled("math") and fused:
            raise RuntimeError("No available kernel. Aborting execution.")
        extra = {"enable_gqa": enable_gqa} if enable_gqa else {}
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, **extra
        )[0]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            # `convert_boolean_attn_mask`: a choice between two constants.
            device = META if isinstance(attn_mask, GpuTensor) else attn_mask.device
            allowed, hidden = (torch.full((), value, dtype=query.dtype, device=device) for value in (0.0, float("-inf")))
            attn_mask = torch.where(attn_mask, allowed, hidden)
        if kernel == "mem_efficient":
            # Its rows begin at multiples of eight elements: `pad_bias`.
            if any(stride % _MASK_ROWS for stride in attn_mask.stride()[:-1]):
                keys = attn_mask.size(-1)
                attn_mask = torch.nn.functional.pad(attn_mask, (0, _MASK_ROWS - keys % _MASK_ROWS))[..., :keys]
            # cuDNN's kernel expands it inside; a compiler would write out what is expanded before.
            attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    if kernel == "cudnn":
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, attn_mask, needs_statistics, dropout_p, is_causal, False, scale=scale
        )[0]
    if kernel == "flash":
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, needs_statistics, dropout_p, is_causal, scale=scale
    )[0]


#: By overload of the composite operator.
CHOICES: dict[str, Callable[..., Any]] = {
    "batch_norm": batch_norm,
    "dropout": dropout,
    "softmax.int": functools.partial(_softmax, aten._softmax),
    "log_softmax.int": functools.partial(_softmax, aten._log_softmax),
    "grid_sampler": grid_sampler,
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    "_weight_norm": weight_norm,
    "ctc_loss.IntList": ctc_loss,
    "ctc_loss.Tensor": ctc_loss,
    "scaled_dot_product_attention": attention,
}
for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    for _form in ("input", "data"):

        def _layers(session: Any, *args: Any, name: str = _name) -> Any:
            return recurrent(session, name, *args)

        CHOICES[f"{_name}.{_form}"] = _layers


def install(session: Any, library: Any) -> dict[Any, Callable[..., Any]]:
    """Registers the choices; gives them by operator for where autograd is off altogether."""
    chosen = {}
    for name, choice in CHOICES.items():
        op, _, overload = name.partition(".")
        if not hasattr(aten, op):
            continue
        function = functools.partial(choice, session)
        library.impl(name, _named(function), "AutogradCUDA")
        chosen[getattr(getattr(aten, op), overload or "default")] = function
    return chosen


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """The dispatcher takes functions, not partial applications."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return kernel


__all__ = ["CHOICES", "convolution_layout", "install"]
