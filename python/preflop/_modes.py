"""The two modes that stand around the user's code.

`Mover` sees every call of PyTorch's Python interface: it sends what is asked for on the GPU there, and brings what is on the CPU when it
meets something there. `Recorder` sees every ATen operator below autograd and autocast and writes it down.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import _choices, _distributed, _kernels, _sizes
from ._cuda import Stream
from ._errors import CaptureError
from ._session import Session
from ._tensor import CUDA, META, GpuTensor, any_on_gpu, is_cuda, is_meta, mapped, meta_kernels, on_gpu
from ._values import give, small, spoil

#: Operators of the recorder's own surroundings.
_IGNORED_NAMESPACES = ("prim", "prims", "profiler")
#: Set-up that a program may run anew in every step without need.
_SET_UP = ("aten::_cudnn_rnn_flatten_weight",)


#: Steps of optimizers that return nothing, and that older versions of PyTorch can't run without a GPU.
_IN_PLACE_ONLY = ("aten::_fused_sgd_", "aten::_fused_adagrad_")
#: What runs in cuBLAS, and all work that belongs on the GPU.
_CUBLAS = tuple(getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "bmm", "baddbmm"))
_PRODUCTS = (*_CUBLAS, torch.ops.aten.convolution.default)

#: Kinds of tensors that are no others in disguise.
_PLAIN = (GpuTensor, torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", GpuTensor))


class _Facts:
    """What is known of an operator by its schema."""

    __slots__ = ("composite", "ignored", "name", "nature", "parameters", "written")

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.name: str = schema.name
        self.ignored = self.name.split("::")[0] in _IGNORED_NAMESPACES or self.name in _SET_UP
        self.parameters = [a.name for a in schema.arguments]
        aliases = [r.alias_info for r in schema.returns]
        view = any(a is not None and not a.is_write for a in aliases)
        self.nature = "view" if view else "pointwise" if torch.Tag.pointwise in func.tags else None
        self.written = [(i, a.name) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
        # Some composites have kernels of their own for real devices (`silu_backward`), which are what runs there.
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        plain = not any(has(func.name(), device) for device in ("CPU", "CUDA"))
        self.composite = plain and has(func.name(), "CompositeImplicitAutograd")


class Recorder(TorchDispatchMode):
    """Writes down every operator that touches the GPU."""

    #: Operators over functions (`flex_attention`) come here too, and run as they are written.
    supports_higher_order_operators = True

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.known: dict[Any, _Facts] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        session = self.session
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._written_out(func, args, kwargs)
        for kind in types:
            if kind.__name__ == "FakeTensor":
                # PyTorch asks itself for sizes (DTensor does).
                return func(*args, **kwargs)
            if kind not in _PLAIN:
                # A tensor made of others (DTensor, quantized weights): it says itself what it runs on them.
                return NotImplemented
        if not any_on_gpu(args) and not any_on_gpu(kwargs.values()):
            device = kwargs.get("device")
            if device is None or not (is_cuda(device) or (is_meta(device) and not session.meta_wanted)):
                if session.modules and func in _PRODUCTS:
                    session.remark(f"`{func._schema.name}` of `{session.modules[-1] or session.model_name}` ran on the CPU: its tensors were not on the GPU")
                return func(*args, **kwargs)
        facts = self.known.get(func)
        if facts is None:
            facts = self.known[func] = _Facts(func)
        choice = session.choices.get(func)
        if choice is not None or facts.composite:
            # Only where autograd is off altogether do composite operators come this far.
            with self:
                return choice(*args, **kwargs) if choice is not None else func.decompose(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            return session.number(args[0])
        if facts.name.startswith("c10d::"):
            return _distributed.collective(session, func, args, kwargs)
        if facts.name in ("aten::_to_copy", "aten::copy_"):
            done, out = self._crossing(facts.name, args, kwargs)
            if done:
                return out
        out = self._run(func, facts, args, kwargs)
        written = [args[i] if i < len(args) else kwargs.get(n) for i, n in facts.written]
        if session.follows_values():
            session.values.follow(func, facts.name, args, kwargs, out, written)
        elif written:
            spoil(written)
        if facts.name == "aten::_amp_foreach_non_finite_check_and_unscale_":
            # No gradient overflows: the step is taken.
            give(args[1], torch.zeros(args[1].shape, dtype=args[1].dtype))
        if facts.name in ("aten::set_", "aten::resize_"):
            args[0]._place = None
        if facts.ignored or session.silent:
            return out
        if Stream.current and func in _CUBLAS:
            session.side_streams.add(Stream.current)
        outputs = list(out) if isinstance(out, (list, tuple)) else [out]
        session.note(facts.name, self._arguments(facts, args, kwargs), outputs, facts.nature)
        return out

    def _written_out(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        kernel = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
        if kernel is None:
            raise CaptureError(
                f"`{func.name()}` can't be recorded: PyTorch {torch.__version__} has it for compiled code only",
                hint=f"called at {self.session.user_line()}",
            )
        with self:
            return kernel(*args, **kwargs)

    def _run(self, func: Any, facts: _Facts, args: Any, kwargs: dict[str, Any]) -> Any:
        if facts.name in _IN_PLACE_ONLY:
            return None
        handler = _sizes.HANDLERS.get(facts.name)
        try:
            if handler is not None:
                return handler(self.session, func, args, kwargs)
            out = _kernels.run(func, args, kwargs)
        except CaptureError:
            raise
        except (NotImplementedError, RuntimeError, AttributeError, TypeError) as error:
            said = str(error).strip().split("\n")[0]
            if "meta" in said.lower() or "CUDA" in said or "data-dependent" in said or "Dynamic" in type(error).__name__:
                raise CaptureError(
                    f"`{facts.name}` can't be recorded: {said}", hint=f"called at {self.session.user_line()}"
                ) from error
            raise
        if facts.name in ("aten::convolution", "aten::convolution_backward"):
            with meta_kernels():
                out = _choices.convolution_layout(facts.name, args, out)
            out = _kernels.wrapped(out)
        return out

    @staticmethod
    def _arguments(facts: _Facts, args: Any, kwargs: dict[str, Any]) -> list[Any]:
        arguments = list(args)
        if kwargs:
            arguments += [kwargs.get(p) for p in facts.parameters[len(args) :]]
            while arguments and arguments[-1] is None:
                arguments.pop()
        return arguments

    def _crossing(self, name: str, args: Any, kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Copies between host and GPU."""
        session = self.session
        if name == "aten::_to_copy":
            source, device = args[0], kwargs.get("device")
            if not on_gpu(source):
                out = _kernels.run(torch.ops.aten._to_copy.default, args, {**kwargs, "device": META})
                if source.device.type == "cpu" and small(source):
                    with torch._C._DisableTorchDispatch(), torch.no_grad():
                        give(out, source.detach().to(out.dtype, copy=True))
                session.note(name, [source, None, None, None, None, kwargs.get("non_blocking", False)], [out])
                return True, out
            if device is not None and not is_cuda(device) and not is_meta(device):
                out = session.host_copy(source, kwargs.get("dtype"))
                session.note(name, [source, None, None, None, None, kwargs.get("non_blocking", False)], [out])
                return True, out
        elif not on_gpu(args[0]):
            target, source = args[:2]
            with torch._C._DisableTorchDispatch(), torch.no_grad():
                known = source.value()
                target.copy_(known) if known is not None else target.zero_()
            session.note(name, [target, source], [target])
            return True, target
        return False, None


#: Calls that make tensors from data: run on the CPU, then copied.
_FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray)
#: Calls that take a device as an ordinary argument.
_TO = (torch.Tensor.to, torch.Tensor.cuda)
_NUMBERS = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)
#: Calls in which tensors of the host may stand beside tensors of the GPU.
_MIXED = (torch.Tensor.copy_, torch._VF._pack_padded_sequence, torch._VF._pad_packed_sequence)


def _backward(tensor: Any, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None) -> None:
    torch.autograd.backward(tensor, gradient, retain_graph, create_graph, inputs=inputs)


def _placed(device: Any) -> Any:
    return META if is_cuda(device) else device


class Mover(TorchFunctionMode):
    """Brings tensors to the GPU."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            out = func(*args, **kwargs)
            # Tensors made of ours say where PyTorch's C++ sees them.
            return CUDA if type(out) is torch.device and out == META and hasattr(type(args[0]), "__tensor_flatten__") else out
        if func is torch.device and args and type(args[0]) is int and not kwargs:
            # A number is one of the accelerator's, which older versions look for in C++.
            return torch.device("cuda", args[0])
        session = self.session
        if func is torch.Tensor.detach or func is torch.Tensor.detach_:
            session.detaching = True
            try:
                return func(*args, **kwargs)
            finally:
                session.detaching = False
        if func is torch.Tensor.backward:
            # Hooks and recomputed layers are the program's own code: the mode goes on in them.
            with self:
                return _backward(*args, **kwargs)
        if func in _TO:
            return self._to(func, args, kwargs)
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.record_stream:
            return None
        first = args[0] if args else None
        if isinstance(first, GpuTensor):
            if func in _NUMBERS:
                return func(first.cpu(), *args[1:], **kwargs)
            if func is torch.Tensor.__format__:
                return (first.item() if first.dim() == 0 else first).__format__(*args[1:])
            if func is torch.Tensor.type and (args[1:] or kwargs):
                return self._typed(*args, **kwargs)
        device = kwargs.get("device")
        if kwargs.get("pin_memory") and not is_cuda(device):
            kwargs = {**kwargs, "pin_memory": False}
        if device is not None and is_cuda(device):
            if func in _FROM_DATA:
                made = func(*args, **{**kwargs, "device": "cpu"})
                return made.to(device)
            if isinstance(kwargs.get("generator"), torch._C.Generator):
                kwargs.pop("generator")
            return func(*args, **{**kwargs, "device": META})
        if device is not None and is_meta(device):
            session.meta_wanted += 1
            try:
                return func(*args, **kwargs)
            finally:
                session.meta_wanted -= 1
        if func not in _MIXED and (any_on_gpu(args) or any_on_gpu(kwargs.values())):
            move = self._to_gpu
            args = tuple(mapped(a, move) for a in args)
            kwargs = {k: mapped(v, move) for k, v in kwargs.items()}
            if kwargs.get("generator") is not None:
                kwargs.pop("generator")
        return func(*args, **kwargs)

    def _to(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensor, rest = args[0], list(args[1:])
        if func is torch.Tensor.cuda:
            kwargs = {k: v for k, v in kwargs.items() if k in ("non_blocking", "memory_format")}
            return torch.Tensor.to(tensor, META, **kwargs)
        if rest and isinstance(rest[0], GpuTensor):
            # to(other): its format and its place.
            rest[:1] = [META, rest[0].dtype]
        elif rest and not isinstance(rest[0], torch.Tensor):
            rest[0] = _placed(rest[0])
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": _placed(kwargs["device"])}
        if isinstance(kwargs.get("other"), GpuTensor):
            other = kwargs.pop("other")
            kwargs |= {"device": META, "dtype": other.dtype}
        return func(tensor, *rest, **kwargs)

    @staticmethod
    def _typed(tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """``x.type("torch.cuda.HalfTensor")``, an older way to say ``x.to(..)``."""
        if isinstance(dtype, torch.dtype):
            return tensor.to(dtype)
        names = {"Float": torch.float32, "Half": torch.float16, "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32,
                 "Double": torch.float64, "Bool": torch.bool, "Byte": torch.uint8}  # fmt: skip
        text = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        wanted = names.get(text.rsplit(".", 1)[-1].removesuffix("Tensor"))
        return tensor.to(wanted) if ".cuda." in text else tensor.cpu().to(wanted)

    def _to_gpu(self, tensor: torch.Tensor) -> torch.Tensor:
        # Numbers without dimensions may stay on the CPU next to GPU tensors.
        if tensor.dim() == 0 or on_gpu(tensor) or tensor.device.type not in ("cpu", "meta"):
            return tensor
        return self.session.to_gpu(tensor)


__all__ = ["Mover", "Recorder"]
