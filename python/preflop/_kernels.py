"""What an operator would give: sizes, formats and strides of its results, by PyTorch's own kernels for the meta device."""

from __future__ import annotations

from typing import Any

import torch
import torch._meta_registrations  # noqa: F401  (kernels of the meta device that are written in Python)

from ._errors import CaptureError
from ._tensor import META, GpuTensor, mapped, meta_kernels, tensors_in

#: Bytes that an operator without a meta kernel may be given as real zeros to learn the sizes of its results.
_TRIAL_BYTES = 1 << 28


def wrapped(out: Any) -> Any:
    """Results as tensors of the GPU."""
    return mapped(out, lambda t: GpuTensor(t) if t.is_meta and not isinstance(t, GpuTensor) else t)


def _as_meta(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the host next to tensors of the GPU; numbers without dimensions may stay where they are."""
    if isinstance(tensor, GpuTensor) or tensor.device.type == "meta" or tensor.dim() == 0:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


class _NoKey(Exception):
    """An argument that results can't be kept by."""


def _key(value: Any) -> Any:
    """What results depend on: of tensors the layout, of numbers also the type (1, 1.0 and True are equal to Python)."""
    if isinstance(value, torch.Tensor):
        if not isinstance(value, GpuTensor) and value.dim() > 0 and value.device.type == "cpu":
            raise _NoKey
        return value.dtype, value.shape, value.stride(), type(value)
    if isinstance(value, (list, tuple)):
        return tuple(_key(v) for v in value)
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return type(value), value
    raise _NoKey


#: By operator: may its results be kept? By operator and arguments: layouts of the results.
_keeps: dict[Any, bool] = {}
_kept: dict[Any, Any] = {}


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The results of an operator on GPU tensors, without data. Equal calls are answered from memory."""
    keeps = _keeps.get(func)
    if keeps is None:
        schema = func._schema
        keeps = _keeps[func] = all(a.alias_info is None for a in [*schema.arguments, *schema.returns]) and bool(schema.returns)
    if not keeps:
        return _run(func, args, kwargs)
    try:
        key = (func, _key(args), tuple((k, _key(v)) for k, v in kwargs.items()))
    except _NoKey:
        return _run(func, args, kwargs)
    known = _kept.get(key)
    if known is not None:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            made = [
                None if each is None else GpuTensor(torch.empty_strided(each[0], each[1], dtype=each[2], device=META))
                for each in known[1]
            ]
        return made[0] if known[0] is None else known[0](made)
    out = _run(func, args, kwargs)
    results = [out] if isinstance(out, torch.Tensor) else out
    if isinstance(results, (list, tuple)) and all(r is None or type(r) is GpuTensor for r in results):
        places = [t.untyped_storage()._cdata for t in tensors_in((args, kwargs, results))]
        own = [t.untyped_storage()._cdata for t in tensors_in((results,))]
        if any(places.count(p) > 1 for p in own):
            # It gives a view though its schema does not say so.
            _keeps[func] = False
        elif len(_kept) < 1 << 16:
            layouts = [None if r is None else (r.shape, r.stride(), r.dtype) for r in results]
            _kept[key] = (None if isinstance(out, torch.Tensor) else type(out) if type(out) in (list, tuple) else tuple, layouts)
    return out


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": META}
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    kernel = _python_kernels.get(func, func)
    try:
        with meta_kernels():
            out = kernel(*[mapped(a, _as_meta) for a in args], **{k: mapped(v, _as_meta) for k, v in kwargs.items()})
    except NotImplementedError:
        found = _python_kernel(func) if kernel is func else None
        if found is None:
            return _tried(func, args, kwargs)
        _python_kernels[func] = found
        return _run(func, args, kwargs)
    return wrapped(out)


#: Kernels of the meta device that this PyTorch has but its dispatcher does not find.
_python_kernels: dict[Any, Any] = {}


def _python_kernel(func: Any) -> Any:
    from torch import _decomp

    return _decomp.meta_table.get(func) or _decomp.decomposition_table.get(func) or _ATTENTION.get(func)


def _attention(query: Any, key: Any, value: Any) -> torch.Tensor:
    """[batch, heads, queries, width], laid out as [batch, queries, heads, width]."""
    batch, heads, queries, _ = query.shape
    return query.new_empty(batch, queries, heads, value.size(-1)).transpose(1, 2)


def _efficient(query: Any, key: Any, value: Any, bias: Any, statistics: bool, *rest: Any, **kwargs: Any) -> Any:
    rows = -(-query.size(2) // 32) * 32 if statistics else 0
    sums = query.new_empty(query.size(0), query.size(1), rows, dtype=torch.float32)
    seeds = [query.new_empty((), dtype=torch.int64) for _ in range(2)]
    return _attention(query, key, value), sums, *seeds


def _flash(query: Any, key: Any, value: Any, *rest: Any, **kwargs: Any) -> Any:
    sums = query.new_empty(query.shape[:3], dtype=torch.float32)
    seeds = [query.new_empty((), dtype=torch.int64) for _ in range(2)]
    lengths = (None, None, query.size(2), key.size(2))
    return _attention(query, key, value), sums, *lengths, *seeds, query.new_empty(0)


#: PyTorch before 2.5 knows these sizes in its own fake tensors only.
_ATTENTION = {
    torch.ops.aten._scaled_dot_product_efficient_attention.default: _efficient,
    torch.ops.aten._scaled_dot_product_flash_attention.default: _flash,
}


def _tried(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator that has no meta kernel: run on real zeros of the CPU, which tell the sizes of the results."""
    name = func._schema.name
    if name.endswith("_") and func._schema.returns == []:
        return None
    total = sum(t.numel() * t.element_size() for t in tensors_in((args, kwargs)))
    if total > _TRIAL_BYTES:
        raise CaptureError(
            f"the sizes of the results of `{name}` are not known, and its arguments are too large to try it ({total >> 20} MiB)",
            hint="record it with a smaller input",
        )

    def real(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, GpuTensor):
            return tensor
        known = tensor.value()
        if known is not None:
            return known.clone()
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    given = {id(t): (t, real(t)) for t in tensors_in((args, kwargs))}
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    try:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            out = func(*mapped(list(args), lambda t: given[id(t)][1]), **mapped(kwargs, lambda t: given[id(t)][1]))
    except Exception as error:
        raise CaptureError(
            f"`{name}` can't be recorded: PyTorch {torch.__version__} knows the sizes of its results only on a GPU",
            hint="leave it out of the recorded block, or write it with other operators",
        ) from error

    def back(tensor: torch.Tensor) -> torch.Tensor:
        for before, stand_in in given.values():
            if tensor is stand_in:
                return before
        return GpuTensor(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META))

    with meta_kernels():
        return mapped(out, back)
