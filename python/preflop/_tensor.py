"""Tensors that say they are on a GPU and hold no data.

A `GpuTensor` is a tensor of PyTorch's meta device (sizes, format, strides, a storage without bytes) with two differences: asked
for its device it says ``cuda:0``, and its dispatch keys are those of CUDA, so that CUDA's autocast rules hold for it.
PyTorch's own C++ code sees the meta device, so nothing in it ever looks for a driver. That is the same in every version
and build of PyTorch since 2.4.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import torch
from torch.nn.utils.rnn import PackedSequence

from ._errors import CaptureError

CUDA = torch.device("cuda", 0)
META = torch.device("meta")

#: More than zero while a kernel of the meta device runs, which must see the device it works on.
_inside = [0]


class Known:
    """Whether the numbers of a storage are still known; one for all tensors of it."""

    __slots__ = ("holds",)

    def __init__(self) -> None:
        self.holds = True


class GpuTensor(torch.Tensor):
    """Sizes, format and strides of a tensor on the GPU; for small ones perhaps also the numbers (see `_values.py`)."""

    #: The numbers, as a tensor of the CPU, if they are known.
    _value: torch.Tensor | None
    _known: Known | None
    #: The session and the number of its storage there.
    _place: tuple[Any, int] | None

    @staticmethod
    def __new__(cls, meta: torch.Tensor, requires_grad: bool = False) -> GpuTensor:
        new = torch.Tensor._make_subclass(cls, meta, requires_grad, device_for_backend_keys=CUDA)
        new._value = new._known = new._place = None
        return new

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Reached only where no recording is under way.
        raise CaptureError(
            f"`{func._schema.name}` was asked of a tensor that a recording made: it has sizes but no numbers",
            hint="ask inside the `with preflop.record()` block, or run the step for real",
        )

    @property
    def device(self) -> torch.device:
        return META if _inside[0] else CUDA

    @property
    def is_cuda(self) -> bool:
        return not _inside[0]

    @property
    def is_meta(self) -> bool:
        return bool(_inside[0])

    @property
    def is_cpu(self) -> bool:
        return False

    def get_device(self) -> int:
        return -1 if _inside[0] else 0

    def data_ptr(self) -> int:
        """Tells storages apart, as an address does."""
        return self.untyped_storage()._cdata + self.storage_offset() * self.element_size()

    def value(self) -> torch.Tensor | None:
        """The numbers, if they are known."""
        return self._value if self._known is not None and self._known.holds else None

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<recorded tensor {list(self.shape)}, {self.dtype}, on the GPU>"

    __str__ = __repr__

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise CaptureError(
            "a recorded tensor can't be pickled: it has sizes but no numbers",
            hint="leave saving out of the recorded step, or save before the block",
        )


@contextlib.contextmanager
def meta_kernels() -> Iterator[None]:
    """Inside the block, GPU tensors are tensors of the meta device, and operators run its kernels."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch._C._PreserveDispatchKeyGuard():
        torch._C._set_meta_in_tls_dispatch_include(True)
        _inside[0] += 1
        try:
            yield
        finally:
            _inside[0] -= 1


def is_cuda(device: Any) -> bool:
    """Does ``device`` name a CUDA device?"""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.startswith("cuda") or device.isdigit()
    return isinstance(device, int) and not isinstance(device, bool)


def is_meta(device: Any) -> bool:
    """Does ``device`` name the meta device?"""
    return device is not None and not isinstance(device, int) and str(device).startswith("meta")


def on_gpu(value: Any) -> bool:
    """Is it a tensor on the GPU of the recording?"""
    return isinstance(value, GpuTensor)


def is_transformed(tensor: torch.Tensor) -> bool:
    """Is it a tensor of `torch.func`, which stands for one of ours?"""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Tensors among arguments, also in lists and dictionaries."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())


def any_on_gpu(values: Any) -> bool:
    """Is a tensor among arguments on the GPU?"""
    for value in values:
        if isinstance(value, GpuTensor):
            return True
        if isinstance(value, (list, tuple)) and value and any_on_gpu(value):
            return True
        if isinstance(value, dict) and any_on_gpu(value.values()):
            return True
    return False


def mapped(value: Any, fn: Callable[[torch.Tensor], Any]) -> Any:
    """``value`` with ``fn`` applied to its tensors."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, PackedSequence):
        # The sizes of its steps stay on the host.
        data = fn(value.data)
        return value if data is value.data else PackedSequence(data, *value[1:])
    if isinstance(value, (list, tuple)):
        items = [mapped(v, fn) for v in value]
        if all(a is b for a, b in zip(items, value)):
            return value
        # Named tuples take their fields one by one.
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        items = {k: mapped(v, fn) for k, v in value.items()}
        if all(items[k] is v for k, v in value.items()):
            return value
        if type(value) is dict:
            return items
        # Outputs and batches of libraries are dictionaries with more to them.
        import copy

        new = copy.copy(value)
        for k, v in items.items():
            new[k] = v
        return new
    return value
