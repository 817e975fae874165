"""The recorded operators are those that launch kernels in profiler traces of the same iterations on an H200.

An operator of the trace counts under its own name when a kernel, copy or memset was launched inside it and no other
recorded operator stands around it (`relu_` calls `clamp_min_`; the efficient attention's backward calls `sum`).
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest

import preflop
from reference_models import step

CASES = [
    ("resnet50", 64, 0, "fp32", "train"),
    ("resnet50", 64, 0, "amp", "train"),
    ("gnmt", 64, 0, "fp32", "train"),
    ("transformer", 64, 0, "fp32", "train"),
    ("bert-large", 16, 512, "amp", "train"),
]

#: Launch nothing by themselves.
FREE = {"view", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "select", "slice", "split", "split_with_sizes",
        "detach", "_unsafe_view", "empty", "alias", "as_strided", "unbind", "chunk"}  # fmt: skip


def launching(events: list[dict], names: set[str]) -> Counter[str]:
    """How many operators of each name launched something on the GPU; the outermost of those names counts."""
    on_gpu = {e["args"]["correlation"] for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")}
    threads: dict[int, list[dict]] = {}
    for e in events:
        launch = e.get("cat") in ("cuda_runtime", "cuda_driver") and e["args"].get("correlation") in on_gpu
        if launch or e.get("cat") == "cpu_op":
            threads.setdefault(e["tid"], []).append(e)
    counts: Counter[str] = Counter()
    for thread in threads.values():
        around: list[dict] = []
        counted: set[int] = set()
        for e in sorted(thread, key=lambda e: (e["ts"], -e["dur"])):
            while around and around[-1]["ts"] + around[-1]["dur"] <= e["ts"]:
                around.pop()
            if e["cat"] == "cpu_op":
                around.append(e)
                continue
            for op in around:
                name = op["name"].removeprefix("aten::")
                if name in names:
                    if id(op) not in counted:
                        counted.add(id(op))
                        counts[name] += 1
                    break
    return counts


@pytest.mark.parametrize(("name", "batch", "seq", "precision", "mode"), CASES)
def test_operators(name: str, batch: int, seq: int, precision: str, mode: str) -> None:
    folder = Path(os.environ["PREFLOP_SHARED"]) / "data" / "h200" / "traces"
    with gzip.open(folder / f"{name}-b{batch}-{precision}-{mode}.json.gz") as file:
        events = json.load(file)["traceEvents"]
    graph = preflop.capture(step(name, batch, seq, precision, mode))
    recorded = Counter({op.removeprefix("aten::"): n for op, n in graph.operator_counts().items()})
    # Whether the engine adds gradients in place depends on who still holds them (an embedding that is used twice hands
    # out a gradient that it does not write into); it is one kernel either way.
    recorded["add"] += recorded.pop("add_", 0)
    names = set(recorded) - FREE
    # Also what a recording could have missed altogether.
    traced = launching(events, names | {"copy_", "fill_", "zero_", "add_", "mul", "sum", "mean", "cat", "clone"})
    traced["add"] += traced.pop("add_", 0)
    for op in sorted(names | set(traced)):
        print(f"{name} {precision}: {op:45} recorded {recorded[op]:5}, traced {traced[op]:5}")
    assert {op: recorded[op] for op in names} == dict(traced)
