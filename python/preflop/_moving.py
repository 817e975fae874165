"""Bringing models, their inputs and their optimizers to the GPU of the recording, and back when the recording ends."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import weakref
from typing import Any, Callable, Iterator

import torch

from ._errors import CaptureError
from ._tensor import META, GpuTensor, is_transformed, mapped, on_gpu
from ._values import give, small

#: Number format that weights are recorded in, if not their own.
_weights_dtype: contextvars.ContextVar[torch.dtype | None] = contextvars.ContextVar("weights_dtype", default=None)


@contextlib.contextmanager
def weights_as(dtype: torch.dtype | None) -> Iterator[None]:
    """Inside the block, models are recorded as if their weights had been cast to ``dtype``."""
    token = _weights_dtype.set(dtype)
    try:
        yield
    finally:
        _weights_dtype.reset(token)

def _kinds(kind: type) -> set[type]:
    """A class and all that derive from it."""
    return {kind}.union(*(_kinds(k) for k in kind.__subclasses__()))


class Moving:
    """What a session does with tensors that are not on the GPU yet."""

    # Of the session.
    optimizers: weakref.WeakSet[torch.optim.Optimizer] | None
    moved: dict[int, torch.Tensor]
    kept: list[torch.Tensor]
    parameters: dict[int, torch.Tensor]
    parameter_elements: int
    undo: list[Callable[[], None]]
    quiet: Callable[[], contextlib.AbstractContextManager[None]]
    mark: Callable[[torch.Tensor, str], None]

    def to_gpu(self, tensor: torch.Tensor, kind: str = "input") -> torch.Tensor:
        """The recorded tensor that stands for a tensor elsewhere; always the same one."""
        if on_gpu(tensor) or is_transformed(tensor):
            return tensor
        known = self.moved.get(id(tensor))
        if known is not None:
            return known
        if hasattr(type(tensor), "__tensor_flatten__"):
            return self._parts_to_gpu(tensor, kind)
        if tensor.layout != torch.strided:
            raise CaptureError(f"a tensor of layout {tensor.layout} can't be recorded")
        dtype = tensor.dtype
        if kind in ("weight", "buffer") and tensor.is_floating_point():
            dtype = _weights_dtype.get() or dtype
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=META)
            new = GpuTensor(meta, tensor.requires_grad and (is_parameter or tensor.is_leaf))
            if kind != "weight" and tensor.device.type == "cpu" and small(tensor):
                give(new, tensor.detach().to(dtype, copy=True))
        new._is_param = is_parameter
        self.moved[id(tensor)] = new
        self.kept.append(tensor)
        self.mark(new, kind)
        return new

    def _parts_to_gpu(self, tensor: torch.Tensor, kind: str) -> torch.Tensor:
        """A tensor made of others (DTensor, quantized weights): its parts go."""
        names, context = tensor.__tensor_flatten__()
        parts = {name: getattr(tensor, name) for name in names}
        moved = {n: self.to_gpu(p, kind) if isinstance(p, torch.Tensor) else p for n, p in parts.items()}
        if all(moved[name] is parts[name] for name in names):
            return tensor
        new = type(tensor).__tensor_unflatten__(moved, context, tensor.size(), tensor.stride())
        if isinstance(tensor, torch.nn.Parameter):
            new = torch.nn.Parameter(new, tensor.requires_grad)
        self.moved[id(tensor)] = new
        self.kept.append(tensor)
        return new

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a step, with their tensors on the GPU."""
        return mapped(args, self.to_gpu), mapped(kwargs, self.to_gpu)

    def move_module(self, module: torch.nn.Module) -> None:
        """Parameters and buffers of a module become recorded tensors until the recording ends."""
        before = len(self.moved)
        for each in module.modules():
            self._move_slots(each._parameters, "weight")
            self._move_slots(each._buffers, "buffer")
            self._move_slots(each.__dict__, "buffer")
            self._refresh_recurrent(each)
        if len(self.moved) > before:
            self._parameters_of(module)

    def apply(self, module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """``nn.Module._apply``, behind `.to`, `.cuda` and `.half`: recorded tensors can't be changed in place, so parameters
        are replaced, and whoever holds the old ones (optimizers) gets the new ones. It is set-up, not a step."""
        done: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for each in module.modules() if recurse else [module]:
            for slots, kind in ((each._parameters, "weight"), (each._buffers, "buffer")):
                for name, old in list(slots.items()):
                    if old is None:
                        continue
                    if id(old) not in done:
                        done[id(old)] = (old, self._applied(old, fn, kind))
                    new = done[id(old)][1]
                    if new is old:
                        continue
                    slots[name] = new
                    if not on_gpu(old):
                        self.undo.append(lambda s=slots, n=name, v=old: s.__setitem__(n, v))
            self._refresh_recurrent(each)
        for old, new in done.values():
            if new is not old and on_gpu(old):
                self.parameters.pop(id(old), None)
        self._parameters_of(module)
        for old, new in done.values():
            if new is not old and on_gpu(old):
                # Nobody asks for it any more, so that it can die.
                self.moved.pop(id(old), None)
        return module

    def _applied(self, old: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor], kind: str) -> torch.Tensor:
        with self.quiet(), torch.no_grad():
            new = fn(old)
            if new is old:
                return old
            if isinstance(old, torch.nn.Parameter) or getattr(old, "_is_param", False):
                new = torch.nn.Parameter(new, old.requires_grad)
            elif old.requires_grad:
                new.requires_grad_()
        for key, value in self.moved.items():
            if value is old:
                self.moved[key] = new
        self.moved[id(old)] = new
        if not on_gpu(old):
            self.kept.append(old)
        if kind == "weight" and on_gpu(new):
            # What weights hold decides nothing.
            new._value = new._known = None
        self.mark(new, kind)
        return new

    def _refresh_recurrent(self, module: torch.nn.Module) -> None:
        if isinstance(module, torch.nn.RNNBase):
            before = module._flat_weights
            module._flat_weights = [getattr(module, n, None) for n in module._flat_weights_names]
            self.undo.append(lambda m=module, b=before: setattr(m, "_flat_weights", b))

    def _parameters_of(self, module: torch.nn.Module) -> None:
        for parameter in module.parameters():
            if on_gpu(parameter) or hasattr(type(parameter), "__tensor_flatten__"):
                self.parameters[id(parameter)] = parameter
                self.mark(parameter, "weight")
        self.parameter_elements = max(self.parameter_elements, sum(p.numel() for p in self.parameters.values()))
        for buffer in module.buffers():
            self.mark(buffer, "buffer")
        if self.optimizers is None:
            # Those that were made before the recording; later ones report themselves.
            kinds = _kinds(torch.optim.Optimizer)
            self.optimizers = weakref.WeakSet(o for o in gc.get_objects() if type(o) in kinds)
        for optimizer in list(self.optimizers):
            self.move_optimizer(optimizer)

    def _move_slots(self, slots: dict[str, Any], kind: str) -> None:
        for name, value in list(slots.items()):
            if isinstance(value, torch.Tensor) and not on_gpu(value):
                new = self.to_gpu(value, kind)
                if new is value:
                    continue
                slots[name] = new
                self.undo.append(lambda s=slots, n=name, v=value: s.__setitem__(n, v))

    def move_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer walks the moved parameters until the recording ends."""
        changed = False
        for group in optimizer.param_groups:
            # In place: some optimizers hold the same list elsewhere too.
            params = group["params"]
            before = list(params)
            after = [self.moved.get(id(p), p) for p in before]
            if any(a is not b for a, b in zip(after, before)):
                changed = True
                params[:] = after
                if not any(on_gpu(p) for p in before):
                    self.undo.append(lambda p=params, b=before: p.__setitem__(slice(None), b))
        if not changed:
            return
        if optimizer.state and not any(on_gpu(p) for p in optimizer.state):
            before_state = dict(optimizer.state)
            optimizer.state.clear()
            self.undo.append(lambda o=optimizer, b=before_state: (o.state.clear(), o.state.update(b)))
        else:
            self.undo.append(lambda o=optimizer: [o.state.pop(p, None) for p in list(o.state) if on_gpu(p)])

    def restore(self) -> None:
        """Models and optimizers are as they were."""
        for undo in reversed(self.undo):
            undo()
        self.undo.clear()
        self.moved.clear()
        self.kept.clear()
