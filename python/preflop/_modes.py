"""The two modes that stand around the user's code.

`Mover` sees every call of PyTorch's Python interface and brings what is on the CPU to the (fake) GPU when it meets
something there. `Recorder` sees every ATen operator below autograd and autocast and writes it down.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import _library
from ._session import Session
from ._tensors import is_cuda, mapped, on_gpu, tensors_in

#: Operators of the recorder's own surroundings.
_IGNORED_NAMESPACES = ("prim", "prims", "profiler")

_ATTENTION = (torch.nn.functional.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention)
_RECURRENT = {getattr(torch._C._VariableFunctions, n): n for n in ("lstm", "gru", "rnn_tanh", "rnn_relu")}

class Recorder(TorchDispatchMode):
    """Writes down every operator that touches the GPU."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        #: By operator: namespace ignored?, name, names of the arguments, what it is.
        self.known: dict[Any, tuple[bool, str, list[str], str | None]] = {}

    def _facts(self, func: Any) -> tuple[bool, str, list[str], str | None]:
        facts = self.known.get(func)
        if facts is None:
            schema = func._schema
            namespace = schema.name.split("::")[0]
            aliases = [r.alias_info for r in schema.returns]
            view = any(a is not None and not a.is_write for a in aliases)
            nature = "view" if view else "pointwise" if torch.Tag.pointwise in func.tags else None
            facts = (namespace in _IGNORED_NAMESPACES, schema.name, [a.name for a in schema.arguments], nature)
            self.known[func] = facts
        return facts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        session = self.session
        ignored, name, parameters, nature = self._facts(func)
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return self._scalar(args[0])
        gpu = is_cuda(kwargs.get("device")) or any(isinstance(t, FakeTensor) for t in tensors_in(args))
        if not gpu and not any(isinstance(t, FakeTensor) for t in tensors_in(kwargs.values())):
            return func(*args, **kwargs)
        with session.fake:
            out = func(*args, **kwargs)
            if name in ("aten::convolution", "aten::convolution_backward"):
                out = _library.convolution_layout(name, args, out)
        if ignored or session.silent:
            return out
        outputs = out if isinstance(out, (list, tuple)) else [out]
        arguments = list(args)
        if kwargs:
            arguments += [kwargs.get(p) for p in parameters[len(args) :]]
            while arguments and arguments[-1] is None:
                arguments.pop()
        if any(on_gpu(t) for t in tensors_in(outputs)) or any(on_gpu(t) for t in tensors_in(arguments)):
            session.note(name, arguments, list(outputs), nature)
        return out

    def _scalar(self, tensor: FakeTensor) -> Any:
        """A number is asked for where there is no data: no overflow, no branch, one of everything else."""
        if on_gpu(tensor) and not self.session.silent:
            self.session.note("aten::_local_scalar_dense", [tensor], [])
        if tensor.dtype == torch.bool:
            return False
        if tensor.is_floating_point():
            return 0.0 if on_gpu(tensor) else 1.0
        return 1


def attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """``scaled_dot_product_attention`` as a GPU would run it."""
    if any(on_gpu(t) for t in tensors_in(args)):
        return _library.attention(*args, **kwargs)
    return torch._C._nn.scaled_dot_product_attention(*args, **kwargs)


#: Calls that take a device as an ordinary argument.
_DEVICE_CALLS = (torch.Tensor.to, torch.Tensor.cuda)


class Mover(TorchFunctionMode):
    """Brings CPU tensors to the GPU when they meet tensors there, and runs GPU factories under fake mode."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "__get__":
            return func(*args, **kwargs)
        session = self.session
        if func is torch.Tensor.detach or func is torch.Tensor.detach_:
            session.detaching = True
            try:
                return func(*args, **kwargs)
            finally:
                session.detaching = False
        if func in _DEVICE_CALLS:
            wanted = func is torch.Tensor.cuda or is_cuda(kwargs.get("device")) or any(map(is_cuda, args[1:2]))
            if wanted and not isinstance(args[0], FakeTensor):
                # The copy from the host is an operator of its own, not just a change of place.
                with session.fake:
                    host = session.fake.from_tensor(args[0])
                    return func(host, *args[1:], **kwargs)
            if wanted:
                with session.fake:
                    return func(*args, **kwargs)
        if is_cuda(kwargs.get("device")):
            with session.fake:
                return func(*args, **kwargs)
        if any(on_gpu(t) for t in tensors_in(args)) or any(on_gpu(t) for t in tensors_in(kwargs.values())):
            move = self._to_gpu
            args = tuple(mapped(a, move) for a in args)
            kwargs = {k: mapped(v, move) for k, v in kwargs.items()}
            if func in _ATTENTION:
                return _library.attention(*args, **kwargs)
            name = _RECURRENT.get(func)
            if name is not None:
                out = _library.recurrent(session, name, args)
                if out is not None:
                    return out
        return func(*args, **kwargs)

    def _to_gpu(self, tensor: torch.Tensor) -> torch.Tensor:
        # Numbers without dimensions may stay on the CPU next to GPU tensors.
        if tensor.dim() == 0 or on_gpu(tensor) or tensor.device.type not in ("cpu", "meta"):
            return tensor
        return self.session.to_gpu(tensor)
