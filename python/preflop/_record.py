"""Recording a training step: which operators run, on what, in which order, and which storages live when.

`_modes.py` has the modes that stand around the user's code, `_session.py` what they write down, `_moving.py` how models come
to the GPU of the recording. Tensors that never meet the GPU stay real, so that building models and loading data work as always.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
import weakref
from typing import Any, Iterator

import torch

from . import _autocast, _choices, _compile, _cuda, _cuda_graphs, _distributed, _files
from ._modes import Mover, Recorder
from ._moving import weights_as
from ._errors import CaptureError, PreflopError
from ._session import _OWN, DTYPES, Session
from ._tensor import tensors_in

__all__ = ["Session", "recording", "weights_as"]


def _first_sizes(session: Session, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Samples and sequence length from the first input of a model."""
    first = next(tensors_in((args, kwargs)), None)
    if first is None or first.dim() == 0:
        return
    listed = next((a for a in (*args, *kwargs.values()) if isinstance(a, (list, tuple, dict)) or torch.is_tensor(a)), None)
    # Detectors take a list of images.
    several = isinstance(listed, (list, tuple)) and len(listed) > 0 and all(torch.is_tensor(t) and t.dim() == 3 for t in listed)
    session.calls.append((session.counter, id(module), len(listed) if several else first.size(0)))
    if session.seq is None and first.dim() == 2 and first.dtype in (torch.int64, torch.int32):
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
            _first_sizes(session, module, args, kwargs)
            session.model_name = session.model_name or type(module).__name__
            prefix = "" if len(session.names) == 0 or module in session_tops else type(module).__name__ + "."
            session_tops.add(module)
            for name, each in module.named_modules():
                session.names.setdefault(id(each), prefix + name)
        session.modules.append(session.names.get(id(module), type(module).__name__))
        session.module_calls += 1  # those of recomputation in backward too
        if torch.is_autocast_enabled("cuda"):
            session.autocast = DTYPES.get(torch.get_autocast_dtype("cuda"))
        elif torch.is_autocast_enabled("cpu"):
            session.remark('autocast of the CPU was on, which casts nothing on a GPU; `torch.autocast("cuda", ..)` does')
        try:
            return call(module, *args, **kwargs)
        finally:
            session.modules.pop()

    session_tops: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
    prepared: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    walked: dict[int, int] = {}

    def before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if session.phase == "optimizer":
            return None
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
            for tensor in tensors_in(state.values() if isinstance(state, dict) else [state]):
                session.mark(tensor, "optimizer")
        walked[id(optimizer)] = sum(
            1 for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        )
        session.phase = "optimizer"
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if closure is None:
            return None

        def inner_step() -> Any:
            # What a closure runs is an iteration inside the optimizer's own.
            session.phase = "forward"
            try:
                return closure()
            finally:
                session.phase = "optimizer"

        if kwargs.get("closure"):
            return args, {**kwargs, "closure": inner_step}
        return (args[0], inner_step, *args[2:]), kwargs

    def after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not session.silent:
            session.phase = "forward"
            session.stepped_by(id(optimizer), walked.get(id(optimizer), 0))

    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    # PyTorch loads its compiler at the first mode or optimizer in any case, and looks at `torch.cuda` then: before it is replaced.
    importlib.import_module("torch._dynamo")

    made = torch.optim.Optimizer.__init__

    def optimizer_made(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        made(optimizer, *args, **kwargs)
        if session.optimizers is not None:
            session.optimizers.add(optimizer)
        session.move_optimizer(optimizer)

    with contextlib.ExitStack() as stack:
        stack.callback(session.restore)
        library = torch.library.Library("aten", "IMPL")
        stack.callback(library._destroy)
        session.choices = _choices.install(session, library)
        stack.enter_context(_autocast.rules(library))
        stack.enter_context(_cuda.one_gpu(session))
        stack.enter_context(_distributed.one_of_many(session))
        stack.enter_context(_files.unwritten(session))
        stack.enter_context(_cuda.replaced(torch.jit, "trace", _refused_trace(session)))
        stack.enter_context(_cuda.replaced(torch.nn.Module, "__call__", recorded_call))
        stack.enter_context(_cuda.replaced(torch.nn.Module, "_apply", lambda *a, **k: session.apply(*a, **k)))
        stack.enter_context(_cuda.replaced(torch.optim.Optimizer, "__init__", optimizer_made))
        stack.callback(register_optimizer_step_pre_hook(before_step).remove)
        stack.callback(register_optimizer_step_post_hook(after_step).remove)
        stack.enter_context(_cuda_graphs.cuda_graphs(session))
        if "torch._dynamo" in sys.modules:
            stack.enter_context(_compile.compiled_functions(session, stack))
        stack.enter_context(Recorder(session))
        stack.enter_context(Mover(session))
        try:
            yield
        except Exception as error:
            told = _told(session, error)
            if told is None:
                raise
            raise told from error


def _refused_trace(session: Session) -> Any:
    def trace(*args: Any, **kwargs: Any) -> Any:
        raise CaptureError(
            f"`torch.jit.trace` at {session.user_line()} would trace the recorder",
            hint="record the module itself, or trace it before the block",
        )

    return trace


#: Words of PyTorch's messages where it asks for data, a device or a kind of tensor that a recording does not have.
_LIMITS = ("meta", "data pointer", "NVIDIA driver", "CUDA error", "not compiled with CUDA", "access storage of", "FakeTensor",
           "data-dependent", "Fake mode", "no rule registered")  # fmt: skip


def _told(session: Session, error: Exception) -> CaptureError | None:
    """An error that is the recording's and not the program's, in one line."""
    if isinstance(error, PreflopError):
        return None
    said = (str(error).strip() or type(error).__name__).split("\n")[0]
    if not any(word in said for word in _LIMITS):
        return None
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_OWN)]
    line = f"{own[-1].filename}:{own[-1].lineno}" if own else "an unknown line"
    return CaptureError(
        f"{line} can't be recorded: {said[:200]}", hint="leave it out of the block, or write it with other operators"
    )
