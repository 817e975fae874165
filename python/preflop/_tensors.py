"""Tensors in arguments, and which of them are on the (fake) GPU."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor


def is_cuda(device: Any) -> bool:
    """Does ``device`` name a CUDA device?"""
    if device is None:
        return False
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.startswith("cuda")


def on_gpu(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.fake_device.type == "cuda"


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Tensors among arguments, also in lists and dictionaries."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())


def mapped(value: Any, fn: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with ``fn`` applied to its tensors."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, (list, tuple)):
        items = [mapped(v, fn) for v in value]
        if all(a is b for a, b in zip(items, value)):
            return value
        # Named tuples take their fields one by one.
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if type(value) is dict:
        return {k: mapped(v, fn) for k, v in value.items()}
    return value
