"""Numbers of small tensors, computed for real on the CPU.

Programs look at position ids, masks, lengths and flags to decide what to run next. As long as such numbers come from what the
program itself says (ranges, constants, small integer inputs, random draws), they are computed beside the recording; what
a network computes is not known.
"""

from __future__ import annotations

from typing import Any

import torch

from ._tensor import GpuTensor, Known, any_on_gpu, mapped, tensors_in

#: Elements of integers and flags that are computed, and of other numbers.
_WHOLE, _REAL = 1 << 20, 1 << 14

_UNKNOWN = ("aten::empty", "aten::new_empty", "aten::_efficientzerotensor", "aten::resize_", "aten::set_")
_RANDOM = ("rand", "normal", "uniform", "bernoulli", "multinomial", "exponential", "geometric", "cauchy", "poisson")

#: By a known operand that decides alone: zeros in a conjunction, ones in a disjunction.
_DECIDED = {"bitwise_and": 0, "logical_and": 0, "mul": 0, "bitwise_or": 1, "logical_or": 1}


def small(tensor: torch.Tensor) -> bool:
    """May the numbers of such a tensor be carried along?"""
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    return tensor.numel() <= (_WHOLE if whole else _REAL)


def give(tensor: GpuTensor, value: torch.Tensor, known: Known | None = None) -> None:
    """Says what the numbers of a tensor are."""
    tensor._value, tensor._known = value, known or Known()


def spoil(tensors: Any) -> None:
    """The numbers of these tensors, and of all that share their storage, are not known any more."""
    for tensor in tensors_in(tensors):
        if isinstance(tensor, GpuTensor) and tensor._known is not None:
            tensor._known.holds = False


def _real(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.value() if isinstance(tensor, GpuTensor) else tensor


class Values:
    """Computes beside the recording."""

    def __init__(self) -> None:
        #: Draws are the same in every recording.
        self.generator = torch.Generator()
        self.generator.manual_seed(0)

    def follow(self, func: Any, name: str, args: Any, kwargs: dict[str, Any], out: Any, written: list[Any]) -> None:
        """After ``func`` gave ``out``: computes its numbers if all that it read is known, else forgets what it wrote."""
        numbers = None
        results = list(tensors_in([out]))
        if results and all(small(t) for t in results) and not name.startswith(_UNKNOWN):
            numbers = self._computed(func, name, args, kwargs, results)
        if numbers is None:
            spoil(written)
            return
        inputs = [t for t in tensors_in((args, kwargs)) if isinstance(t, GpuTensor) and t._known is not None]
        for result, number in zip(results, tensors_in([numbers])):
            if isinstance(result, GpuTensor) and number.shape == result.shape:
                place = number.untyped_storage()._cdata
                same = [t._known for t in inputs if t._value.untyped_storage()._cdata == place]
                give(result, number, same[0] if same else None)

    def _computed(self, func: Any, name: str, args: Any, kwargs: dict[str, Any], results: list[Any]) -> Any:
        stem = name.removeprefix("aten::").rstrip("_")
        known: list[torch.Tensor | None] = [_real(t) for t in tensors_in((args, kwargs))]
        if any(k is None for k in known):
            return self._decided(stem, args, results)
        if not known and not any_on_gpu(results):
            return None
        if any(k is not None and k.device.type != "cpu" for k in known):
            return None
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        if stem.startswith(_RANDOM) and "generator" in {a.name for a in func._schema.arguments}:
            kwargs = {**kwargs, "generator": self.generator}
        try:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
                return func(*mapped(list(args), _real), **mapped(kwargs, _real))
        except Exception:  # noqa: BLE001  (a number that the CPU can't give is one that is not known)
            return None

    def _decided(self, stem: str, args: Any, results: list[Any]) -> Any:
        """What is certain though not all operands are known."""
        result = results[0]
        flag = result.dtype in (torch.bool, torch.int64, torch.int32)
        if stem in ("eq", "ne") and len(args) == 2:
            # Computed numbers are taken to be finite: x == x, x != inf.
            same = args[0] is args[1] or (args[1] in (float("inf"), float("-inf")) if isinstance(args[1], float) else False)
            if same:
                holds = (stem == "eq") == (args[0] is args[1])
                return torch.full(result.shape, holds, dtype=result.dtype)
        if flag and stem in _DECIDED and len(args) == 2:
            wanted = _DECIDED[stem]
            for operand in tensors_in(args):
                value = _real(operand)
                if value is not None and value.numel() > 0 and bool((value == wanted).all()):
                    return torch.full(result.shape, wanted, dtype=result.dtype)
        return None
