"""Compiled functions inside a recording: the kernels that `torch.compile` would launch on a GPU that is not there.

Dynamo, AOTAutograd and Inductor run as they are; `_compile_gpu` answers what they ask about the device, `_compile_run` executes
the program that Inductor writes. When a compiled function is entered for the first time it runs once eagerly, unrecorded, so that
everything which belongs on the GPU is there; then it is compiled; then it is recorded. Whatever fails is recorded eagerly and said.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys
import time
import types
from typing import Any, Callable, Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ._compile_gpu import TargetGpu, pretend_gpu, replaced_all
from ._compile_kernels import KernelText
#: Names of the function that stands for a compiled one, over the versions.
_ENTRANCES = ("compile_wrapper", "_fn")


class Compilation:
    """What was compiled in one recording, and how to take the recorder off while a compiler looks."""

    def __init__(self, session: Any, gpu: str, mover: Any, module_call: Callable[..., Any]) -> None:
        self.session = session
        self.gpu_name = gpu
        self.mover = mover
        self.module_call = module_call
        self.gpu: TargetGpu | None = None
        self.graphs = 0
        self.asked: list[str] = []
        self.failed: list[str] = []
        self.seconds = 0.0
        self.current: int | None = None
        self.entered: types.FrameType | None = None
        self.trying = False
        self.prepared: dict[Any, bool] = {}
        self.above = 0
        self.recorded_call: Any = None
        self.world = contextlib.ExitStack()

    # What Inductor's programs report -------------------------------------------------------------------------------------

    def compiled(self, text: str) -> int:
        """A program was written; its number."""
        self.graphs += 1
        return self.graphs

    def asked_for(self, setting: str) -> None:
        """A setting that needs a device was asked for."""
        if setting not in self.asked:
            self.asked.append(setting)

    @contextlib.contextmanager
    def running(self, number: int) -> Iterator[None]:
        """A block in which program ``number`` runs."""
        before, self.current = self.current, number
        try:
            yield
        finally:
            self.current = before

    def launched(self, text: KernelText, args: tuple[Any, ...]) -> None:
        """A fused kernel was launched."""
        session = self.session
        if session.silent:
            return
        fused, reads, writes = text.launch(args)
        fused["graph"] = self.current
        phase, path, _ = session._place()
        session.ops.append(
            {
                "op": "fused::" + text.name,
                "phase": phase,
                "module": path,
                "in": [session._argument(t) for t in reads],
                "out": [session._tensor(t) for t in writes],
                "fused": fused,
            }
        )
        session.counter += 1

    def report(self) -> dict[str, Any] | None:
        """What the document says about compilation; nothing if nothing was compiled."""
        if not self.graphs and not self.failed:
            return None
        return {
            "gpu": self.gpu_name if self.gpu is None else self.gpu.name,
            "graphs": self.graphs,
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
                self._recorder_on()
                return real(callback)
            nested = self.entered is not None or self.trying
            if nested or not callable(callback) or frame.f_code.co_name not in _ENTRANCES:
                return real(callback)
            if not self._prepare(frame, callback, real):
                return real(None)
            self.entered = frame
            self._recorder_off()
            return real(callback)

        return set_frame

    def _prepare(self, frame: types.FrameType, callback: Any, real: Callable[[Any], Any]) -> bool:
        """Moves what the function uses to the GPU and compiles it; says whether that worked."""
        fn = frame.f_locals["fn"]
        args, kwargs = self.session.inputs(frame.f_locals["args"], frame.f_locals["kwargs"])
        _set_locals(frame, {"args": args, "kwargs": kwargs})
        key = getattr(fn, "__wrapped__", fn)
        known = self.prepared.get(key)
        if known is not None:
            return known
        calls = self.session.module_calls
        with self.session.quiet():
            fn(*args, **kwargs)
            self._bring_captured_tensors()
            self.prepared[key] = worked = self._try(fn, args, kwargs, callback, real)
        self.session.module_calls = calls
        return worked

    def _try(self, fn: Any, args: Any, kwargs: Any, callback: Any, real: Callable[[Any], Any]) -> bool:
        begin, graphs = time.monotonic(), self.graphs
        name = getattr(fn, "__qualname__", type(fn).__name__)
        try:
            if self.gpu is None:
                self.gpu = TargetGpu.named(self.gpu_name)
                self.world.enter_context(pretend_gpu(self.gpu))
                from ._compile_run import stand_ins

                self.world.enter_context(stand_ins(self))
            self._recorder_off()
            self.trying = True
            try:
                real(callback)
                fn(*args, **kwargs)
            finally:
                real(None)
                self.trying = False
                self._recorder_on()
        except Exception as error:  # noqa: BLE001: whatever a compiler raises, the step is then recorded eagerly
            if self.session.strict_compile:
                raise
            told = str(error).strip().split("\n")[0]
            self.failed.append(f"`{name}`: {type(error).__name__}: {told}"[:300])
            return False
        finally:
            self.seconds += time.monotonic() - begin
        if self.graphs == graphs:
            self.failed.append(f"`{name}`: the compiler skipped it")
            return False
        return True

    def _recorder_off(self) -> None:
        """Dynamo sees modes of functions and replaced methods: neither may be there."""
        from torch.overrides import _pop_mode, _push_mode

        passed = []
        while (mode := _pop_mode()) is not self.mover:
            passed.append(mode)
        for mode in reversed(passed):
            _push_mode(mode)
        self.above = len(passed)
        self.recorded_call = torch.nn.Module.__call__
        torch.nn.Module.__call__ = self.module_call

    def _recorder_on(self) -> None:
        from torch.overrides import _pop_mode, _push_mode

        passed = [_pop_mode() for _ in range(self.above)]
        _push_mode(self.mover)
        for mode in reversed(passed):
            _push_mode(mode)
        torch.nn.Module.__call__ = self.recorded_call

    def _bring_captured_tensors(self) -> None:
        """Tensors that the function holds rather than takes (labels in a closure): those of the host that met the GPU are replaced by
        those that stand for them, until the recording ends."""
        session = self.session
        for old in list(session.kept):
            new = session.moved.get(id(old))
            if new is None or isinstance(old, torch.nn.Parameter):
                continue
            number = session.storage_of(new)
            if number is not None and session.storages[number]["kind"] == "input":
                _replace(old, new, session, depth=2)

    def converted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Dynamo's conversion of a frame, out of the recorder's sight: a dispatch mode would make it skip the frame in silence."""

        def convert(*args: Any, **kwargs: Any) -> Any:
            with self.session.quiet(), _disable_current_modes():
                return real(*args, **kwargs)

        return convert


def _set_locals(frame: types.FrameType, values: dict[str, Any]) -> None:
    """Gives local variables of a running function other values."""
    frame.f_locals.update(values)
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def _replace(old: Any, new: Any, session: Any, depth: int) -> None:
    """Whoever holds ``old`` holds ``new`` until the recording ends: closures, dictionaries, lists and tuples of those.

    ``old`` must not become a closure's variable here, or that closure would be one of its holders.
    """
    for holder in gc.get_referrers(old):
        if holder is session.kept or holder is session.moved:
            continue
        if isinstance(holder, types.CellType):
            _put(holder, "cell_contents", old, new, setattr, session)
        elif isinstance(holder, dict):
            for name in list(holder):
                if holder[name] is old:
                    _put(holder, name, old, new, dict.__setitem__, session)
        elif isinstance(holder, list):
            for i in range(len(holder)):
                if holder[i] is old:
                    _put(holder, i, old, new, list.__setitem__, session)
        elif type(holder) is tuple and depth > 0:
            changed = list(holder)
            for i in range(len(changed)):
                if changed[i] is old:
                    changed[i] = new
            _replace(holder, tuple(changed), session, depth - 1)


def _put(holder: Any, place: Any, old: Any, new: Any, put: Callable[..., None], session: Any) -> None:
    put(holder, place, new)
    session.undo.append(functools.partial(put, holder, place, old))


@contextlib.contextmanager
def compiled_functions(session: Any, mover: Any, module_call: Callable[..., Any]) -> Iterator[None]:
    """A block in which compiled functions are recorded as compiled: around the recorder's modes."""
    from torch._dynamo import convert_frame, eval_frame

    compilation = Compilation(session, session.compile_gpu, mover, module_call)
    session.compilation = compilation
    wrapper = convert_frame.CatchErrorsWrapper
    items = [
        (eval_frame, "_maybe_set_eval_frame", compilation.hook(eval_frame._maybe_set_eval_frame)),
        (wrapper, "__call__", compilation.converted(wrapper.__call__)),
    ]
    with compilation.world, replaced_all(items):
        yield
