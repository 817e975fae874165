"""Compiled functions inside a recording: the kernels that `torch.compile` would launch on a GPU that is not there.

When a compiled function is entered for the first time it runs once eagerly, unrecorded, so that everything which belongs on the GPU is there;
then a copy of this process compiles it (`_compile_list.py`) and lists what it launches, forward and backward. From then on the
function runs eagerly but what is written down is the listing: the forward's where the function ends, the backward's where autograd reaches
the first of its operators. Listings are kept by graph, versions and GPU. Whatever fails is recorded eagerly, and the result says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import types
import warnings
from pathlib import Path
from typing import Any, Callable, Iterator

import torch

from ._core import VERSION
from ._errors import CaptureError, PreflopError
from ._tensor import GpuTensor, tensors_in

#: Raised when older listings would be misread or a rule that made them has changed.
_LISTING_VERSION = 3
#: Names of the function that stands for a compiled one, over the versions of PyTorch.
_ENTRANCES = ("compile_wrapper", "_fn")
#: A compiler that takes longer hangs.
_LIMIT_S = 1800
#: Seconds of an idle core before the first kernel, and for each operator: 48 networks compiled with PyTorch 2.11 took 8 s and 0.05 s, and
#: twice that where two shared a core.
_START_S, _EACH_S = 8, 0.07


class _Region:
    """One call of a compiled function, as its listing."""

    def __init__(self, listing: dict[str, Any], outside: list[GpuTensor]) -> None:
        self.listing = listing
        self.outside = outside
        self.numbers: dict[int, int] = {}
        self.tensors: dict[int, int] = {}
        self.first_node = 0
        self.last_node = 0
        self.backward_ran = False


class Compilation:
    """What was compiled in one recording."""

    def __init__(self, session: Any, stack: contextlib.ExitStack) -> None:
        self.session = session
        self.stack = stack
        self.listings: dict[Any, dict[str, Any] | None] = {}
        self.failed: list[str] = []
        self.asked: list[str] = []
        self.graphs = 0
        self.breaks: list[str] = []
        self.seconds = 0.0
        self.entered: types.FrameType | None = None
        self.region: _Region | None = None
        self.regions: list[_Region] = []
        self.open: list[int] = []
        self.dry: list[Any] | None = None
        self.calls = 0
        self.note, self.mark, self.ended = session.note, session.mark, session.iteration_ended
        session.note, session.mark, session.iteration_ended = self._note, self._mark, self._ended

    def report(self) -> dict[str, Any] | None:
        """What the document says about compilation; nothing if nothing was compiled."""
        if not self.graphs and not self.failed:
            return None
        return {
            "gpu": self.session.compile_gpu,
            "torch": torch.__version__,
            "graphs": self.graphs,
            "breaks": self.breaks,
            "seconds": round(self.seconds, 1),
            "cuda_graphs": any("cudagraph" in a for a in self.asked),
            "autotune": any("autotune" in a or "tuning" in a for a in self.asked),
            "eager": self.failed,
        }

    # Entering and leaving compiled functions -------------------------------------------------------------------------------

    def hook(self, real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Every compiled function calls this on its way in and out."""

        def set_frame(callback: Any) -> Any:
            frame = sys._getframe(1)
            if self.entered is frame:
                self.entered = None
                self._leave()
                return real(callback)
            inside = self.entered is not None or self.dry is not None
            if not inside and callable(callback) and frame.f_code.co_name in _ENTRANCES and "fn" in frame.f_locals:
                self._enter(frame, callback, real)
            # The function itself runs as it was written.
            return real(None)

        return set_frame

    def _enter(self, frame: types.FrameType, callback: Any, real: Callable[[Any], Any]) -> None:
        session, fn = self.session, frame.f_locals["fn"]
        args, kwargs = session.inputs(frame.f_locals["args"], frame.f_locals["kwargs"])
        key = (getattr(fn, "__wrapped__", fn), torch.is_grad_enabled(), _sizes(args, kwargs))
        if key not in self.listings:
            self.listings[key] = self._listing(fn, args, kwargs, callback, real, frame.f_locals.get("self"))
        listing = self.listings[key]
        if listing is not None:
            self.entered = frame
            self.calls = session.module_calls
            self.region = _Region(listing, self._outside(args, kwargs))
            self.region.first_node = torch._C._autograd._get_sequence_nr()

    def _leave(self) -> None:
        region, self.region = self.region, None
        if region is None:
            return
        region.last_node = torch._C._autograd._get_sequence_nr()
        self.session.module_calls = self.calls
        if not self.session.silent:
            self._play(region, "forward")
        if region.listing["backward"] and torch.is_grad_enabled():
            self.regions.append(region)
        else:
            self._close()

    def _outside(self, args: Any, kwargs: Any) -> list[GpuTensor]:
        """Tensors that the function may use and did not make, in an order that depends on the program alone."""
        found: dict[int, GpuTensor] = {}
        for tensor in [*self.session.moved.values(), *tensors_in((args, kwargs))]:
            if isinstance(tensor, GpuTensor):
                found.setdefault(id(tensor), tensor)
        return list(found.values())

    # Writing listings into the recording -------------------------------------------------------------------------------------

    def _note(self, name: str, arguments: list[Any], outputs: list[Any], nature: str | None = None) -> None:
        if self.dry is not None:
            self.dry.append([name, [_shape(t) for t in tensors_in(arguments)], [_shape(t) for t in tensors_in(outputs)]])
            return
        if self.region is not None or self.session.silent:
            return
        node = torch._C._current_autograd_node() if torch._C._current_graph_task_id() != -1 else None
        if node is not None and "AccumulateGrad" not in node.name():
            number = node._sequence_nr()
            for region in self.regions:
                if region.first_node <= number < region.last_node:
                    if not region.backward_ran:
                        region.backward_ran = True
                        self._play(region, "backward")
                    return
        self.note(name, arguments, outputs, nature)

    def _mark(self, tensor: torch.Tensor, kind: str) -> None:
        if kind == "gradient":
            # From here on the recording's own gradients are counted.
            self._close()
        self.mark(tensor, kind)

    def _ended(self) -> None:
        self._close()
        self.regions.clear()
        self.ended()

    def _close(self) -> None:
        """Storages that outlived their listing end."""
        for number in self.open:
            if self.session.storages[number]["last"] is None:
                self.session.storages[number]["last"] = self.session.counter
        self.open.clear()

    def _play(self, region: _Region, phase: str) -> None:
        """Appends the operators of one direction; times of storages become places in the recording."""
        session, listing = self.session, region.listing
        ended = len(listing["forward"])
        base = session.counter - (0 if phase == "forward" else ended)
        total = ended + len(listing["backward"])
        for i, (size, first, last, outside) in enumerate(listing["storages"]):
            mine = first < ended or outside is not None
            if phase == "forward" and not mine:
                continue
            if i not in region.numbers:
                if outside is not None:
                    number = session.storage_of(region.outside[outside]) if outside < len(region.outside) else None
                    if number is None:
                        continue
                    region.numbers[i] = number
                    continue
                region.numbers[i] = len(session.storages)
                session.storages.append({"bytes": size, "kind": "activation", "first": base + first, "last": None})
                self.open.append(region.numbers[i])
            stored = session.storages[region.numbers[i]]
            within = last is not None and (last <= ended if phase == "forward" else ended < last <= total)
            if outside is None and within and stored["last"] is None:
                stored["last"] = base + last
        for op in listing[phase]:
            place = "" if phase == "forward" else None
            session.ops.append(
                {
                    **op,
                    "phase": session.phase if place is not None else "backward",
                    "module": "",
                    "in": [self._argument(region, a) for a in op["in"]],
                    "out": [self._tensor(region, t) for t in op["out"]],
                }
            )
            session.counter += 1

    def _argument(self, region: _Region, value: Any) -> Any:
        if isinstance(value, dict):
            return {"t": self._tensor(region, value["t"])}
        return [self._argument(region, v) for v in value] if isinstance(value, list) else value

    def _tensor(self, region: _Region, number: int) -> int:
        if number not in region.tensors:
            dtype, shape, strides, storage = region.listing["tensors"][number]
            region.tensors[number] = len(self.session.tensors)
            self.session.tensors.append([dtype, shape, strides, region.numbers.get(storage)])
        return region.tensors[number]

    # Listings -----------------------------------------------------------------------------------------------------------------

    def _listing(
        self, fn: Any, args: Any, kwargs: Any, callback: Any, real: Callable[[Any], Any], context: Any
    ) -> dict[str, Any] | None:
        session, name = self.session, getattr(fn, "__qualname__", type(fn).__name__)
        begin, calls, self.dry = time.monotonic(), session.module_calls, []
        try:
            real(None)
            fn(*args, **kwargs)
        finally:
            dry, self.dry, session.module_calls = self.dry, None, calls
        outside = self._outside(args, kwargs)
        try:
            from ._compile_gpu import TargetGpu

            gpu = TargetGpu.named(session.compile_gpu)
            known = _Kept(dry, outside, gpu, context)
            listing = known.read()
            if listing is None:
                seconds = _START_S + _EACH_S * len(dry) * (3 if torch.is_grad_enabled() else 1)
                print(f"preflop: compiling `{name}` for {gpu.name} without a GPU: about {seconds:.0f} s of one core; the result is kept", file=sys.stderr)
                listing = self._list_in_copy(gpu, outside, fn, args, kwargs, callback, real)
                known.write(listing)
        except (PreflopError, OSError, ImportError) as error:
            told = f"`{name}` with PyTorch {torch.__version__}: {error}"
            if session.strict_compile:
                raise CaptureError(f"cannot compile {told}", hint="without `strict` it is recorded eagerly") from error
            self.failed.append(told[:400])
            return None
        finally:
            self.seconds += time.monotonic() - begin
        self.graphs += listing["graphs"]
        self.breaks += [why for why in listing["breaks"] if why not in self.breaks]
        self.asked += [a for a in listing["asked"] if a not in self.asked]
        return listing

    def _list_in_copy(self, gpu: Any, outside: Any, fn: Any, args: Any, kwargs: Any, callback: Any, real: Any) -> dict[str, Any]:
        """Compiles in a copy of this process and reads what it lists."""
        if not hasattr(os, "fork"):
            raise CaptureError("compiling needs a copy of the process, which this system can't make")
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # The copy runs this thread alone, and computes in no other.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _child(read, write, lambda: _call(self, gpu, outside, fn, args, kwargs, callback, real))
        os.close(write)
        text = _read_all(read, child)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = json.loads(text) if text else {"error": f"the compiling process ended with status {status}"}
        if "error" in answer:
            raise CaptureError(answer["error"])
        return answer


def _call(self: Compilation, gpu: Any, outside: Any, fn: Any, args: Any, kwargs: Any, callback: Any, real: Any) -> dict[str, Any]:
    from ._compile_list import listed

    return listed(self.session, self.stack, gpu, outside, fn, args, kwargs, callback, real)


def _child(read: int, write: int, work: Callable[[], dict[str, Any]]) -> None:
    """The whole life of the copy."""
    status = 1
    try:
        os.close(read)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001: whatever a compiler raises is told
            lines = [line for line in str(error).strip().split("\n") if line.strip()]
            answer = {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]}
            if os.environ.get("PREFLOP_DEBUG"):
                import traceback

                answer["error"] += "\n" + traceback.format_exc()
        with os.fdopen(write, "w", encoding="utf-8") as pipe:
            json.dump(answer, pipe)
        status = 0
    finally:
        os._exit(status)


def _read_all(pipe: int, child: int) -> str:
    """Everything that the copy writes; one that hangs is ended."""
    parts, end = [], time.monotonic() + _LIMIT_S
    try:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise CaptureError(f"the compiler did not end within {_LIMIT_S} s")
            data = os.read(pipe, 1 << 20)
            if not data:
                return b"".join(parts).decode()
            parts.append(data)
    finally:
        os.close(pipe)


class _Kept:
    """A listing in the user's cache, by graph, versions and GPU."""

    def __init__(self, dry: list[Any], outside: list[GpuTensor], gpu: Any, context: Any) -> None:
        try:
            from importlib.metadata import version

            triton = version("triton")
        except Exception:  # noqa: BLE001: whatever the reason, it has no version
            triton = None
        facts = [
            _LISTING_VERSION, VERSION, torch.__version__, triton, sys.version_info[:2], repr(gpu), dry, torch.is_grad_enabled(),
            [[_shape(t), t.requires_grad] for t in outside],
            str(getattr(context, "compiler_config", None)), str(getattr(context, "_dynamic", None)),
        ]  # fmt: skip
        digest = hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()
        folder = os.environ.get("PREFLOP_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "preflop")
        self.path = Path(folder) / "compiled" / f"{digest[:32]}.json"

    def read(self) -> dict[str, Any] | None:
        """The listing, if there is one that can be read."""
        try:
            return json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def write(self, listing: dict[str, Any]) -> None:
        """Keeps the listing; a folder that can't be written to is no reason to fail."""
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(listing, file, separators=(",", ":"))
            os.replace(name, self.path)


def _shape(tensor: torch.Tensor) -> list[Any]:
    return [str(tensor.dtype), list(tensor.shape), list(tensor.stride())]


def _sizes(args: Any, kwargs: Any) -> str:
    return json.dumps([_shape(t) for t in tensors_in((args, kwargs))])


@contextlib.contextmanager
def compiled_functions(session: Any, stack: contextlib.ExitStack) -> Iterator[None]:
    """A block in which compiled functions are recorded as compiled."""
    from torch._dynamo import eval_frame

    session.compilation = compilation = Compilation(session, stack)
    real = eval_frame._maybe_set_eval_frame
    eval_frame._maybe_set_eval_frame = compilation.hook(real)
    # `fullgraph=True` counts the frames that were compiled here, which are none: another process compiles.
    count = getattr(eval_frame, "set_fullgraph_compiled_frame_count", None)
    if count is not None:
        eval_frame.set_fullgraph_compiled_frame_count = lambda n: count(n) or 1
    try:
        yield
    finally:
        eval_frame._maybe_set_eval_frame = real
        if count is not None:
            eval_frame.set_fullgraph_compiled_frame_count = count


__all__ = ["Compilation", "compiled_functions"]
