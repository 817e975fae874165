"""Jobs on several GPUs: collectives are recorded as one of the processes calls them, and nothing is sent.

`init_process_group` makes a group of the size that the program or its launcher names (`WORLD_SIZE`, `RANK`) without other processes.
`DistributedDataParallel` keeps its gradients in buckets in C++, for tensors that exist; here it reduces the same buckets.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Callable, Iterator

import torch

from ._cuda import replaced
from ._errors import CaptureError
from ._sizes import new
from ._tensor import mapped, on_gpu

#: Sizes of DDP's buckets: the first is small so that communication begins early (`torch.distributed._DEFAULT_FIRST_BUCKET_BYTES`).
_FIRST_BUCKET, _BUCKET = 1 << 20, 25 << 20


def _number(name: str, given: Any, default: int) -> int:
    if isinstance(given, int) and given >= 0:
        return given
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def _group(session: Any, real: Callable[..., Any]) -> Callable[..., Any]:
    """``init_process_group`` without other processes."""

    def init(backend: Any = None, init_method: Any = None, timeout: Any = None, world_size: int = -1, rank: int = -1,
             store: Any = None, *args: Any, **kwargs: Any) -> None:  # fmt: skip
        from torch.testing._internal.distributed.fake_pg import FakeStore

        size = _number("WORLD_SIZE", world_size, 1)
        session.world_size = size
        real("fake", store=FakeStore(), world_size=size, rank=_number("RANK", rank, 0))

    return init


def collective(session: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A collective of `torch.distributed`: noted, and answered as if all had taken part."""
    name = func._schema.name
    tensors = [t for a in (*args, *kwargs.values()) for t in _flat(a) if on_gpu(t)]
    session.note(name, [tensors, session.world_size], [])
    # The answer holds a handle to wait for, which only the operator itself can make: run on nothing.
    empty = torch.empty(0)
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        out = func(
            *mapped(list(args), lambda t: empty if on_gpu(t) else t), **mapped(kwargs, lambda t: empty if on_gpu(t) else t)
        )
    if isinstance(out, tuple) and len(out) == 2:
        return args[0], out[1]
    return out


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from _flat(v)
    else:
        yield value


class _Buckets:
    """Gradients of a model in the order in which backward makes them, reduced bucket by bucket."""

    def __init__(self, session: Any, wrapper: Any, first: int, size: int) -> None:
        self.session, self.wrapper, self.first, self.size = session, wrapper, first, size
        self.waiting: list[torch.Tensor] = []
        self.bytes, self.sent = 0, 0
        self.left: set[int] = set()
        self.handles: list[Any] = []

    def watch(self) -> None:
        """Before a forward: every parameter reports its gradient."""
        for handle in self.handles:
            handle.remove()
        wanted = [p for p in self.wrapper.module.parameters() if p.requires_grad]
        self.left = {id(p) for p in wanted}
        self.waiting, self.bytes, self.sent = [], 0, 0
        self.handles = [p.register_post_accumulate_grad_hook(self.ready) for p in wanted]

    def ready(self, parameter: torch.Tensor) -> None:
        """A gradient has arrived."""
        self.left.discard(id(parameter))
        if not self.wrapper.require_backward_grad_sync:
            return
        gradient = parameter.grad
        self.waiting.append(gradient)
        self.bytes += gradient.numel() * gradient.element_size()
        if self.bytes >= (self.size if self.sent else self.first) or not self.left:
            self.send()

    def send(self) -> None:
        by_format: dict[torch.dtype, int] = {}
        for gradient in self.waiting:
            by_format[gradient.dtype] = by_format.get(gradient.dtype, 0) + gradient.numel()
        for dtype, elements in by_format.items():
            flat = new([elements], dtype)
            self.session.note("c10d::allreduce_", [[flat], self.session.world_size], [])
            self.session.buckets.append(flat)
        self.waiting, self.bytes = [], 0
        self.sent += 1


def _wrapped(session: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``DistributedDataParallel``: its set-up and its forward."""

    def init(self: Any, module: torch.nn.Module, device_ids: Any = None, *args: Any, bucket_cap_mb: Any = None, **kwargs: Any) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.device_ids, self.require_backward_grad_sync, self.require_forward_param_sync = device_ids, True, True
        self.device, self.device_type, self.dim, self.static_graph = torch.device("cuda", 0), "cuda", 0, False
        self.find_unused_parameters = kwargs.get("find_unused_parameters", False)
        self.gradient_as_bucket_view = kwargs.get("gradient_as_bucket_view", False)
        self.process_group = kwargs.get("process_group")
        size = _BUCKET if bucket_cap_mb is None else int(bucket_cap_mb * (1 << 20))
        buckets = _Buckets(session, self, min(_FIRST_BUCKET, size), size)
        self.__dict__["_preflop_buckets"] = buckets

    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        buckets = self.__dict__.get("_preflop_buckets")
        if buckets is None:
            raise CaptureError(
                "this DistributedDataParallel was made before the recording", hint="wrap the model inside the block"
            )
        if torch.is_grad_enabled():
            buckets.watch()
        return self.module(*inputs, **kwargs)

    return init, forward


@contextlib.contextmanager
def one_of_many(session: Any) -> Iterator[None]:
    """A block in which groups of processes need no other process."""
    if not torch.distributed.is_available():
        yield
        return
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    was_there = dist.is_initialized()
    with contextlib.ExitStack() as stack:
        if not was_there:
            real = dist.init_process_group
            init = _group(session, real)
            for holder in (dist, sys.modules["torch.distributed.distributed_c10d"]):
                stack.enter_context(replaced(holder, "init_process_group", init))
            stack.enter_context(replaced(dist, "is_nccl_available", lambda: True))
        else:
            session.world_size = dist.get_world_size()
        init, forward = _wrapped(session)
        stack.enter_context(replaced(DistributedDataParallel, "__init__", init))
        stack.enter_context(replaced(DistributedDataParallel, "forward", forward))
        try:
            yield
        finally:
            if not was_there and dist.is_initialized():
                dist.destroy_process_group()


__all__ = ["collective", "one_of_many"]
