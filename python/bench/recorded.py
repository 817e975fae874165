"""Iterations that were measured on an H200, recorded by the package as they were written, and how far off the predictions are.

    python python/bench/recorded.py E2E.csv OPTIONS.csv [FOLDER]

E2E.csv has model, batch, seq, precision, mode; OPTIONS.csv model, batch, size, precision, options (compiled rows are those of `check_options.py`); both have iter_ms, gpu_busy_ms,
kernels, peak_mem_mib. Rows of one file were measured one after the other in one process, so that what earlier graphs of OPTIONS.csv left behind is recorded with each. Recordings are kept in FOLDER and taken from there the next time. Prints one line for each row, then each bar with its figure; exit status 1 if one is missed.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import torch
from reference_models import build, step as plain_step

import preflop

#: A row is bound by the host where the GPU is busy for less than this share of the measured iteration.
HOST_BOUND = 0.8


def option_step(name: str, batch: int, size: int, options: list[str]) -> Callable[[], None]:
    """One iteration in bf16 autocast under options, as it was measured; for a graph, its replay."""
    language = name.startswith("gpt")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = "cudnn_benchmark" in options
    model, inputs, loss = build(name, batch, size if language else 0)
    model, inputs = model.to("cuda"), tuple(x.to("cuda") for x in inputs)
    if "channels_last" in options:
        model = model.to(memory_format=torch.channels_last)
        inputs = tuple(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
    if "checkpointing" in options:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.config.use_cache = False
    training = "infer" not in options
    model.train(training)
    fused = {"fused": True} if "fused_optimizer" in options else {}
    if language:
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), 1e-4, **fused)
    else:
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, **fused)

    def forward() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            out = model(*inputs)
            return loss(out) if training else out

    def step() -> None:
        if not training:
            with torch.no_grad():
                forward()
            return
        forward().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    if "graph" not in options:
        return step
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        step()
    return graph.replay


def leave_workspaces() -> None:
    """What a measured graph leaves in its process: products ran on a stream of its own and on that of captures, and what cuBLAS holds for a stream stays."""
    x = torch.zeros(8, 8, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        x @ x
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x @ x


class Row:
    """A measured row and what is predicted for it."""

    def __init__(self, row: dict[str, str], folder: Path | None, graphs_before: int) -> None:
        self.graphs_before = graphs_before
        self.options = row["options"].split("+") if "options" in row else []
        self.mode = row.get("mode") or ("infer" if "infer" in self.options else "train")
        self.replayed = "graph" in self.options
        what = [row["model"], row["batch"], row.get("seq") or row.get("size"), row["precision"], row.get("mode") or row["options"]]
        self.name = " ".join(what)
        kept = folder / f"{'option' if self.options else 'plain'}-{'-'.join(what)}.json" if folder else None
        graph = preflop.Graph.load(kept) if kept and kept.exists() else self.recorded(row)
        if kept and not kept.exists():
            graph.save(kept)
        said = graph.predict("h200", algorithms="autotuned" if "cudnn_benchmark" in self.options else "heuristic")
        self.time, self.busy, self.memory = (float(row[key]) for key in ("iter_ms", "gpu_busy_ms", "peak_mem_mib"))
        self.off = {
            "busy": said.gpu_busy_ms / self.busy - 1,
            "iteration": said.iteration_ms / self.time - 1,
            "kernels": said.to_dict()["kernels"] / float(row["kernels"]) - 1,
            "memory": said.memory_mib / self.memory - 1,
        }
        self.inside = said.low_ms <= self.time <= said.high_ms

    def recorded(self, row: dict[str, str]) -> preflop.Graph:
        batch = int(row["batch"])
        with preflop.record(row["model"], samples=batch) as graph:
            for _ in range(self.graphs_before):
                leave_workspaces()
            if self.graphs_before:
                graph.step()
            torch.cuda.reset_peak_memory_stats()
            if self.options:
                step = option_step(row["model"], batch, int(row["size"]), self.options)
            else:
                step = plain_step(row["model"], batch, int(row["seq"]), row["precision"], row["mode"])
            for _ in range(2):  # the first one has the optimizer's states to make
                step()
                graph.step()
        return graph

    @property
    def host_bound(self) -> bool:
        return self.busy < HOST_BOUND * self.time and not self.replayed


def mean(rows: Iterable[Row], what: str) -> float:
    return statistics.mean(abs(r.off[what]) for r in rows)


def main() -> int:
    folder = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    rows = []
    for path in sys.argv[1:3]:
        with open(path, encoding="utf-8") as file:
            graphs = 0
            for row in csv.DictReader(file):
                if "compile" in row.get("options", ""):
                    continue
                r = Row(row, folder, graphs)
                rows.append(r)
                graphs += r.replayed
                told = "  ".join(f"{what} {off:+6.1%}" for what, off in r.off.items())
                notes = [text for text, holds in (("host-bound", r.host_bound), ("outside", not r.inside)) if holds]
                print(f"{r.name:52} {told} ({r.off['memory'] * r.memory:+6.0f} MiB)  {' '.join(notes)}", flush=True)
    missed = 0

    def bar(what: str, figure: float, limit: float, floor: float = -1.0) -> None:
        nonlocal missed
        holds = floor <= figure <= limit
        missed += not holds
        print(f"{'holds ' if holds else 'MISSED'}  {what}: {figure:.1%}, {f'{floor:.0%} to' if floor > 0 else 'at most'} {limit:.0%}")

    eager = [r for r in rows if not r.replayed]
    host, gpu = [r for r in rows if r.host_bound], [r for r in rows if not r.host_bound]
    print(f"\n{len(rows)} rows, {len(host)} bound by the host")
    bar("GPU time", mean(rows, "busy"), 0.05)
    bar("iterations that the GPU binds", mean(gpu, "iteration"), 0.06)
    bar("iterations that the host binds", mean(host, "iteration"), 0.19)
    bar("their bias", abs(statistics.median(r.off["iteration"] for r in host)), 0.05)
    bar("memory in training", mean([r for r in eager if r.mode == "train"], "memory"), 0.02)
    bar("memory in inference, not replayed", mean([r for r in eager if r.mode == "infer"], "memory"), 0.05)
    bar("inside the interval", statistics.mean(r.inside for r in rows), 0.95, 0.85)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
