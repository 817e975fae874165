"""Recurrent layers as cuDNN runs them: one call, whatever the number of steps and layers."""

from __future__ import annotations

from typing import Any

import torch

#: The mode number of cuDNN for each recurrent function.
_RNN_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def _lowered(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """As autocast hands it to a recurrent layer: in fp16, whatever its own format is (`_cudnn_rnn_cast_reflatten` in ATen/cudnn/AutocastRNN.cpp says `at::kHalf`)."""
    if tensor is None or not tensor.is_floating_point() or not torch.is_autocast_enabled("cuda"):
        return tensor
    return tensor.to(torch.float16)


def _padded(x: torch.Tensor, call: dict[str, Any], session: Any) -> torch.Tensor:
    """Packed sequences as if they were all of the mean length, which keeps the arithmetic and the number of steps."""
    if call["steps"] is None:
        return x
    with session.quiet(), torch.no_grad():
        steps = max(1, call["steps"])
        shape = (steps, max(1, x.size(0) // steps), x.size(1))
        return x.as_strided(shape, (shape[1] * shape[2], shape[2], 1))


class _Recurrent(torch.autograd.Function):
    """cuDNN's recurrent layers: sizes as cuDNN gives them; the session notes the operator by name."""

    @staticmethod
    def forward(ctx: Any, session: Any, call: dict[str, Any], x: torch.Tensor, *rest: torch.Tensor) -> Any:
        states, weights = rest[: call["states"]], rest[call["states"] :]
        directions = 2 if call["bidirectional"] else 1
        shown = _padded(x, call, session)
        steps_by_batch = shown.size(0) * shown.size(1)
        shape = [*x.shape[:-1], (call["projection"] or call["hidden"]) * directions]
        with session.quiet():
            outputs = [x.new_empty(shape), *(torch.empty_like(s) for s in states)]
            if call["train"] and any(ctx.needs_input_grad):
                # Gates and states of every step are kept for backward.
                kept = steps_by_batch * call["layers"] * directions * call["hidden"] * (call["gates"] + 2)
                outputs.append(x.new_empty(kept))
        cell = states[1] if len(states) > 1 else None
        tail = [call["mode"], call["hidden"], call["projection"], call["layers"], call["batch_first"], call["dropout"], call["train"]]
        tail.append(call["bidirectional"])
        session.note("aten::_cudnn_rnn", [shown, list(weights), 4, None, states[0], cell, *tail], outputs)
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
        arguments = [_padded(x, ctx.call, ctx.session), list(weights), 4, None, states[0], cell, y, *gradients, *ctx.tail]
        ctx.session.note("aten::_cudnn_rnn_backward", arguments, [*outputs, flat])
        return (None, None, *outputs, *pieces)


def recurrent(session: Any, name: str, *args: Any) -> Any:
    """``torch.lstm`` and its kin, on padded input or on packed sequences."""
    steps = None
    if isinstance(args[3], (list, tuple)):
        x, batch_sizes, hx, params, _biases, layers, dropout, train, bidirectional = args
        batch_first, steps = False, batch_sizes.numel()
    else:
        x, hx, params, _biases, layers, dropout, train, bidirectional, batch_first = args
    states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    if torch.is_autocast_enabled("cuda"):
        # cuDNN takes all weights from one flat buffer, which autocast fills anew for every call.
        x, states, params = _lowered(x), [_lowered(s) for s in states], [_lowered(p) for p in params]
    hidden = states[-1].size(-1)
    call = {
        "mode": _RNN_MODES[name],
        "gates": _GATES[name],
        "states": len(states),
        "weights": len(params),
        "hidden": hidden,
        "projection": states[0].size(-1) if states[0].size(-1) != hidden else 0,
        "layers": layers,
        "dropout": dropout,
        "train": train,
        "bidirectional": bidirectional,
        "batch_first": batch_first,
        "steps": steps,
    }
    return _Recurrent.apply(session, call, x, *states, *params)
