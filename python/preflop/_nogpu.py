"""Makes PyTorch run fake CUDA tensors on machines without a CUDA driver, for the length of a capture.

Everything that is replaced here is put back when the capture ends. With a GPU at hand only the parts that fake tensors
themselves need are replaced.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
import sys
from typing import Any, Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ._errors import CaptureError


@contextlib.contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """``holder.name`` is ``value`` inside the block."""
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


def _slot_of_has_primary_context() -> int:
    """The place of ``hasPrimaryContext`` in the table of virtual functions.

    Read from the header that comes with the PyTorch at hand, so that it is right for every version: the virtual
    functions stand in the table in the order in which the header declares them, and a destructor takes two places.
    """
    header = os.path.join(os.path.dirname(torch.__file__), "include", "ATen", "detail", "AcceleratorHooksInterface.h")
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"//[^\n]*", "", file.read())
    body = text[text.index("AcceleratorHooksInterface {") :]
    slot = 0
    for declared in re.finditer(r"virtual\s[^;{]*?([~\w]+)\s*\(", body):
        if declared[1] == "hasPrimaryContext":
            return slot
        slot += 2 if declared[1].startswith("~") else 1
    raise CaptureError("this PyTorch declares no `hasPrimaryContext`")


#: Entries copied from the table of virtual functions: more than the class has (about 60), far less than the
#: read-only data behind it.
_TABLE = 128


@contextlib.contextmanager
def _no_primary_context() -> Iterator[None]:
    """Tells autograd's engine that no CUDA device is in use.

    Fake mode registers a device guard that counts one device; the engine then asks the CUDA library whether that device
    is in use, which raises without a driver. Inside this block the answer is no.
    """
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    library = ctypes.CDLL(os.path.join(libraries, "libtorch_cpu.so"))
    hooks = library._ZN2at6detail12getCUDAHooksEv
    hooks.restype = ctypes.c_void_p
    place = ctypes.cast(hooks(), ctypes.POINTER(ctypes.c_void_p))
    table = place[0]
    if table is None:
        raise CaptureError("this PyTorch has no CUDA hooks")
    # Two words before the first function belong to the table.
    words = (ctypes.c_void_p * (_TABLE + 2)).from_address(table - 16)
    copy = (ctypes.c_void_p * (_TABLE + 2))(*words)
    answer = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda hooks, device: False)
    copy[2 + _slot_of_has_primary_context()] = ctypes.cast(answer, ctypes.c_void_p).value
    place[0] = ctypes.addressof(copy) + 16
    try:
        yield
    finally:
        place[0] = table


def _forward() -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest forward of a fake CUDA tensor."""
    with FakeTensorMode():
        x = torch.ones(2, device="cuda", requires_grad=True)
        return x, (x * 2).sum()


def _try_backward() -> None:
    """And its backward."""
    x, y = _forward()
    with _no_primary_context():
        y.backward()
    if x.grad is None or x.grad.device.type != "cuda":
        raise CaptureError("no gradient arrived")


_works: bool | None = None


def _backward_works() -> bool:
    """Is backward of fake CUDA tensors possible here? Tried once, in a process that may crash."""
    global _works
    if _works is None:
        _works = _fork_and_try() or _start_and_try()
    return _works


def _fork_and_try() -> bool:
    """In a copy of this process: milliseconds, but not possible once autograd's threads run."""
    if not hasattr(os, "fork"):
        return False
    # What PyTorch loads at the first fake operator is then loaded once, not once more in the copy.
    _forward()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            _try_backward()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _start_and_try() -> bool:
    """In a process of its own: seconds."""
    code = "from preflop._nogpu import _try_backward; _try_backward()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=120)
    return run.returncode == 0


@contextlib.contextmanager
def fake_cuda() -> Iterator[None]:
    """A block in which fake CUDA tensors behave as real ones would: forward, autocast, backward, optimizers."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    with contextlib.ExitStack() as stack:
        # The optimizers' default would be the loop over tensors, since a fake tensor is no plain one.
        for types in (_foreach_utils._foreach_supported_types, optimizer._foreach_supported_types):
            types.append(FakeTensor)
            stack.callback(types.remove, FakeTensor)
        stack.enter_context(replaced(torch.cuda, "synchronize", lambda device=None: None))
        if not torch.cuda.is_available():
            from torch.cuda.amp import common

            stack.enter_context(replaced(common, "amp_definitely_not_available", lambda: False))
            stack.enter_context(replaced(torch.cuda, "is_bf16_supported", lambda *args, **kwargs: True))
            if torch.backends.cuda.is_built():
                if not _backward_works():
                    raise CaptureError(
                        f"PyTorch {torch.__version__} cannot run backward on fake CUDA tensors here",
                        hint="version 2.15 is tested; `preflop predict` reads .pt2 and .onnx files without PyTorch",
                    )
                stack.enter_context(_no_primary_context())
        yield
