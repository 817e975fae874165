"""Recording a training step: which operators run, on what, in which order, and which storages live when.

Two modes stand around the user's code. `_Mover` sees every call of PyTorch's Python interface and brings what is on the
CPU to the (fake) GPU when it meets something there, as the user's program would have done on a machine that has one.
`_Recorder` sees every ATen operator below autograd and autocast and writes it down. Tensors that never meet the GPU stay
real, so that building models and loading data work as always.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import _compile, _library, _nogpu
from ._errors import CaptureError

#: Name of a number format in the file.
_DTYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
    torch.complex64: "complex64",
}

#: Operators of the recorder's own surroundings.
_IGNORED_NAMESPACES = ("prim", "prims", "profiler")

_ATTENTION = (torch.nn.functional.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention)
_RECURRENT = {getattr(torch._C._VariableFunctions, n): n for n in ("lstm", "gru", "rnn_tanh", "rnn_relu")}


def is_cuda(device: Any) -> bool:
    """Does ``device`` name a CUDA device?"""
    if device is None:
        return False
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.startswith("cuda")


def _on_gpu(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.fake_device.type == "cuda"


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Tensors among arguments, also in lists and dictionaries."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())


def _mapped(value: Any, fn: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with ``fn`` applied to its tensors."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, (list, tuple)):
        items = [_mapped(v, fn) for v in value]
        if all(a is b for a, b in zip(items, value)):
            return value
        # Named tuples take their fields one by one.
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if type(value) is dict:
        return {k: _mapped(v, fn) for k, v in value.items()}
    return value


def _same_kind(arguments: list[Any]) -> bool:
    """Two tensors of one shape and format, and nothing else: so autograd's engine adds gradients."""
    if len(arguments) != 2 or not all(isinstance(a, torch.Tensor) for a in arguments):
        return False
    a, b = arguments
    return a.shape == b.shape and a.dtype == b.dtype and _is_dense(a)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Without gaps or overlap, whatever the order of dimensions: only then does the engine add in place."""
    expected = 1
    for stride, size in sorted((t, n) for n, t in zip(tensor.shape, tensor.stride()) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


@dataclass(frozen=True)
class Pass:
    """One recorded iteration."""

    begin: int
    ops: list[dict[str, Any]]
    module_calls: int
    parameter_tensors: int


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


class Session:
    """One recording: what was seen, and how to undo what was changed."""

    def __init__(self) -> None:
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.silent = 0
        self.phase = "forward"
        self.counter = 0
        self.ops: list[dict[str, Any]] = []
        self.tensors: list[list[Any]] = []
        self.tensor_ids: dict[tuple[Any, ...], int] = {}
        self.storages: list[dict[str, Any]] = []
        self.live: dict[int, int] = {}
        self.modules: list[str] = []
        self.names: dict[int, str] = {}
        self.path_of_sequence: dict[int, str] = {}
        self.module_calls = 0
        self.autocast: str | None = None
        self.undo: list[Callable[[], None]] = []
        self.moved: dict[int, torch.Tensor] = {}
        self.kept: list[torch.Tensor] = []
        self.applied: dict[Any, torch.Tensor] = {}
        self.parameters: dict[int, torch.Tensor] = {}
        self.stepped: dict[int, int] = {}
        self.samples: int | None = None
        self.seq: int | None = None
        self.begin = 0
        self.complete: Pass | None = None
        self.model_name: str | None = None
        self.accumulations: list[tuple[int, int | None, dict[str, Any]]] = []
        self.detaching = False
        #: The GPU that compiled functions are compiled for, and whether one that can't be is an error.
        self.compile_gpu = "h200"
        self.strict_compile = False
        self.compilation: Any = None

    # Storages -------------------------------------------------------------------------------------------------------

    def storage_of(self, tensor: torch.Tensor, kind: str = "activation") -> int | None:
        """The number of a tensor's storage; it is counted until it dies."""
        if not _on_gpu(tensor):
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self.live.get(key)
        if known is not None:
            return known
        number = len(self.storages)
        self.storages.append({"bytes": storage.nbytes(), "kind": kind, "first": self.counter, "last": None})
        self.live[key] = number
        weakref.finalize(storage, self._died, key, number)
        return number

    def _died(self, key: int, number: int) -> None:
        self.storages[number]["last"] = self.counter
        self.live.pop(key, None)

    def mark(self, tensor: torch.Tensor, kind: str) -> None:
        """Says what a storage is for."""
        number = self.storage_of(tensor, kind)
        if number is not None:
            self.storages[number]["kind"] = kind

    # Moving to the fake GPU --------------------------------------------------------------------------------------------

    def to_gpu(self, tensor: torch.Tensor, kind: str = "input") -> torch.Tensor:
        """The fake CUDA tensor that stands for a tensor elsewhere; always the same one."""
        if _on_gpu(tensor):
            return tensor
        known = self.moved.get(id(tensor))
        if known is not None:
            return known
        if tensor.layout != torch.strided:
            raise CaptureError(f"a tensor of layout {tensor.layout} can't be recorded")
        dtype = tensor.dtype
        if kind in ("weight", "buffer") and tensor.is_floating_point():
            dtype = _weights_dtype.get() or dtype
        with self.quiet(), self.fake, torch.no_grad():
            new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device="cuda")
        if isinstance(tensor, torch.nn.Parameter):
            new = torch.nn.Parameter(new, tensor.requires_grad)
        elif tensor.is_leaf and tensor.requires_grad:
            new.requires_grad_()
        self.moved[id(tensor)] = new
        self.kept.append(tensor)
        self.mark(new, kind)
        return new

    def inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a step, with their tensors on the GPU."""
        return _mapped(args, self.to_gpu), _mapped(kwargs, self.to_gpu)

    def move_module(self, module: torch.nn.Module) -> None:
        """Parameters and buffers of a module become fake CUDA tensors until the recording ends."""
        before = len(self.moved)
        for each in module.modules():
            self._move_slots(each._parameters, "weight")
            self._move_slots(each._buffers, "buffer")
            self._move_slots(each.__dict__, "buffer")
            self._refresh_recurrent(each)
        if len(self.moved) > before:
            self._parameters_of(module)

    def apply(self, module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """``nn.Module._apply``, behind `.to`, `.cuda` and `.half`: fake tensors can't be changed in place, so parameters
        are replaced, and whoever holds the old ones (optimizers) gets the new ones. It is set-up, not a step."""
        for each in module.modules() if recurse else [module]:
            for slots, kind in ((each._parameters, "weight"), (each._buffers, "buffer")):
                for name, old in list(slots.items()):
                    if old is not None:
                        slots[name] = self._applied(old, fn, kind)
                        self.undo.append(lambda s=slots, n=name, v=old: s.__setitem__(n, v))
            self._refresh_recurrent(each)
        self._parameters_of(module)
        return module

    def _applied(self, old: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor], kind: str) -> torch.Tensor:
        known = self.applied.get((id(old), fn))
        if known is not None:
            return known
        with self.quiet(), torch.no_grad():
            new = fn(old)
        if new is not old:
            if isinstance(old, torch.nn.Parameter) or getattr(old, "_is_param", False):
                new = torch.nn.Parameter(new, old.requires_grad)
            for key, value in self.moved.items():
                if value is old:
                    self.moved[key] = new
            self.moved[id(old)] = new
            self.kept.append(old)
            self.mark(new, kind)
        self.applied[(id(old), fn)] = new
        return new

    def _refresh_recurrent(self, module: torch.nn.Module) -> None:
        if isinstance(module, torch.nn.RNNBase):
            before = module._flat_weights
            module._flat_weights = [getattr(module, n, None) for n in module._flat_weights_names]
            self.undo.append(lambda m=module, b=before: setattr(m, "_flat_weights", b))

    def _parameters_of(self, module: torch.nn.Module) -> None:
        for parameter in module.parameters():
            if _on_gpu(parameter):
                self.parameters[id(parameter)] = parameter
                self.mark(parameter, "weight")
        for buffer in module.buffers():
            self.mark(buffer, "buffer")
        for thing in gc.get_objects():
            if issubclass(type(thing), torch.optim.Optimizer):
                self.move_optimizer(thing)

    def _move_slots(self, slots: dict[str, Any], kind: str) -> None:
        for name, value in list(slots.items()):
            if isinstance(value, torch.Tensor) and not _on_gpu(value):
                slots[name] = self.to_gpu(value, kind)
                self.undo.append(lambda s=slots, n=name, v=value: s.__setitem__(n, v))

    def move_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer walks the moved parameters until the recording ends."""
        changed = False
        for group in optimizer.param_groups:
            before = group["params"]
            after = [self.moved.get(id(p), p) for p in before]
            if any(a is not b for a, b in zip(after, before)):
                changed = True
                group["params"] = after
                self.undo.append(lambda g=group, b=before: g.__setitem__("params", b))
        if not changed:
            return
        if optimizer.state and not any(_on_gpu(p) for p in optimizer.state):
            before_state = dict(optimizer.state)
            optimizer.state.clear()
            self.undo.append(lambda o=optimizer, b=before_state: (o.state.clear(), o.state.update(b)))
        else:
            self.undo.append(lambda o=optimizer: [o.state.pop(p, None) for p in list(o.state) if _on_gpu(p)])

    # Notes ----------------------------------------------------------------------------------------------------------------

    def _tensor(self, tensor: torch.Tensor) -> int:
        storage = self.storage_of(tensor)
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        key = (tensor.dtype, shape, strides, storage)
        number = self.tensor_ids.get(key)
        if number is None:
            number = len(self.tensors)
            self.tensor_ids[key] = number
            dtype = _DTYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
            self.tensors.append([dtype, list(shape), list(strides), storage])
        return number

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return {"t": self._tensor(value)}
        if isinstance(value, (list, tuple, torch.Size)):
            return [self._argument(v) for v in value]
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            # JSON has no infinities.
            return value if abs(value) < float("inf") else str(value)
        return str(value)

    def _place(self) -> tuple[str, str, Any]:
        """Phase, module path and autograd node of the operator at hand."""
        if torch._C._current_graph_task_id() == -1:
            path = self.modules[-1] if self.modules else ""
            # The node that this operator's call made is the newest; operators without a node come later, if at all.
            self.path_of_sequence.setdefault(torch._C._autograd._get_sequence_nr() - 1, path)
            return self.phase, path, None
        node = torch._C._current_autograd_node()
        path = self.modules[-1] if self.modules else ""
        if node is not None and not path:
            path = self.path_of_sequence.get(node._sequence_nr(), "")
        return "backward", path, node

    def note(self, name: str, arguments: list[Any], outputs: list[Any], nature: str | None = None) -> None:
        """Writes an operator down; ``nature`` says whether it is a view or works element by element."""
        if self.silent:
            return
        phase, path, node = self._place()
        if name == "aten::detach" and not self._is_real_detach(phase, node):
            return
        in_place = name == "aten::add" and (
            _same_kind(arguments) if phase == "backward" else self._adds_bias(arguments)
        )
        for tensor in _tensors(outputs):
            self.storage_of(tensor)
        op = {
            "op": name,
            "phase": phase,
            "module": path,
            "in": [self._argument(a) for a in arguments],
            "out": [self._tensor(t) for t in _tensors(outputs)],
        }
        if nature is not None:
            op[nature] = True
        if in_place:
            # Not so for fake tensors: the engine adds into the gradient that waits, if nothing else holds it, and a
            # linear layer that can't fuse its bias adds it to the product.
            op["op"] = "aten::add_"
            self.accumulations.append((self.counter, self.storage_of(arguments[0]), op))
        self.ops.append(op)
        self.counter += 1

    def _adds_bias(self, arguments: list[Any]) -> bool:
        """Is it the bias of a linear layer, added to the product that was just made?"""
        if len(arguments) != 2 or not all(isinstance(a, torch.Tensor) for a in arguments) or not self.ops:
            return False
        last = self.ops[-1]
        made = last["op"] in ("aten::_unsafe_view", "aten::mm") and last["out"] == [self._tensor(arguments[0])]
        return made and arguments[1].dim() == 1

    def _is_real_detach(self, phase: str, node: Any) -> bool:
        """Fake tensors are also detached when autograd saves them, which real tensors are not."""
        if phase != "backward":
            return self.detaching
        return node is not None and "AccumulateGrad" in node.name()

    def settle(self) -> None:
        """What was added to in place ends where the sum begins, if nothing else held it."""
        for counter, storage, op in self.accumulations:
            if storage is not None and self.storages[storage]["last"] == counter + 1:
                self.storages[storage]["last"] = counter
            else:
                op["op"] = "aten::add"

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """A block whose operators are not recorded."""
        self.silent += 1
        try:
            yield
        finally:
            self.silent -= 1

    def iteration_ended(self) -> None:
        """What was recorded since the last call is an iteration; its storages live on."""
        self.complete = Pass(self.begin, self.ops, self.module_calls, sum(self.stepped.values()))
        self.begin = self.counter
        self.ops = []
        self.module_calls = 0
        self.stepped = {}

    def final(self) -> Pass:
        """The last complete iteration, or all there is."""
        return self.complete or Pass(self.begin, self.ops, self.module_calls, sum(self.stepped.values()))

    def final_ops(self) -> list[dict[str, Any]]:
        """Its operators."""
        return self.final().ops


class _Recorder(TorchDispatchMode):
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
        gpu = is_cuda(kwargs.get("device")) or any(isinstance(t, FakeTensor) for t in _tensors(args))
        if not gpu and not any(isinstance(t, FakeTensor) for t in _tensors(kwargs.values())):
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
        if any(_on_gpu(t) for t in _tensors(outputs)) or any(_on_gpu(t) for t in _tensors(arguments)):
            session.note(name, arguments, list(outputs), nature)
        return out

    def _scalar(self, tensor: FakeTensor) -> Any:
        """A number is asked for where there is no data: no overflow, no branch, one of everything else."""
        if _on_gpu(tensor) and not self.session.silent:
            self.session.note("aten::_local_scalar_dense", [tensor], [])
        if tensor.dtype == torch.bool:
            return False
        if tensor.is_floating_point():
            return 0.0 if _on_gpu(tensor) else 1.0
        return 1


def _attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """``scaled_dot_product_attention`` as a GPU would run it."""
    if any(_on_gpu(t) for t in _tensors(args)):
        return _library.attention(*args, **kwargs)
    return torch._C._nn.scaled_dot_product_attention(*args, **kwargs)


#: Calls that take a device as an ordinary argument.
_DEVICE_CALLS = (torch.Tensor.to, torch.Tensor.cuda)


class _Mover(TorchFunctionMode):
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
        if any(_on_gpu(t) for t in _tensors(args)) or any(_on_gpu(t) for t in _tensors(kwargs.values())):
            move = self._to_gpu
            args = tuple(_mapped(a, move) for a in args)
            kwargs = {k: _mapped(v, move) for k, v in kwargs.items()}
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
        if tensor.dim() == 0 or _on_gpu(tensor) or tensor.device.type not in ("cpu", "meta"):
            return tensor
        return self.session.to_gpu(tensor)


def _first_sizes(session: Session, args: Any, kwargs: dict[str, Any]) -> None:
    """Samples and sequence length from the first input of the first model."""
    first = next(_tensors((args, kwargs)), None)
    if session.samples is None and first is not None and first.dim() > 0:
        session.samples = first.size(0)
        if first.dim() == 2 and first.dtype in (torch.int64, torch.int32):
            session.seq = first.size(1)


@contextlib.contextmanager
def recording(session: Session) -> Iterator[None]:
    """A block whose operators on the GPU are recorded."""
    call = torch.nn.Module.__call__

    def recorded_call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        in_backward = torch._C._current_graph_task_id() != -1
        if not session.modules:
            args, kwargs = session.inputs(args, kwargs)
        if not session.modules and not in_backward:
            session.move_module(module)
            _first_sizes(session, args, kwargs)
            session.model_name = session.model_name or type(module).__name__
            prefix = "" if len(session.names) == 0 or module in session_tops else type(module).__name__ + "."
            session_tops.add(module)
            for name, each in module.named_modules():
                session.names.setdefault(id(each), prefix + name)
        session.modules.append(session.names.get(id(module), type(module).__name__))
        if not in_backward:
            session.module_calls += 1
        if torch.is_autocast_enabled("cuda"):
            session.autocast = _DTYPES.get(torch.get_autocast_dtype("cuda"))
        try:
            return call(module, *args, **kwargs)
        finally:
            session.modules.pop()

    session_tops: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
    prepared: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if session.phase == "optimizer":
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = session.moved.get(id(parameter), parameter).grad
                if gradient is not None:
                    session.mark(gradient, "gradient")
        if optimizer not in prepared:
            prepared.add(optimizer)
            session.move_optimizer(optimizer)
            if not args[1:] and not kwargs.get("closure"):
                # The first step makes the state; what is recorded is a later one.
                session.phase = "optimizer"
                with session.quiet():
                    optimizer.step()
                session.phase = "forward"
        for state in optimizer.state.values():
            for tensor in _tensors(state.values() if isinstance(state, dict) else [state]):
                session.mark(tensor, "optimizer")
        session.stepped[id(optimizer)] = sum(
            1 for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        )
        session.phase = "optimizer"

    def after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not session.silent:
            session.phase = "forward"

    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    with contextlib.ExitStack() as stack:
        stack.callback(_restore, session)
        stack.enter_context(_nogpu.fake_cuda())
        stack.enter_context(_nogpu.replaced(torch.nn.Module, "__call__", recorded_call))
        stack.enter_context(_nogpu.replaced(torch.nn.Module, "_apply", lambda *a, **k: session.apply(*a, **k)))
        stack.callback(register_optimizer_step_pre_hook(before_step).remove)
        stack.callback(register_optimizer_step_post_hook(after_step).remove)
        # Functions written in Python look it up here, below the level at which calls are intercepted.
        stack.enter_context(_nogpu.replaced(torch.nn.functional, "scaled_dot_product_attention", _attention))
        mover = _Mover(session)
        stack.enter_context(_compile.compiled_functions(session, mover, call))
        stack.enter_context(_Recorder(session))
        stack.enter_context(mover)
        yield


def _restore(session: Session) -> None:
    for undo in reversed(session.undo):
        undo()
    session.undo.clear()
    session.moved.clear()
    session.kept.clear()
    session.applied.clear()
