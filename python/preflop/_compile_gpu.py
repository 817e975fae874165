"""Answers about a GPU that is not there, for Dynamo, AOTAutograd and Inductor.

They ask about the device in Python only: how many multiprocessors, which capability, how much shared memory. The answers come from
a GPU file, so a step can be compiled for any GPU. Three decisions for which PyTorch times or asks a device get a rule instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import types
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ._errors import CaptureError
from ._program import answer as ask


@dataclass(frozen=True)
class TargetGpu:
    """What a compiler asks about a GPU."""

    name: str
    title: str
    capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    shared_per_sm: int
    shared_per_block: int
    registers_per_sm: int
    threads_per_sm: int
    clock_khz: int

    @classmethod
    def named(cls, gpu: str) -> TargetGpu:
        """A GPU of ``preflop gpus``, or of a GPU file."""
        shown = ask("gpus", "show", gpu)
        facts = {f["key"]: f["value"] for f in [*shown["assumptions"], *shown["facts"]]}
        capability = shown.get("compute_capability")
        if shown["vendor"] != "nvidia" or not capability:
            raise CaptureError(f"compiling for `{gpu}` is not known: only NVIDIA GPUs are", hint="name one with `gpu=`")
        major, minor = capability.split(".")
        kib = 1024
        return cls(
            name=shown["name"],
            title=shown["title"],
            capability=(int(major), int(minor)),
            sm_count=int(shown["sm_count"]),
            memory_bytes=int(shown["memory_gib"] * 2**30),
            l2_bytes=int(facts.get("memory.l2_mib", 4) * 2**20),
            shared_per_sm=int(facts.get("chip_limits.shared_memory_per_sm_kib", 64) * kib),
            shared_per_block=int(facts.get("chip_limits.shared_memory_per_block_kib", 48) * kib),
            registers_per_sm=int(facts.get("chip_limits.registers_per_sm", 65536)),
            threads_per_sm=int(facts.get("chip_limits.threads_per_sm", 2048)),
            clock_khz=int(facts.get("chip_limits.boost_mhz", 1500) * 1000),
        )

    def properties(self) -> types.SimpleNamespace:
        """As ``torch.cuda.get_device_properties`` gives them."""
        return types.SimpleNamespace(
            name=self.title,
            major=self.capability[0],
            minor=self.capability[1],
            multi_processor_count=self.sm_count,
            total_memory=self.memory_bytes,
            regs_per_multiprocessor=self.registers_per_sm,
            max_threads_per_multi_processor=self.threads_per_sm,
            max_threads_per_block=1024,
            warp_size=32,
            shared_memory_per_block=48 * 1024,
            shared_memory_per_block_optin=self.shared_per_block,
            shared_memory_per_multiprocessor=self.shared_per_sm,
            L2_cache_size=self.l2_bytes,
            is_integrated=0,
            is_multi_gpu_board=0,
            gcnArchName="",
            clock_rate=self.clock_khz,
            memory_clock_rate=1_000_000,
            memory_bus_width=4096,
            uuid="0",
            pci_bus_id=0,
        )


class _Guard:
    """``torch.cuda.device`` and its kin."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> _Guard:
        return self

    def __exit__(self, *args: Any) -> bool:
        return False


def _says(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


@contextlib.contextmanager
def replaced_all(items: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Attributes that exist are replaced inside the block; those that this version lacks are left out."""
    done = []
    try:
        for holder, name, value in items:
            if hasattr(holder, name):
                # A static method is found as such in the class only.
                own = vars(holder).get(name, getattr(holder, name)) if hasattr(holder, "__dict__") else getattr(holder, name)
                done.append((holder, name, own))
                setattr(holder, name, value)
        yield
    finally:
        for holder, name, value in reversed(done):
            setattr(holder, name, value)


def _convolution_format(x: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
    """cuDNN's results lie channels-last if an operand does; without a driver PyTorch would say row-major."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if last is None or x.dtype == torch.float64:
        return torch.contiguous_format
    lies = [t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (x, weight)]
    return last if any(lies) else torch.contiguous_format


@contextlib.contextmanager
def _real_tensors_on_the_host() -> Iterator[None]:
    """Constant folding runs small operators on real tensors of the device: their memory comes from the host."""

    def empty(size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device="cpu")

    def strided(size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device="cpu")

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("empty.memory_format", empty, "CUDA")
        library.impl("empty_strided", strided, "CUDA")
    try:
        yield
    finally:
        library._destroy()


def _triton_driver(gpu: TargetGpu) -> list[tuple[Any, str, Any]]:
    """Triton asks its driver for the target; there is none."""
    import triton.runtime
    from triton.backends.compiler import GPUTarget

    facts = {
        "max_shared_mem": gpu.shared_per_block,
        "multiprocessor_count": gpu.sm_count,
        "warpSize": 32,
        "max_num_regs": gpu.registers_per_sm,
        "sm_clock_rate": gpu.clock_khz,
        "mem_clock_rate": 1_000_000,
        "mem_bus_width": 4096,
    }
    active = types.SimpleNamespace(
        get_current_target=_says(GPUTarget("cuda", gpu.capability[0] * 10 + gpu.capability[1], 32)),
        get_current_device=_says(0),
        get_current_stream=_says(0),
        get_device_interface=_says(torch.cuda),
        get_active_torch_device=_says(torch.device("cuda", 0)),
        utils=types.SimpleNamespace(get_device_properties=_says(facts)),
    )
    driver = triton.runtime.driver
    items = [(driver, "_active", active)]
    if not isinstance(getattr(type(driver), "active", None), property):
        items.append((driver, "active", active))
    return items


def _forget() -> None:
    """Answers that were cached before the device was there, or while it was."""
    from torch._inductor.runtime.hints import DeviceProperties
    from torch.utils import _triton

    create = getattr(DeviceProperties.create, "__func__", DeviceProperties.create)
    for function in [*vars(_triton).values(), create]:
        if hasattr(function, "cache_clear"):
            function.cache_clear()


@contextlib.contextmanager
def pretend_gpu(gpu: TargetGpu) -> Iterator[None]:
    """Python's questions about the device are answered for ``gpu``; C++ is never asked."""
    from torch._dynamo.device_interface import CudaInterface

    properties, capability = gpu.properties(), gpu.capability
    state = torch.zeros(16, dtype=torch.uint8)
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": properties,
        "get_device_capability": capability,
        "get_device_name": gpu.title,
        "_lazy_init": None,
        "init": None,
        "is_initialized": True,
        "synchronize": None,
        "set_device": None,
        "mem_get_info": (gpu.memory_bytes, gpu.memory_bytes),
        "memory_allocated": 0,
        "is_bf16_supported": capability[0] >= 8,
        "is_tf32_supported": capability[0] >= 8,
        "get_rng_state": state,
        "set_rng_state": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "is_current_stream_capturing": False,
        "get_arch_list": [f"sm_{capability[0]}{capability[1]}"],
    }
    functions = {name: _says(value) for name, value in answers.items()}
    items: list[tuple[Any, str, Any]] = [(torch.cuda, name, function) for name, function in functions.items()]
    items += [(torch.cuda.random, n, functions[n]) for n in ("get_rng_state", "set_rng_state")]
    items += [(torch.cuda, "device", _Guard), (torch.cuda, "_DeviceGuard", _Guard)]
    # The interface copied the functions when it was imported.
    for name in (
        "current_device", "set_device", "device_count", "synchronize", "get_device_properties", "memory_allocated",
        "is_bf16_supported", "is_available",
    ):
        items.append((CudaInterface, name, staticmethod(functions[name])))
    for name, value in {
        "exchange_device": 0,
        "maybe_exchange_device": 0,
        "get_raw_stream": 0,
        "get_compute_capability": capability[0] * 10 + capability[1],
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
    }.items():
        items.append((CudaInterface, name, staticmethod(_says(value))))
    items += [
        (CudaInterface, "device", _Guard),
        (CudaInterface.Worker, "get_device_properties", staticmethod(_says(properties))),
        (CudaInterface.Worker, "current_device", staticmethod(_says(0))),
    ]
    for name, value in {
        "_cuda_getCurrentRawStream": 0,
        "_cuda_getDevice": 0,
        "_cuda_getDeviceCount": 1,
        "_cuda_exchangeDevice": 0,
        "_cuda_maybeExchangeDevice": 0,
        "_cuda_setDevice": None,
        "_cuda_synchronize": None,
        "_cuda_isCurrentStreamCapturing": False,
    }.items():
        items.append((torch._C, name, _says(value)))
    items += _triton_driver(gpu)
    # Fake mode asks torch.cuda.is_available() whether it may touch the device: it must not.
    items.append((FakeTensorMode, "avoid_device_init", property(_says(True))))
    items.append((torch._C, "_conv_determine_backend_memory_format", _convolution_format))
    items += _padding_rule()
    with replaced_all(items), _real_tensors_on_the_host():
        _forget()
        try:
            yield
        finally:
            _forget()


def _slot_of_has_primary_context() -> int:
    """The place of ``hasPrimaryContext`` in the table of virtual functions.

    Read from the header that comes with the PyTorch at hand: virtual functions stand in the table in the order in which the header
    declares them, and a destructor takes two places.
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
def no_primary_context() -> Iterator[None]:
    """Tells autograd's engine that no CUDA device is in use.

    Fake CUDA tensors register a device guard that counts one device; the engine then asks the CUDA library whether that device is in use,
    which raises without a driver. Used in the compiling process only, which may die of it without harm.
    """
    if not torch.backends.cuda.is_built():
        yield
        return
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
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


def _padding_rule() -> list[tuple[Any, str, Any]]:
    """Inductor times a product with and without padding; here it is padded if a size is no multiple of 16 bytes and the product is
    bound by arithmetic."""
    from torch._inductor.fx_passes import pad_mm

    def rule(match: Any, first: torch.Tensor, second: torch.Tensor, op: Any, *rest: Any, **kwargs: Any) -> bool:
        if op not in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            return False
        m, k, n = first.shape[-2], first.shape[-1], second.shape[-1]
        if not all(isinstance(size, int) for size in (m, k, n)):
            return False
        aligned = 16 // first.element_size()
        return any(size % aligned for size in (m, k, n)) and pad_mm.is_mm_compute_bound(m, k, n, first.dtype)

    return [(pad_mm, name, rule) for name in ("_should_pad", "_should_pad_bench")]
