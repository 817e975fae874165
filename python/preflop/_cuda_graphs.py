"""CUDA graphs inside a recording: what is captured runs when it is replayed.

`torch.cuda.graph(g)` records its body and sets it aside; `g.replay()` writes it into the iteration, as launched by no one. Code that asks
whether it is being captured is told yes, as on a GPU: some libraries then run other operators.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch

from ._compile_gpu import replaced_all
from ._errors import CaptureError


class _State:
    """The recording's session, and the capture under way."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.capturing = 0


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
            session.storages.append(
                {"bytes": _pool_bytes(session, self.first), "kind": "activation", "first": session.counter, "last": None}
            )

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
    def graph(cuda_graph: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
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


@contextlib.contextmanager
def cuda_graphs(session: Any) -> Iterator[None]:
    """A block in which CUDA graphs are recorded."""
    stand_ins = _stand_ins(_State(session))
    items = [(torch.cuda, name, value) for name, value in stand_ins.items()]
    items += [(torch.cuda.graphs, name, value) for name, value in stand_ins.items()]
    with replaced_all(items):
        yield
