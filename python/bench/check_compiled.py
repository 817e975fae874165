"""Compares recorded iterations with what was measured on an H200.

    python python/bench/check_compiled.py PREFLOP LISTINGS [OPTIONS.csv]

PREFLOP is the program, LISTINGS the folder that `list_compiled.py` wrote (MODEL-MODE.json compiled, MODEL-MODE-e.json eager). Measured
rows come from `data/measured/h200/compiled.csv.gz`, and from OPTIONS.csv if it is given. Exit status 1 if a bar is missed.
"""

from __future__ import annotations

import csv
import gzip
import json
import statistics
import subprocess
import sys
from pathlib import Path

#: Mean and largest error allowed of the GPU's busy time of compiled iterations; mean error of memory in training and inference.
BUSY_MEAN, BUSY_MOST, MEMORY = 0.06, 0.15, {"train": 0.03, "infer": 0.06}


def measured_rows(options: Path | None) -> list[dict]:
    path = Path(__file__).resolve().parents[2] / "data/measured/h200/compiled.csv.gz"
    out = []
    with gzip.open(path, "rt") as file:
        for r in csv.DictReader(file):
            if r["kind"] == "run":
                out.append({**r, "source": "measured", "compiled": r["run"] == "default"})
    if options is not None:
        with open(options, encoding="utf-8") as file:
            for r in csv.DictReader(file):
                modes = {"eager": ("train", False), "infer": ("infer", False), "compile": ("train", True), "infer+compile": ("infer", True)}
                if r["options"] in modes:
                    mode, compiled = modes[r["options"]]
                    out.append({"model": r["model"], "mode": mode, "time": r["iter_ms"], "busy_ms": r["gpu_busy_ms"], "kernels": r["kernels"],
                                "memory_mib": r["peak_mem_mib"], "source": "options", "compiled": compiled})  # fmt: skip
    return out


def main() -> int:
    program, folder = sys.argv[1], Path(sys.argv[2])
    rows = measured_rows(Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    answers: dict[Path, dict] = {}
    table: dict[tuple, list[tuple]] = {}
    print(f"{'run':34} {'busy ms':>8} {'off':>7}  {'iteration':>9} {'off':>7}  {'kernels':>7} {'off':>7}  {'MiB':>6} {'off':>7}")
    for r in rows:
        names = [f"{r['model']}-{r['mode']}.json", f"{r['model']}-{r['mode']}-c.json"] if r["compiled"] else [f"{r['model']}-{r['mode']}-e.json"]
        path = next((folder / n for n in names if (folder / n).exists()), None)
        if path is None:
            continue
        if path not in answers:
            run = subprocess.run([program, "predict", str(path), "--gpu", "h200", "--json"], capture_output=True, text=True, check=True)
            answers[path] = json.loads(run.stdout)
        p = answers[path]
        pairs = [("busy", p["gpu_busy_ms"], r["busy_ms"]), ("iteration", p["iteration_ms"], r["time"]),
                 ("kernels", p["kernels"], r["kernels"]), ("memory", p["memory_mib"], r["memory_mib"])]  # fmt: skip
        off = {name: got / float(want) - 1 for name, got, want in pairs}
        off["inside"] = float(p["low_ms"] <= float(r["time"]) <= p["high_ms"])
        table.setdefault((r["source"], "compiled" if r["compiled"] else "eager", r["mode"]), []).append(off)
        told = f"{r['model']} {r['mode']}{' compiled' if r['compiled'] else ''}, {r['source']}"
        print(f"{told:34} " + "  ".join(f"{float(want):8.2f} {off[name]:+7.1%}" for name, _, want in pairs))
    missed = 0
    for (source, how, mode), offs in sorted(table.items()):
        mean = {n: statistics.mean(abs(o[n]) for o in offs) for n in ("busy", "iteration", "kernels", "memory")}
        most = max(abs(o["busy"]) for o in offs)
        inside = statistics.mean(o["inside"] for o in offs)
        print(f"{source} {how} {mode}, {len(offs)} runs: busy mean {mean['busy']:.1%}, most {most:.1%}; iteration {mean['iteration']:.1%} "
              f"({inside:.0%} in the interval); kernels {mean['kernels']:.1%}; memory {mean['memory']:.1%}")  # fmt: skip
        if how == "compiled":
            missed += mean["busy"] > BUSY_MEAN or most > BUSY_MOST or mean["memory"] > MEMORY[mode]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
