"""What a recording has seen: operators in order, tensors, and storages with their lifetimes."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import torch

from . import _assume
from ._errors import CaptureError
from ._moving import Moving
from ._tensor import GpuTensor, on_gpu, tensors_in
from ._values import Values

#: Name of a number format in the file.
DTYPES = {
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
class Mark:
    """The end of an optimizer's step."""

    optimizer: int
    counter: int
    module_calls: int
    parameter_tensors: int


#: Files whose lines are not the program's own.
_OWN = (os.path.dirname(__file__) + os.sep, os.path.dirname(torch.__file__) + os.sep)


@dataclass(frozen=True)
class Pass:
    """One recorded iteration."""

    begin: int
    ops: list[dict[str, Any]]
    module_calls: int
    parameter_tensors: int


class Session(Moving):
    """One recording: what was seen, and how to undo what was changed."""

    def __deepcopy__(self, memo: object) -> Session:
        """A copied tensor is of the same recording."""
        return self

    def __init__(self) -> None:
        self.values = Values()
        #: By composite operator: what is run in its place where autograd is off.
        self.choices: dict[Any, Callable[..., Any]] = {}
        #: More than zero while the program itself asks for tensors of the meta device.
        self.meta_wanted = 0
        self.assumptions: dict[tuple[str, ...], dict[str, Any]] = {}
        #: What a reader of the result should know, with the place where it was seen first and how often.
        self.remarks: dict[str, list[Any]] = {}
        #: Sizes that the operator at hand took by assumption.
        self.just_assumed: dict[int, int] = {}
        self.asked: dict[str, int] = {}
        #: What happened when: optimizers that stepped, and calls of whole models with the samples they got.
        self.rounds: list[Mark] = []
        self.calls: list[tuple[int, int, int]] = []
        self.backwards: list[int] = []
        self.parameter_elements = 0
        #: Processes of the job, and gradients that are being reduced.
        self.world_size = 1
        self.buckets: list[torch.Tensor] = []
        self.optimizers: weakref.WeakSet[torch.optim.Optimizer] | None = None
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
        self.parameters: dict[int, torch.Tensor] = {}
        self.stepped: dict[int, int] = {}
        self.seq: int | None = None
        self.begin = 0
        #: Where the program reset its peak of memory, and streams beside the default one on which products ran.
        self.peak_from = 0
        self.side_streams: set[int] = set()
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
        if not on_gpu(tensor):
            return None
        # Looked up once for each tensor; operators that give it another storage clear it.
        if tensor._place is not None and tensor._place[0] is self:
            return tensor._place[1]
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self.live.get(key)
        if known is not None:
            tensor._place = (self, known)
            return known
        number = len(self.storages)
        self.storages.append({"bytes": storage.nbytes(), "kind": kind, "first": self.counter, "last": None})
        self.live[key] = number
        weakref.finalize(storage, self._died, key, number)
        tensor._place = (self, number)
        return number

    def _died(self, key: int, number: int) -> None:
        storage = self.storages[number]
        storage["last"] = self.counter
        if storage["first"] == self.counter and storage["kind"] in ("weight", "buffer"):
            # Replaced while the model was set up (`model.cuda().half()`), before any operator ran.
            storage["bytes"] = 0
        self.live.pop(key, None)

    def allocated(self) -> tuple[int, int]:
        """Bytes of all storages that live now, and the most at a time since the program reset its peak."""
        changes = [(s["first"], s["bytes"]) for s in self.storages]
        changes += [(s["last"], -s["bytes"]) for s in self.storages if s["last"] is not None]
        now = most = 0
        for at, change in sorted(changes):
            now += change
            if at >= self.peak_from:
                most = max(most, now)
        return now, max(most, now)

    def mark(self, tensor: torch.Tensor, kind: str) -> None:
        """Says what a storage is for."""
        number = self.storage_of(tensor, kind)
        if number is not None:
            self.storages[number]["kind"] = kind

    # Notes ----------------------------------------------------------------------------------------------------------------

    def _tensor(self, tensor: torch.Tensor) -> int:
        storage = self.storage_of(tensor)
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        key = (tensor.dtype, shape, strides, storage)
        number = self.tensor_ids.get(key)
        if number is None:
            number = len(self.tensors)
            self.tensor_ids[key] = number
            dtype = DTYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
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
        for tensor in tensors_in(outputs):
            self.storage_of(tensor)
        op = {
            "op": name,
            "phase": phase,
            "module": path,
            "in": [self._argument(a) for a in arguments],
            "out": [self._tensor(t) for t in tensors_in(outputs)],
        }
        if nature is not None:
            op[nature] = True
        if self.assumptions:
            follows = self._follows_from(arguments, outputs)
            if follows:
                op["assumes"] = follows
        if in_place:
            # Not so for recorded tensors: the engine adds into the gradient that waits, if nothing else holds it, and a
            # linear layer that can't fuse its bias adds it to the product.
            op["op"] = "aten::add_"
            self.accumulations.append((self.counter, self.storage_of(arguments[0]), op))
        if phase == "backward" and (not self.ops or self.ops[-1]["phase"] != "backward"):
            self.backwards.append(self.counter)
        self.ops.append(op)
        self.counter += 1

    def _follows_from(self, arguments: list[Any], outputs: list[Any]) -> list[int]:
        """Assumptions that the sizes of an operator follow from: its tensors came from them and have a dimension of that size."""
        sizes = dict(self.just_assumed)
        self.just_assumed = {}
        for tensor in tensors_in(arguments):
            if isinstance(tensor, GpuTensor) and tensor._assumes:
                sizes.update((n, s) for n, s in tensor._assumes.items() if s in tensor.shape)
        if sizes:
            for tensor in tensors_in(outputs):
                if isinstance(tensor, GpuTensor):
                    tensor._assumes = {**tensor._assumes, **sizes}
        return sorted(sizes)

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

    # Numbers that are not there --------------------------------------------------------------------------------------------

    def follows_values(self) -> bool:
        """Are numbers of small tensors computed? Not in backward and not in optimizers, which decide nothing by them."""
        return self.phase == "forward" and torch._C._current_graph_task_id() == -1

    def user_line(self) -> str:
        """File and line of the program that is recorded."""
        frame = sys._getframe(1)
        while frame is not None:
            path = frame.f_code.co_filename
            if not path.startswith(_OWN) and "<" not in path:
                return f"{os.path.relpath(path) if path.startswith(os.getcwd()) else path}:{frame.f_lineno}"
            frame = frame.f_back
        return "an unknown line"

    def assumed(self, operator: str, text: str, size: int) -> None:
        """Lists an assumption; the same one of the same line is listed once, with a count. What the operator at hand gives is of that size."""
        if self.silent:
            return
        module = self.modules[-1] if self.modules else ""
        key = (operator, module, self.user_line(), text)
        entry = self.assumptions.setdefault(
            key,
            {"id": len(self.assumptions), "operator": operator, "module": module, "line": key[2], "assumed": text, "size": size, "count": 0},
        )
        entry["count"] += 1
        if size > 1:
            self.just_assumed[entry["id"]] = size

    def remark(self, text: str) -> None:
        """Something that a job on a GPU would not want; told once, with the line where it happened first."""
        if self.silent:
            return
        if text in self.remarks:
            self.remarks[text][1] += 1
        else:
            self.remarks[text] = [self.user_line(), 1]

    def told(self) -> list[str]:
        """The remarks in words."""
        return [f"{text} (at {line}" + (f", {count} times)" if count > 1 else ")") for text, (line, count) in self.remarks.items()]

    def number(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> Any:
        """A number is asked of a tensor on the GPU: the host waits for it."""
        if not self.silent:
            self.note("aten::_local_scalar_dense", [tensor], [])
        known = tensor.value() if isinstance(tensor, GpuTensor) else None
        if known is not None and dtype is None:
            return known.item()
        line = self.user_line()
        times = self.asked[line] = self.asked.get(line, 0) + 1
        if times > _assume.current().rounds:
            raise CaptureError(
                f"{line} asked {times} times for a number that only a real run would know: does a loop wait for it?",
                hint="bound the loop, call `graph.step()` after each iteration, or raise the limit with `preflop.assume(rounds=N)`",
            )
        dtype = dtype or tensor.dtype
        if dtype == torch.bool:
            return False
        # Like a loss that falls: never twice the same, so that nothing seems to have converged.
        falling = 1.0 + 1.0 / times
        return falling if dtype.is_floating_point else complex(falling) if dtype.is_complex else 1

    def host_copy(self, tensor: GpuTensor, dtype: torch.dtype | None) -> torch.Tensor:
        """What a copy to the host holds: the numbers if they are known, else zeros."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            known = tensor.value()
            if known is not None:
                return known.to(dtype or known.dtype, copy=True)
            return torch.zeros(tensor.shape, dtype=dtype or tensor.dtype)

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
        self.asked = {}

    def stepped_by(self, optimizer: int, parameter_tensors: int) -> None:
        """An optimizer has stepped."""
        self.stepped[optimizer] = parameter_tensors
        self.rounds.append(Mark(optimizer, self.counter, self.module_calls, parameter_tensors))

    def final(self) -> Pass:
        """The last complete iteration: as the program said with `step()`, else between two steps of the optimizer, else all there is."""
        if self.complete is not None:
            return self.complete
        return self._last_round() or Pass(self.begin, self.ops, self.module_calls, sum(self.stepped.values()))

    def _last_round(self) -> Pass | None:
        """A block that steps several times holds several iterations; the optimizer that steps least often tells them apart."""
        steps: dict[int, list[Mark]] = {}
        for mark in self.rounds:
            steps.setdefault(mark.optimizer, []).append(mark)
        if not steps:
            return None
        least = min(len(marks) for marks in steps.values())
        rarest = [marks for marks in steps.values() if len(marks) == least]
        before, last = max(rarest, key=lambda marks: marks[-1].counter)[-2:] if least > 1 else (None, None)
        if before is None or last is None:
            return None
        inside = {m.optimizer: m.parameter_tensors for m in self.rounds if before.counter < m.counter <= last.counter}
        ops = self.ops[before.counter - self.begin : last.counter - self.begin]
        return Pass(before.counter, ops, last.module_calls - before.module_calls, sum(inside.values()))

    def samples_of(self, iteration: Pass) -> int | None:
        """Samples of an iteration: those of its first model; where one optimizer gathers several backward passes, of all of them."""
        first, last = iteration.begin, iteration.begin + len(iteration.ops)
        calls = [c for c in self.calls if first <= c[0] < last]
        if not calls:
            return self.calls[0][2] if self.calls else None
        own = [c for c in calls if c[1] == calls[0][1]]
        if len({m.optimizer for m in self.rounds}) > 1:
            return own[0][2]
        groups: dict[int, int] = {}
        for counter, _, samples in own:
            passed = sum(1 for b in self.backwards if b <= counter)
            groups[passed] = max(groups.get(passed, 0), samples)
        gathered = any(first <= b < last for b in self.backwards)
        return sum(groups.values()) if gathered else own[0][2]

    def final_ops(self) -> list[dict[str, Any]]:
        """Its operators."""
        return self.final().ops
