"""What `torch.cuda` answers inside a recording: one recent NVIDIA GPU, whether or not there is one.

Everything that is replaced here is put back when the recording ends.
"""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any, Callable, Iterator

import torch

from ._tensor import CUDA, META, GpuTensor, is_cuda

#: Figures of the GPU that programs may ask for: an H100 SXM, whose generation the recorded choices are those of.
_NAME, _CAPABILITY, _MEMORY, _PROCESSORS = "NVIDIA H100 80GB HBM3", (9, 0), 80 << 30, 132


@contextlib.contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """``holder.name`` is ``value`` inside the block."""
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


class Event:
    """``torch.cuda.Event`` of a recording: it has always happened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = CUDA

    def record(self, stream: Any = None) -> None:
        """Nothing runs, nothing is waited for."""

    wait = record

    def synchronize(self) -> None:
        """Nothing runs, nothing is waited for."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        """A millisecond, which no program divides by in vain."""
        return 1.0


class Stream:
    """``torch.cuda.Stream`` of a recording: what runs on it runs in the order of the program."""

    #: The stream that operators go to, by its number; 0 is the default one.
    current = 0
    #: Streams that were made so far.
    made = 0

    def __init__(self, device: Any = None, priority: int = 0, stream_id: int | None = None, **kwargs: Any) -> None:
        if stream_id is None:
            # PyTorch hands its 32 streams out in turn.
            stream_id = Stream.made % 32 + 1
            Stream.made += 1
        self.device, self.priority = CUDA, priority
        self.device_index, self.device_type, self.stream_id, self.cuda_stream = 0, 1, stream_id, stream_id

    def wait_stream(self, stream: Any) -> None:
        """Nothing runs, nothing is waited for."""

    wait_event = wait_stream

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def synchronize(self) -> None:
        """Nothing runs, nothing is waited for."""

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Stream:
        self.before, Stream.current = Stream.current, self.stream_id
        return self

    def __exit__(self, *error: Any) -> None:
        Stream.current = self.before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return self.stream_id


class OnStream:
    """``torch.cuda.stream`` of a recording: operators inside go to that stream."""

    def __init__(self, stream: Any = None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self.before = Stream.current
        _set_stream(self.stream)

    def __exit__(self, *error: Any) -> None:
        Stream.current = self.before


def _set_stream(stream: Any) -> None:
    if isinstance(stream, Stream):
        Stream.current = stream.stream_id


class Inside:
    """``torch.cuda.device`` of a recording: a block that changes nothing."""

    def __init__(self, *args: Any) -> None:
        pass

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: Any) -> None:
        pass


class _GeneratorType(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_GeneratorType):
    """``torch.Generator`` that may be asked for on the GPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        new = super().__new__(cls)
        new._cuda = is_cuda(device)
        return new

    @property
    def device(self) -> torch.device:
        return CUDA if self._cuda else torch.device("cpu")


def _properties(device: Any = None) -> Any:
    return types.SimpleNamespace(
        name=_NAME,
        major=_CAPABILITY[0],
        minor=_CAPABILITY[1],
        total_memory=_MEMORY,
        multi_processor_count=_PROCESSORS,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        L2_cache_size=50 << 20,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
        uuid="",
    )


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer


def _answers(session: Any) -> dict[str, Any]:
    state = torch.zeros(16, dtype=torch.uint8)

    def reset_peak(device: Any = None) -> None:
        session.peak_from = session.counter

    def allocated(device: Any = None) -> int:
        return session.allocated()[0]

    def most_allocated(device: Any = None) -> int:
        return session.allocated()[1]

    answers: dict[str, Any] = {
        "is_available": _always(True),
        "is_initialized": _always(True),
        "is_current_stream_capturing": _always(False),
        "is_bf16_supported": _always(True),
        "is_tf32_supported": _always(True),
        "device_count": _always(1),
        "current_device": _always(0),
        "get_device_name": _always(_NAME),
        "get_device_capability": _always(_CAPABILITY),
        "get_device_properties": _properties,
        "get_arch_list": _always(["sm_80", "sm_90"]),
        "mem_get_info": _always((_MEMORY, _MEMORY)),
        "memory_stats": _always({}),
        "memory_summary": _always(""),
        "get_rng_state": _always(state),
        "get_rng_state_all": _always([state]),
        "initial_seed": _always(0),
        "utilization": _always(0),
        "current_stream": lambda device=None: Stream(stream_id=Stream.current),
        "default_stream": lambda device=None: Stream(stream_id=0),
        "set_stream": _set_stream,
        "Stream": Stream,
        "Event": Event,
        "device": Inside,
        "device_of": Inside,
        "stream": OnStream,
        "StreamContext": OnStream,
        "memory_allocated": allocated,
        "memory_reserved": allocated,
        "max_memory_allocated": most_allocated,
        "max_memory_reserved": most_allocated,
        "reset_peak_memory_stats": reset_peak,
        "reset_max_memory_allocated": reset_peak,
        "can_device_access_peer": _always(True),
        "get_allocator_backend": _always("native"),
    }
    for name in """init _lazy_init _lazy_call set_device synchronize empty_cache ipc_collect manual_seed manual_seed_all seed
                   seed_all set_rng_state set_rng_state_all
                   reset_accumulated_memory_stats set_per_process_memory_fraction set_sync_debug_mode""".split():
        # One function each: PyTorch's compiler, if it is loaded meanwhile, wants to tell them apart.
        answers[name] = _always(None)
    for name in "memory_cached max_memory_cached get_sync_debug_mode".split():
        answers[name] = _always(0)
    return answers


_ACCELERATOR = {
    "is_available": _always(True),
    "device_count": _always(1),
    "current_accelerator": _always(torch.device("cuda")),
    "current_device_index": _always(0),
    "current_device_idx": _always(0),
    "set_device_index": _always(None),
    "set_device_idx": _always(None),
    "current_stream": lambda device=None: Stream(stream_id=Stream.current),
    "set_stream": _set_stream,
    "synchronize": _always(None),
    "empty_cache": _always(None),
    "memory_allocated": _always(0),
    "max_memory_allocated": _always(0),
}


def _grouped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Lists of tensors by device and format, as optimizers walk them: the device is the GPU where PyTorch sees meta."""

    def group(lists: Any, with_indices: bool = False) -> Any:
        groups = function(lists, with_indices)
        if not any(isinstance(t, GpuTensor) for each in lists for t in each):
            return groups
        return {(CUDA if key[0] is not None and key[0].type == "meta" else key[0], key[1]): v for key, v in groups.items()}

    return group


def _from_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors made from data, where it is called from inside PyTorch and no mode sees it."""

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        if not is_cuda(kwargs.get("device")):
            return function(*args, **kwargs)
        return function(*args, **{**kwargs, "device": "cpu"}).to(META)

    return make


@contextlib.contextmanager
def one_gpu(session: Any) -> Iterator[None]:
    """A block in which PyTorch's Python interface finds a GPU."""
    from torch.cuda.amp import common
    from torch.jit import _builtins
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    Stream.current = Stream.made = 0
    with contextlib.ExitStack() as stack:
        # The optimizers' default would be the loop over tensors, since a recorded tensor is no plain one.
        for types_ in {id(t): t for t in (_foreach_utils._foreach_supported_types, optimizer._foreach_supported_types)}.values():
            types_.append(GpuTensor)
            stack.callback(types_.remove, GpuTensor)
        for holder, answers in ((torch.cuda, _answers(session)), (getattr(torch, "accelerator", None), _ACCELERATOR)):
            for name, answer in answers.items():
                if hasattr(holder, name):
                    stack.enter_context(replaced(holder, name, answer))
        stack.enter_context(replaced(common, "amp_definitely_not_available", lambda: False))
        stack.enter_context(replaced(torch, "Generator", Generator))
        # Functions that are scripted meanwhile (`torch.jit.script`) must know them as well.
        scripted = _builtins._get_builtin_table()
        for function in (torch.tensor, torch.as_tensor, torch.asarray):
            instead = _from_data(function)
            if id(function) in scripted:
                scripted[id(instead)] = scripted[id(function)]
                stack.callback(scripted.pop, id(instead))
            stack.enter_context(replaced(torch, function.__name__, instead))
        if hasattr(torch._C, "_get_accelerator"):
            stack.enter_context(replaced(torch._C, "_get_accelerator", _always(torch.device("cuda"))))
        name = "_group_tensors_by_device_and_dtype"
        stack.enter_context(replaced(torch._C, name, _grouped(getattr(torch._C, name))))
        for name in ("range_push", "range_pop", "mark"):
            stack.enter_context(replaced(torch.cuda.nvtx, name, _always(0)))
        yield
