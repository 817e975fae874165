"""Operators whose results only data would tell: sizes by known numbers where there are any, else by assumption."""

from __future__ import annotations

from typing import Any, Callable

import torch

from . import _assume
from ._kernels import run
from ._tensor import META, GpuTensor
from ._values import give

Handler = Callable[[Any, Any, Any, dict[str, Any]], Any]

#: By name of the operator.
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return add


def new(shape: Any, dtype: torch.dtype = torch.int64) -> GpuTensor:
    """A tensor of the GPU, made without an operator."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return GpuTensor(torch.empty(tuple(shape), dtype=dtype, device=META))


def _share(session: Any, name: str, tensor: torch.Tensor, share: float, what: str) -> int:
    count = round(share * tensor.numel())
    session.assumed(name, f"{what}: {share:g} of {tensor.numel():,} elements", count)
    return count


def value_of(tensor: Any) -> torch.Tensor | None:
    """The numbers of a tensor, if they are known."""
    return tensor.value() if isinstance(tensor, GpuTensor) else tensor


def set_elements(session: Any, mask: torch.Tensor, name: str) -> int:
    """How many elements of a mask are set."""
    known = value_of(mask)
    if known is not None:
        return int(torch.count_nonzero(known))
    return _share(session, name, mask, _assume.current().nonzero, "set in the mask")


def indices_of(session: Any, mask: torch.Tensor, name: str) -> list[torch.Tensor]:
    """A mask as one list of indices for each of its dimensions, which is what the GPU makes of it first."""
    out = _nonzero(session, None, (mask,), {}, name)
    session.note("aten::nonzero", [mask], [out])
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return [new([out.size(0)]) for _ in range(mask.dim())]


@handles("aten::nonzero")
def _nonzero(session: Any, func: Any, args: Any, kwargs: dict[str, Any], name: str = "nonzero") -> Any:
    mask = args[0]
    out = new([set_elements(session, mask, name), mask.dim()])
    known = value_of(mask)
    if known is not None and out.numel() <= 1 << 20:
        with torch._C._DisableTorchDispatch():
            give(out, torch.nonzero(known))
    return out


@handles("aten::masked_select")
def _masked_select(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return new([set_elements(session, args[1], "masked_select")], args[0].dtype)


def _masks_replaced(session: Any, args: Any, name: str) -> list[Any]:
    indices: list[Any] = []
    for index in args[1]:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            indices += indices_of(session, index, name)
        else:
            indices.append(index)
    return [args[0], indices, *args[2:]]


@handles("aten::index")
def _index(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return run(func, _masks_replaced(session, args, "index by a mask"), kwargs)


@handles("aten::index_put_", "aten::index_put", "aten::_index_put_impl_", "aten::_unsafe_index_put")
def _index_put(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    values = args[2]
    if values.numel() > 1 and values.dim() > 0:
        args = _masks_replaced(session, args, "assignment by a mask")
    if func._schema.name.endswith("_"):
        return args[0]
    return run(torch.ops.aten.clone.default, (args[0],), {})


@handles("aten::_unique2", "aten::_unique", "aten::unique_dim", "aten::unique_consecutive", "aten::unique_dim_consecutive")
def _unique(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    x = args[0]
    by_dim = "dim" in func._schema.name
    dim = args[1] if by_dim else (args[3] if len(args) > 3 else kwargs.get("dim"))
    along = x.size(dim) if dim is not None else x.numel()
    known = value_of(x)
    if known is not None:
        count = int(torch.unique(known, dim=dim).size(dim or 0) if dim is not None else torch.unique(known).numel())
    else:
        share = _assume.current().unique
        count = round(share * along)
        session.assumed("unique", f"different: {share:g} of {along:,} elements", count)
    shape = [count]
    if dim is not None:
        shape = list(x.shape)
        shape[dim] = count
    inverse = [along] if dim is not None else x.shape
    out = (new(shape, x.dtype), new(inverse), new([count]))
    return out[:2] if func._schema.name == "aten::_unique" else out


@handles("aten::repeat_interleave")
def _repeat_interleave(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    repeats = args[0]
    size = kwargs.get("output_size", args[1] if len(args) > 1 else None)
    known = value_of(repeats)
    if size is None and known is not None:
        size = int(known.sum())
    if size is None:
        each = _assume.current().repeats
        size = round(each * repeats.numel())
        session.assumed("repeat_interleave", f"repeated: each of {repeats.numel():,} elements {each:g} times", size)
    return new([size], repeats.dtype)


@handles("aten::bincount")
def _bincount(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    least = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
    known = value_of(args[0])
    size = max(least, 1 + int(known.max()) if known is not None and known.numel() else 0)
    if known is None and least == 0:
        size = args[0].numel()
        session.assumed("bincount", "bins: as many as elements", size)
    weights = kwargs.get("weights", args[1] if len(args) > 1 else None)
    return new([size], torch.int64 if weights is None else torch.float64)


@handles("torchvision::nms")
def _nms(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    boxes, share = args[0].size(0), _assume.current().nms
    count = round(share * boxes)
    session.assumed("nms", f"boxes kept: {share:g} of {boxes:,}", count)
    return new([count])


@handles("aten::_pack_padded_sequence")
def _pack_padded(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    x, lengths, batch_first = args
    known = value_of(lengths)
    steps, batch = (x.size(1), x.size(0)) if batch_first else (x.size(0), x.size(1))
    if known is None:
        known = torch.full((batch,), steps)
        session.assumed("pack_padded_sequence", f"lengths: the whole {steps:,} steps", batch * steps)
    sizes = (torch.arange(int(known.max()))[:, None] < known[None, :]).sum(1)
    return new([int(known.sum()), *x.shape[2:]], x.dtype), sizes


@handles("aten::_pack_padded_sequence_backward")
def _pack_padded_backward(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return new(args[1], args[0].dtype)


@handles("aten::_ctc_loss")
def _ctc_loss(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    log_probs, targets, input_lengths, target_lengths = args[:4]
    longest = targets.size(1) if targets.dim() == 2 else max(target_lengths, default=0)
    steps, batch, _ = log_probs.shape if log_probs.dim() == 3 else (log_probs.size(0), 1, log_probs.size(1))
    return new([batch], log_probs.dtype), new([batch, steps, 2 * int(longest) + 1], log_probs.dtype)


@handles("aten::_ctc_loss_backward")
def _ctc_loss_backward(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return new(args[1].shape, args[1].dtype)


@handles("aten::equal")
def _equal(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    known = [value_of(a) for a in args]
    if all(k is not None for k in known):
        return bool(torch.equal(*known))
    return session.number(args[0], torch.bool)


@handles("aten::cudnn_grid_sampler")
def _grid_sampler(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    maps, grid = args[:2]
    return new([*maps.shape[:2], *grid.shape[1:-1]], maps.dtype)


@handles("aten::cudnn_grid_sampler_backward")
def _grid_sampler_backward(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return new(args[0].shape, args[0].dtype), new(args[1].shape, args[1].dtype)


@handles("aten::_cudnn_rnn_flatten_weight")
def _flatten_weight(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return new([sum(w.numel() for w in args[0])], args[0][0].dtype)


@handles("aten::_assert_async", "aten::_functional_assert_async", "aten::_linalg_check_errors", "aten::record_stream")
def _nothing(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return None

