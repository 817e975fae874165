"""CUDA graphs inside a recording: what is captured runs when it is replayed.

`torch.cuda.graph(g)` records its body and sets it aside; `g.replay()` writes it into the iteration, as launched by no one. What
`torch.cuda.make_graphed_callables` returns is recorded where it is called, forward and backward as replayed. Code that asks
whether it is being captured is told yes, as on a GPU: some libraries then run other operators.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Iterator

import torch
import torch.utils._pytree as pytree

from ._compile_gpu import replaced_all
from ._cuda import OnStream, Stream
from ._errors import CaptureError


class _State:
    """The recording's session, and the capture under way."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.capturing = 0
        self.returned: Any = None
        #: The stream of all captures that name none, as in PyTorch.
        self.stream: Stream | None = None


def _pool_bytes(session: Any, start: int) -> int:
    """Most bytes at a time of storages that the capture made: its pool keeps them."""
    changes = []
    for storage in session.storages:
        if storage["first"] >= start and storage["kind"] == "activation":
            changes.append((storage["first"], storage["bytes"]))
            if storage["last"] is not None:
                changes.append((storage["last"], -storage["bytes"]))
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def _stand_ins(state: _State) -> dict[str, Any]:
    session = state.session

    class CUDAGraph:
        """``torch.cuda.CUDAGraph`` of a recording."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.ops: list[dict[str, Any]] | None = None
            self.start = 0
            self.first = 0

        def capture_begin(self, *args: Any, **kwargs: Any) -> None:
            self.start, self.first = len(session.ops), session.counter
            state.capturing += 1

        def capture_end(self) -> None:
            state.capturing -= 1
            captured = session.ops[self.start :]
            self.ops = [dict(op) for op in captured]
            for op in captured:
                op["captured"] = True
            pool = {"bytes": _pool_bytes(session, self.first), "kind": "activation", "first": session.counter, "last": None}
            session.storages.append(pool)
            weakref.finalize(self, lambda: pool.update(last=session.counter))

        def replay(self) -> None:
            if self.ops is None:
                raise CaptureError("a CUDA graph was replayed that nothing was captured into")
            for op in self.ops:
                session.ops.append({**op, "replayed": True})
                session.counter += 1

        def reset(self) -> None:
            self.ops = None

        def pool(self) -> tuple[int, int]:
            return (0, 1)

        def enable_debug_mode(self) -> None:
            """Nothing is captured for real."""

        def debug_dump(self, path: str) -> None:
            """Nothing is captured for real."""

    @contextlib.contextmanager
    def graph(cuda_graph: Any, pool: Any = None, stream: Any = None, **kwargs: Any) -> Iterator[None]:
        if state.stream is None:
            state.stream = Stream()
        with OnStream(stream or state.stream):
            cuda_graph.capture_begin()
            try:
                yield
            finally:
                cuda_graph.capture_end()

    return {
        "CUDAGraph": CUDAGraph,
        "graph": graph,
        "graph_pool_handle": lambda: (0, 1),
        "is_current_stream_capturing": lambda: state.capturing > 0,
    }


def _graphed(state: _State, function: Any, parameters: tuple[torch.Tensor, ...]) -> Any:
    """``function`` with its forward as one replayed graph and its backward as another."""

    @contextlib.contextmanager
    def replayed() -> Iterator[None]:
        start = len(state.session.ops)
        state.capturing += 1
        try:
            yield
        finally:
            state.capturing -= 1
            for op in state.session.ops[start:]:
                op["replayed"] = True

    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, shape: Any, *inputs: torch.Tensor) -> Any:
            given = inputs[: len(inputs) - len(parameters)]
            # The graph reads its inputs from places of its own.
            own = [t.detach().clone().requires_grad_(t.requires_grad) for t in given]
            with torch.enable_grad(), replayed():
                out = function(*pytree.tree_unflatten(own, shape))
            flat, ctx.shape = pytree.tree_flatten(out)
            ctx.own, ctx.out = [*own, *parameters], [t for t in flat if isinstance(t, torch.Tensor)]
            ctx.set_materialize_grads(False)
            state.returned = ctx.shape
            return tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in flat)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            wanted = [t for t in ctx.own if t.requires_grad]
            pairs = [(o, g) for o, g in zip(ctx.out, grads) if g is not None and o.requires_grad]
            with replayed():
                found = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
            by_input = iter(found)
            return (None, *(next(by_input) if t.requires_grad else None for t in ctx.own))

    def call(*args: Any) -> Any:
        flat, shape = pytree.tree_flatten(args)
        if not all(isinstance(t, torch.Tensor) for t in flat):
            raise CaptureError("a graphed callable takes tensors only, as in PyTorch")
        out = Graphed.apply(shape, *flat, *parameters)
        return pytree.tree_unflatten(list(out), state.returned)

    return call


def _make_graphed_callables(state: _State) -> Any:
    def make_graphed_callables(
        callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool: Any = None
    ) -> Any:
        several = isinstance(callables, tuple)
        made = []
        for function in callables if several else (callables,):
            if not isinstance(function, torch.nn.Module):
                made.append(_graphed(state, function, ()))
                continue
            eager, training = function.forward, function.training
            graphed = _graphed(state, eager, tuple(function.parameters()))

            def forward(*args: Any, module: Any = function, eager: Any = eager, graphed: Any = graphed, training: bool = training, **kwargs: Any) -> Any:
                # A graph is of one mode only.
                return graphed(*args, **kwargs) if module.training == training else eager(*args, **kwargs)

            function.forward = forward
            made.append(function)
        return tuple(made) if several else made[0]

    return make_graphed_callables


@contextlib.contextmanager
def cuda_graphs(session: Any) -> Iterator[None]:
    """A block in which CUDA graphs are recorded."""
    state = _State(session)
    stand_ins = {**_stand_ins(state), "make_graphed_callables": _make_graphed_callables(state)}
    items = [(torch.cuda, name, value) for name, value in stand_ins.items()]
    items += [(torch.cuda.graphs, name, value) for name, value in stand_ins.items()]
    with replaced_all(items):
        yield
