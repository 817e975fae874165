"""Fits the time of fused kernels: what one launch takes from its bytes and its work, by form.

    python python/bench/fit_fused.py LISTINGS [MEASURED]

LISTINGS is the folder that `list_compiled.py` wrote, MEASURED the file of `measure_compiled.py`. Kernels are paired by name and order.
Prints the constants of `crates/kernels/src/fused.rs`, and how far the sum of fused kernels of each run is off, with the constants fitted
to all models and with the run's model left out.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import json
import re
import statistics
import sys
from pathlib import Path

import torch

#: Copy bandwidth and lane instructions of an H200, per microsecond; bytes of its L2.
BANDWIDTH, LANES, L2 = 4.25e6, 132 * 1980.0 * 128, 60e6
FORMS = ["pointwise", "tiled", "persistent", "looped_inner", "looped_outer"]
OWN = ["start", "stream", "element", "load", "store"]
SHARED = ["function", "random", "atomic", "pool", "online", "narrow", "warm", "trip"]
FUNCTIONS = re.compile(r"(?<![a-z])(gelu|silu|sigmoid|tanh|softmax)")


def form(fused: dict) -> int:
    if fused["form"] == "pointwise":
        return 1 if fused["tiled_2d"] else 0
    if fused["form"] == "persistent_reduction":
        return 2
    return 3 if fused["hint"] in ("inner", "default") else 4


def size(tensor: list) -> int:
    width = {"fp64": 8, "int64": 8, "bf16": 2, "fp16": 2, "bool": 1, "uint8": 1, "int8": 1}.get(tensor[0], 4)
    for n, stride in zip(tensor[1], tensor[2]):
        width *= n if stride else 1
    return width


def launches(folder: Path, measured: Path) -> list[tuple]:
    """(run, what is known of the launch, microseconds) of every launch whose name and place agree."""
    with gzip.open(measured, "rt") as file:
        rows = [r for r in csv.DictReader(file) if r["kind"] == "kernel" and r["name"].startswith("triton_")]
    out = []
    for run in sorted({(r["model"], r["mode"]) for r in rows}):
        path = next((p for p in (folder / f"{run[0]}-{run[1]}.json", folder / f"{run[0]}-{run[1]}-c.json") if p.exists()), None)
        if path is None:
            continue
        document = json.loads(path.read_text())
        listed = [op for op in document["ops"] if "fused" in op]
        seen = [(r["name"], float(r["time"])) for r in rows if (r["model"], r["mode"]) == run]
        names = [op["fused"]["kernel"][:100] for op in listed]
        blocks = difflib.SequenceMatcher(None, names, [n for n, _ in seen], autojunk=False).get_matching_blocks()
        pairs = [(b.a + i, b.b + i) for b in blocks for i in range(b.size)]
        if len(pairs) < 0.9 * len(names):
            print(f"{run[0]} {run[1]}: only {len(pairs)} of {len(names)} kernels are the measured ones; left out", file=sys.stderr)
            continue
        for i, j in pairs:
            fused, tensors = listed[i]["fused"], document["tensors"]
            touched = sum(size(tensors[a["t"]]) for a in listed[i]["in"]) + sum(size(tensors[t]) for t in listed[i]["out"])
            out.append((run, dict(fused, bytes=min(fused["bytes"], touched)), seen[j][1]))
    return out


def features(fused: dict) -> dict[str, float]:
    name = fused["kernel"]
    return {
        "form": form(fused),
        "bytes": fused["bytes"],
        "work": fused["elements"] * fused["reduced"] / LANES,
        "loads": fused["loads"],
        "stores": fused["stores"],
        "function": min(len(set(FUNCTIONS.findall(name))), 2),
        "random": fused["random"],
        "atomic": fused["atomics"],
        "pool": "max_pool2d_with_indices_backward" in name,
        "online": "softmax_online" in name,
        "narrow": fused["tiled_2d"] and fused["elements"] / max(fused["y"], 1) > 1000 and "_to_copy" in name,
        "elements": fused["elements"],
        "reduced": fused["reduced"],
    }


def times(x: dict[str, torch.Tensor], own: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    """The formula of `crates/kernels/src/fused.rs`, in microseconds."""
    c = dict(zip(OWN, own.exp()[:, x["form"].long()]))
    s = dict(zip(SHARED, shared.exp()))
    warm = 1 - s["warm"].clamp(max=0.5) / (1 + (x["bytes"] / L2) ** 2)
    stream = c["stream"] * x["bytes"] / BANDWIDTH * warm * (1 + s["narrow"] * x["narrow"])
    issue = x["work"] * (
        c["element"] + c["load"] * x["loads"] + c["store"] * x["stores"]
        + sum(s[n] * x[n] for n in ("function", "random", "atomic", "pool", "online"))
    )  # fmt: skip
    idle = (1 - x["elements"] / (132 * 2048)).clamp(min=0)
    trips = s["trip"] * x["reduced"] / 1000 * idle * (x["form"] >= 3)
    return c["start"] + (stream**3 + issue**3).pow(1 / 3) + trips


def fit(x: dict, t: torch.Tensor, steps: int, start: tuple | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    own = torch.tensor([[0.3] * 5, [0.1] * 5, [1.0] * 5, [1.0] * 5, [1.0] * 5], dtype=torch.float64)
    shared = torch.tensor([2.0, 4.0, 4.0, 5.0, 3.0, 1.0, -2.0, -1.0], dtype=torch.float64)
    own, shared = (v.clone().requires_grad_() for v in (start or (own, shared)))
    optimizer = torch.optim.Adam([own, shared], lr=0.03)
    weight = t.pow(0.7) / t.pow(0.7).sum()
    for _ in range(steps):
        optimizer.zero_grad()
        off = times(x, own, shared).log() - t.log()
        (weight * (off * off + 1e-3).sqrt()).sum().backward()
        optimizer.step()
    return own.detach(), shared.detach()


def main() -> int:
    torch.set_num_threads(1)
    default = Path(__file__).resolve().parents[2] / "data/measured/h200/compiled.csv.gz"
    rows = launches(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else default)
    known = [features(f) for _, f, _ in rows]
    x = {n: torch.tensor([float(r[n]) for r in known], dtype=torch.float64) for n in known[0]}
    t = torch.tensor([time for *_, time in rows], dtype=torch.float64)
    constants = fit(x, t, 1500)
    print(f"{len(rows)} launches")
    for name, values in zip(OWN, constants[0].exp().tolist()):
        print(f"  {name:8} " + ", ".join(f"{FORMS[i]} {v:.3g}" for i, v in enumerate(values)))
    print("  shared   " + ", ".join(f"{n} {v:.3g}" for n, v in zip(SHARED, constants[1].exp().tolist())))
    all_in, left_out = times(x, *constants), torch.zeros_like(t)
    for i, name in enumerate(FORMS):
        ratio = (t / all_in).log()[x["form"] == i].sort().values
        print(f"  {name}: measured over fitted, 5 % {ratio[len(ratio) // 20].exp():.2f}, 95 % {ratio[len(ratio) * 19 // 20].exp():.2f}")
    models = [run[0] for run, *_ in rows]
    for model in sorted(set(models)):
        own = torch.tensor([m == model for m in models])
        rest = {n: v[~own] for n, v in x.items()}
        left_out[own] = times(x, *fit(rest, t[~own], 250, constants))[own]
    errors = []
    for run in sorted({run for run, *_ in rows}):
        own = torch.tensor([r == run for r, *_ in rows])
        measured = t[own].sum().item()
        fitted, left = all_in[own].sum().item() / measured - 1, left_out[own].sum().item() / measured - 1
        errors.append((abs(fitted), abs(left)))
        print(f"  {run[0]} {run[1]}: {measured / 1e3:.2f} ms of fused kernels, fitted {fitted:+.1%}, left out {left:+.1%}")
    print(f"mean of runs: fitted {statistics.mean(e[0] for e in errors):.1%}, model left out {statistics.mean(e[1] for e in errors):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
