"""Calls whose CUDA implementation is chosen by looking at a real device: attention and recurrent layers.

Fake tensors have no device to look at, so the choice is made here as PyTorch makes it on a recent NVIDIA GPU.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch

aten = torch.ops.aten

#: The mode number of cuDNN for each recurrent function.
_RNN_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def _lowered(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """As autocast hands it to a product."""
    if tensor is None or not tensor.is_floating_point() or not torch.is_autocast_enabled("cuda"):
        return tensor
    return tensor.to(torch.get_autocast_dtype("cuda"))


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


def attention(
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
    """``scaled_dot_product_attention``: cuDNN's kernel in half precision, the memory-efficient one in fp32.

    fp32 with fewer key heads than query heads, and masks that the fused kernels can't take (they need a gradient, or their
    rows don't lie together), fall back to plain products. Read off traces of PyTorch 2.11 on an H200.
    """
    value, key, query = _lowered(value), _lowered(key), _lowered(query)
    attn_mask = _lowered(attn_mask)
    with torch.autocast("cuda", enabled=False):
        half = query.dtype in (torch.float16, torch.bfloat16)
        grouped = enable_gqa and query.size(-3) != key.size(-3)
        unfit = attn_mask is not None and (attn_mask.requires_grad or attn_mask.stride(-1) != 1)
        if query.dim() != 4 or unfit or (grouped and not half) or query.dtype == torch.float64:
            return aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
            )[0]
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                zeros = torch.zeros_like(attn_mask, dtype=query.dtype)
                attn_mask = zeros.masked_fill_(attn_mask.logical_not(), float("-inf"))
            attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
        needs_statistics = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        if half:
            return aten._scaled_dot_product_cudnn_attention(
                query, key, value, attn_mask, needs_statistics, dropout_p, is_causal, False, scale=scale
            )[0]
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, needs_statistics, dropout_p, is_causal, scale=scale
        )[0]


class _Recurrent(torch.autograd.Function):
    """cuDNN's recurrent layers: sizes as cuDNN gives them; the session notes the operator by name."""

    @staticmethod
    def forward(ctx: Any, session: Any, call: dict[str, Any], x: torch.Tensor, *rest: torch.Tensor) -> Any:
        states, weights = rest[: call["states"]], rest[call["states"] :]
        directions = 2 if call["bidirectional"] else 1
        batch_at, time_at = (0, 1) if call["batch_first"] else (1, 0)
        shape = list(x.shape)
        steps, batch = shape[time_at], shape[batch_at]
        shape[2] = call["hidden"] * directions
        with session.quiet():
            outputs = [x.new_empty(shape), *(torch.empty_like(s) for s in states)]
            if call["train"] and any(ctx.needs_input_grad):
                # Gates and states of every step are kept for backward.
                kept = steps * batch * call["layers"] * directions * call["hidden"] * (call["gates"] + 2)
                outputs.append(x.new_empty(kept))
        cell = states[1] if len(states) > 1 else None
        tail = [call["mode"], call["hidden"], 0, call["layers"], call["batch_first"], call["dropout"], call["train"]]
        tail.append(call["bidirectional"])
        session.note("aten::_cudnn_rnn", [x, list(weights), 4, None, states[0], cell, *tail], outputs)
        ctx.save_for_backward(x, outputs[0], *states, *weights, *outputs[1 + len(states) :])
        ctx.session, ctx.call, ctx.tail = session, call, tail
        ctx.set_materialize_grads(False)
        return tuple(outputs[: 1 + len(states)])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, y, *rest = ctx.saved_tensors
        if grads[0] is None:
            grads = (torch.zeros_like(y), *grads[1:])
        states, weights = rest[: ctx.call["states"]], rest[ctx.call["states"] :]
        weights = weights[: ctx.call["weights"]]
        with ctx.session.quiet():
            flat = x.new_empty(sum(w.numel() for w in weights))
            pieces, offset = [], 0
            for w in weights:
                pieces.append(flat[offset : offset + w.numel()].view(w.shape))
                offset += w.numel()
            outputs = [torch.empty_like(x), *(torch.empty_like(s) for s in states)]
        cell = states[1] if len(states) > 1 else None
        gradients = [grads[0], grads[1], grads[2] if len(grads) > 2 else None]
        arguments = [x, list(weights), 4, None, states[0], cell, y, *gradients, *ctx.tail]
        ctx.session.note("aten::_cudnn_rnn_backward", arguments, [*outputs, flat])
        return (None, None, *outputs, *pieces)


def recurrent(session: Any, name: str, args: Sequence[Any]) -> Any:
    """``torch.lstm`` and its kin on padded input; packed sequences are refused by returning ``None``."""
    x, hx, params, _biases, layers, dropout, train, bidirectional, batch_first = args
    if not isinstance(params, (list, tuple)):
        return None
    states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    if torch.is_autocast_enabled("cuda"):
        # cuDNN takes all weights from one flat buffer, which autocast fills anew for every call.
        x, states, params = _lowered(x), [_lowered(s) for s in states], [_lowered(p) for p in params]
    call = {
        "mode": _RNN_MODES[name],
        "gates": _GATES[name],
        "states": len(states),
        "weights": len(params),
        "hidden": states[0].size(2),
        "layers": layers,
        "dropout": dropout,
        "train": train,
        "bidirectional": bidirectional,
        "batch_first": batch_first,
    }
    return _Recurrent.apply(session, call, x, *states, *params)
