"""The kernels of one compiled function, listed in a process of its own.

The process is a copy of the one that records (a fork), so it holds the program's model and arguments; whatever the compiler does to it, or if
it dies, the program goes on. Here the recorder is taken off, what belongs on the GPU becomes fake CUDA tensors, the function is compiled and
run, and the launches are sent back.
"""

from __future__ import annotations

import contextlib
import gc
import types
import weakref
from typing import Any, Callable, Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import _choices
from ._compile_gpu import TargetGpu, no_primary_context, pretend_gpu, replaced_all
from ._compile_kernels import KernelText
from ._compile_run import stand_ins
from ._session import DTYPES
from ._tensor import GpuTensor, mapped, tensors_in

#: Operators of the surroundings.
_IGNORED = ("prim", "prims", "profiler")


def _on_gpu(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.fake_device.type == "cuda"


class Listing:
    """What a compiled function launches: operators, tensors and storages, in the form of a recording."""

    def __init__(self, gpu: TargetGpu) -> None:
        self.gpu = gpu
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.silent = 0
        self.counter = 0
        self.ops: list[dict[str, Any]] = []
        self.tensors: list[list[Any]] = []
        self.numbers: dict[tuple[Any, ...], int] = {}
        #: Bytes, first, last, and the number of the outside tensor if it is one.
        self.storages: list[list[Any]] = []
        self.live: dict[int, int] = {}
        self.graphs = 0
        self.asked: list[str] = []

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """A block that is not listed."""
        self.silent += 1
        try:
            yield
        finally:
            self.silent -= 1

    def storage_of(self, tensor: torch.Tensor, outside: int | None = None) -> int | None:
        """The number of a tensor's storage."""
        if not _on_gpu(tensor) or (self.silent and outside is None):
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.live:
            self.live[key] = len(self.storages)
            self.storages.append([storage.nbytes(), self.counter, None, outside])
            weakref.finalize(storage, self._died, key)
        return self.live[key]

    def _died(self, key: int) -> None:
        self.storages[self.live.pop(key)][2] = self.counter

    def _tensor(self, tensor: torch.Tensor) -> int:
        storage = self.storage_of(tensor)
        entry = [DTYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.")), list(tensor.shape), list(tensor.stride()), storage]
        key = (entry[0], tuple(entry[1]), tuple(entry[2]), storage)
        if key not in self.numbers:
            self.numbers[key] = len(self.tensors)
            self.tensors.append(entry)
        return self.numbers[key]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return {"t": self._tensor(value)}
        if isinstance(value, (list, tuple, torch.Size)):
            return [self._argument(v) for v in value]
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if abs(value) < float("inf") else str(value)
        return str(value)

    def _add(self, name: str, inputs: list[Any], outputs: list[torch.Tensor], **more: Any) -> None:
        if self.silent:
            return
        op = {"op": name, "in": [self._argument(a) for a in inputs], "out": [self._tensor(t) for t in outputs], **more}
        self.ops.append(op)
        self.counter += 1

    # What Inductor's programs report -----------------------------------------------------------------------------------------

    def compiled(self, text: str) -> int:
        """A program was written; its number."""
        self.graphs += 1
        return self.graphs

    def asked_for(self, setting: str) -> None:
        """A setting that needs a device was asked for."""
        if setting not in self.asked:
            self.asked.append(setting)

    def launched(self, text: KernelText, args: tuple[Any, ...]) -> None:
        """A fused kernel was launched."""
        if not self.silent:
            fused, reads, writes = text.launch(args)
            self._add("fused::" + text.name, reads, writes, fused=fused)


class _Watch(TorchDispatchMode):
    """Lists the ATen operators that the program calls."""

    def __init__(self, listing: Listing) -> None:
        super().__init__()
        self.listing = listing

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema, listing = func._schema, self.listing
        with listing.fake:
            out = func(*args, **kwargs)
            if schema.name in ("aten::convolution", "aten::convolution_backward"):
                out = _choices.convolution_layout(schema.name, args, out)
        if listing.silent or schema.name.split("::")[0] in _IGNORED or schema.name == "aten::detach":
            return out
        arguments = list(args)
        if kwargs:
            arguments += [kwargs.get(a.name) for a in schema.arguments[len(args) :]]
        while arguments and arguments[-1] is None:
            arguments.pop()
        outputs = list(tensors_in([out]))
        if any(map(_on_gpu, outputs)) or any(map(_on_gpu, tensors_in(arguments))):
            aliases = [r.alias_info for r in schema.returns]
            more = {}
            if any(a is not None and not a.is_write for a in aliases):
                more["view"] = True
            elif torch.Tag.pointwise in func.tags:
                more["pointwise"] = True
            listing._add(schema.name, arguments, outputs, **more)
        return out


class _Twins:
    """Fake CUDA tensors that stand for the recording's tensors, the same one for the same."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.known: dict[int, torch.Tensor] = {}
        self.kept: list[Any] = []

    def of(self, tensor: torch.Tensor, outside: int | None = None) -> torch.Tensor:
        if not isinstance(tensor, GpuTensor):
            return tensor
        if id(tensor) not in self.known:
            parameter = isinstance(tensor, torch.nn.Parameter) or getattr(tensor, "_is_param", False)
            with self.listing.fake, torch.no_grad():
                new = torch.empty_strided(tuple(tensor.shape), tuple(tensor.stride()), dtype=tensor.dtype, device="cuda")
            if parameter:
                new = torch.nn.Parameter(new, tensor.requires_grad)
            elif tensor.requires_grad:
                new.requires_grad_()
            self.known[id(tensor)] = new
            self.kept.append(tensor)
            self.listing.storage_of(new, outside)
        return self.known[id(tensor)]


def _replace(old: Any, new: Any, spared: tuple[Any, ...], depth: int) -> None:
    """Whoever holds ``old`` holds ``new``: closures, dictionaries, lists, and tuples of those.

    ``old`` must not become a closure's variable here, or that closure would be one of its holders.
    """
    for holder in gc.get_referrers(old):
        if any(holder is s for s in spared):
            continue
        if isinstance(holder, types.CellType):
            holder.cell_contents = new
        elif isinstance(holder, dict):
            for name in list(holder):
                if holder[name] is old:
                    holder[name] = new
        elif isinstance(holder, list):
            for i in range(len(holder)):
                if holder[i] is old:
                    holder[i] = new
        elif type(holder) is tuple and depth > 0:
            changed = list(holder)
            for i in range(len(changed)):
                if changed[i] is old:
                    changed[i] = new
            _replace(holder, tuple(changed), spared, depth - 1)


def _move_program(session: Any, twins: _Twins, outside: list[GpuTensor]) -> None:
    """Models, closures and containers hold the fake CUDA tensors."""
    moved, kept = dict(session.moved), list(session.kept)
    for number, tensor in enumerate(outside):
        twins.of(tensor, number)
    stands_for = {id(old): moved[id(old)] for old in kept if id(old) in moved}
    for module in [m for m in gc.get_objects() if isinstance(m, torch.nn.Module)]:
        for slots in (module._parameters, module._buffers, module.__dict__):
            for name, value in list(slots.items()):
                if isinstance(value, torch.Tensor):
                    gpu = stands_for.get(id(value), value)
                    if isinstance(gpu, GpuTensor):
                        slots[name] = twins.of(gpu)
    spared = (kept, session.kept, session.moved, moved, stands_for, twins.known, twins.kept, outside)
    for old in kept:
        gpu = stands_for.get(id(old))
        if isinstance(gpu, GpuTensor) and not isinstance(old, torch.nn.Parameter):
            _replace(old, twins.of(gpu), spared, 2)
            _replace(gpu, twins.of(gpu), spared, 2)


def listed(session: Any, stack: contextlib.ExitStack, gpu: TargetGpu, outside: list[GpuTensor], fn: Any, args: Any, kwargs: Any,
           callback: Any, real: Callable[[Any], Any]) -> dict[str, Any]:  # fmt: skip
    """The launches of ``fn(*args, **kwargs)``, and of its backward if anything asks for one."""
    from torch._dynamo import convert_frame

    torch.set_num_threads(1)
    listing = Listing(gpu)
    twins = _Twins(listing)
    before = dict(session.moved), list(session.kept)
    stack.close()
    session.moved, session.kept = before
    with listing.quiet():
        _move_program(session, twins, outside)
        args, kwargs = mapped(args, twins.of), mapped(kwargs, twins.of)

    convert = convert_frame.CatchErrorsWrapper.__call__

    def converted(*a: Any, **k: Any) -> Any:
        # A dispatch mode would make Dynamo skip the frame in silence.
        with listing.quiet(), _disable_current_modes():
            return convert(*a, **k)

    items = [(convert_frame.CatchErrorsWrapper, "__call__", converted)]
    leaves = [t for t in twins.known.values() if t.requires_grad]

    def run() -> list[torch.Tensor]:
        real(callback)
        try:
            return [t for t in tensors_in([_plain(fn(*args, **kwargs))]) if _on_gpu(t)]
        finally:
            real(None)

    from torch._dynamo.utils import counters

    earlier = dict(counters["graph_break"])
    with pretend_gpu(gpu), no_primary_context(), stand_ins(listing), replaced_all(items), _Watch(listing):
        with listing.quiet():
            out = run()
            _backward(listing, out, leaves)
            out = None
        if not listing.graphs:
            raise RuntimeError("the compiler skipped it")
        out = run()
        forward = len(listing.ops)
        gradients = _backward(listing, out, leaves)
    return {
        "forward": listing.ops[:forward],
        "backward": listing.ops[forward:],
        "tensors": listing.tensors,
        "storages": listing.storages,
        "graphs": listing.graphs,
        "breaks": [_first_line(why) for why in counters["graph_break"] if why not in earlier],
        "asked": listing.asked,
        "gradients": sum(g is not None for g in gradients),
    }


def _first_line(why: Any) -> str:
    """What Dynamo says about a break, without its advice."""
    lines = [line.strip() for line in str(why).splitlines() if line.strip()]
    return lines[0][:200] if lines else "for no reason that is given"


def _plain(value: Any) -> Any:
    """Outputs of libraries are often objects with tensors as fields."""
    if isinstance(value, (torch.Tensor, list, tuple, dict)):
        return value
    return list(vars(value).values()) if hasattr(value, "__dict__") else value


def _backward(listing: Listing, outputs: list[torch.Tensor], leaves: list[torch.Tensor]) -> Any:
    """Backward of what asks for it."""
    asking = [t for t in outputs if t.requires_grad]
    if not asking or not leaves:
        return ()
    with torch.no_grad(), listing.quiet():
        ones = [torch.empty_like(t) for t in asking]
    return torch.autograd.grad(asking, leaves, ones, allow_unused=True)
