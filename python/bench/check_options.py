"""Compares predictions with iterations measured under options: layouts, graphs, compiled, fused optimizers, checkpointing, autotuned convolutions.

    python python/bench/check_options.py PREFLOP OPTIONS.csv [LISTINGS]

OPTIONS.csv has one measured iteration for each model and set of options (model, batch, size, precision, options, iter_ms, gpu_busy_ms, kernels, peak_mem_mib).
With LISTINGS (the folder that `list_compiled.py` wrote) compiled rows are those of the compiler's listings, else those of the rule of fusion. Prints one
line for each row, then each bar with its figure; exit status 1 if one is missed.
"""

from __future__ import annotations

import csv
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

#: What was measured, as options of the command line.
OPTIONS = {
    "channels_last": ["--layout", "channels-last"],
    "cudnn_benchmark": ["--algorithms", "autotuned"],
    "checkpointing": ["--checkpoint", "full"],
    "compile": ["--run", "compile"],
    "graph": ["--run", "graph"],
}
#: A row is bound by the host where the GPU is busy for less than this share of the measured iteration.
HOST_BOUND = 0.8


class Row:
    """A measured row and what is predicted for it."""

    def __init__(self, row: dict, program: str, listings: Path | None) -> None:
        self.options = row["options"].split("+")
        self.model, self.mode = row["model"], "infer" if "infer" in self.options else "train"
        self.compiled, self.graph = "compile" in self.options, "graph" in self.options
        listing = listings / f"{self.model}-{self.mode}.json" if listings and self.compiled else None
        if listing is not None and listing.exists():
            asked = [str(listing)]
        else:
            asked = [self.model, "--batch", row["batch"], "--precision", row["precision"], "--mode", self.mode]
            rule = "sgd"
            if self.model.startswith("gpt"):
                rule, asked = "adamw", [*asked, "--seq", row["size"]]
            if self.mode == "train":
                asked += ["--optimizer", f"{rule}:fused" if "fused_optimizer" in self.options else rule]
            for option in self.options:
                asked += OPTIONS.get(option, [])
        run = subprocess.run([program, "predict", *asked, "--gpu", "h200", "--json"], capture_output=True, text=True, check=True)
        said = json.loads(run.stdout)
        self.time, self.busy = float(row["iter_ms"]), float(row["gpu_busy_ms"])
        self.off = {
            "busy": said["gpu_busy_ms"] / self.busy - 1,
            "iteration": said["iteration_ms"] / self.time - 1,
            "kernels": said["kernels"] / float(row["kernels"]) - 1,
            "memory": said["memory_mib"] / float(row["peak_mem_mib"]) - 1,
        }
        self.inside = said["low_ms"] <= self.time <= said["high_ms"]

    @property
    def host_bound(self) -> bool:
        return self.busy < HOST_BOUND * self.time and not self.graph


def mean(rows: Iterable[Row], what: str) -> float:
    return statistics.mean(abs(r.off[what]) for r in rows)


def most(rows: Iterable[Row], what: str) -> tuple[float, str]:
    worst = max(rows, key=lambda r: abs(r.off[what]))
    return abs(worst.off[what]), f"{worst.model} {'+'.join(worst.options)}"


def main() -> int:
    program, path = sys.argv[1:3]
    listings = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    with open(path, encoding="utf-8") as file:
        rows = [Row(r, program, listings) for r in csv.DictReader(file)]
    for r in rows:
        told = "  ".join(f"{what} {off:+6.1%}" for what, off in r.off.items())
        notes = [text for text, holds in (("host-bound", r.host_bound), ("outside", not r.inside)) if holds]
        print(f"{r.model:14} {'+'.join(r.options):30} {told}  {' '.join(notes)}")
    missed = 0

    def bar(what: str, figure: float, limit: float, where: str = "", floor: float = -1.0) -> None:
        nonlocal missed
        holds = floor <= figure <= limit
        missed += not holds
        said = f"at most {limit:.0%}" if floor < 0 else f"{floor:.0%} to {limit:.0%}"
        print(f"{'holds ' if holds else 'MISSED'}  {what}: {figure:.1%}, {said}{f' ({where})' if where else ''}")

    def bars(said: str, chosen: list[Row], what: str, on_average: float | None, at_most: float | None) -> None:
        if not chosen:
            print(f"no rows  {said}, {what}")
            return
        if on_average is not None:
            bar(f"{said}, {what}, mean of {len(chosen)}", mean(chosen, what), on_average)
        if at_most is not None:
            worst, where = most(chosen, what)
            bar(f"{said}, {what}, most", worst, at_most, where)

    compiled, graphs = [r for r in rows if r.compiled], [r for r in rows if r.graph]
    eager = [r for r in rows if not r.compiled and not r.graph]
    print(f"\n{len(rows)} rows; compiled ones by {'listings' if listings else 'the rule of fusion'}")
    bars("compiled", compiled, "busy", 0.06, 0.15)
    bars("compiled training", [r for r in compiled if r.mode == "train"], "memory", 0.03, None)
    bars("compiled inference", [r for r in compiled if r.mode == "infer"], "memory", 0.06, None)
    bars("compiled", compiled, "kernels", None, 0.10)
    bars("graph replays", graphs, "iteration", 0.05, 0.10)
    bars("eager options", eager, "busy", 0.05, 0.10)
    bound = [r for r in rows if r.host_bound]
    bars("host-bound", bound, "iteration", 0.19, None)
    bias = statistics.median([r.off["iteration"] for r in bound] or [0.0])
    bar("host-bound iterations, bias", abs(bias), 0.05, f"median {bias:+.1%}")
    bar("the interval holds", statistics.mean(r.inside for r in rows), 0.95, floor=0.85)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
