"""How fast ``preflop.predict_table`` is beside the library it calls: the same rows, by turns in one run.

Needs ``cargo build --release -p preflop-bench`` and the installed package. Rates are rows a second of processor time, which
other work on the machine does not change; the last line is by the clock.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from pathlib import Path

import pyarrow

import preflop

LIBRARY = Path(__file__).resolve().parents[2] / "target/release/preflop-tables"
ROWS = 1 << 16
ROUNDS = 5


def rows() -> pyarrow.Table:
    """As in crates/bench/src/bin/preflop-tables.rs."""
    out: list[tuple[str, str, str, dict]] = []
    for i in range(ROWS):
        a, b, c = 1 + i % 4099, 1 + (i * 7) % 2053, 8 + (i * 13) % 1021
        dtype = ["fp32", "tf32", "bf16", "fp16"][i % 4]
        out.append(
            [
                ("mm", "fwd", dtype, {"m": a, "n": b, "k": c, "layout": "tn"}),
                ("conv2d", "dgrad", dtype, {"b": 16, "ci": c, "hw": 28, "co": b, "k": 3, "stride": 1, "pad": 1, "groups": 1}),
                ("softmax", "bwd", dtype, {"rows": a, "cols": b}),
                ("elementwise", "fwd", dtype, {"n": a}),
                ("sdpa", "fwd", "bf16", {"b": 4, "h": 8, "kv": 8, "s": c, "d": 64, "causal": True}),
            ][i % 5]
        )
    op, phase, dtype, shape = zip(*out)
    return pyarrow.table({"op": op, "phase": phase, "dtype": dtype, "shape": [json.dumps(s) for s in shape]})


def main() -> None:
    table = rows()
    rates: dict[str, list[float]] = {"library": [], "one": [], "two": [], "one by the clock": [], "two by the clock": []}
    preflop.predict_table(table, gpu="h200")
    for _ in range(ROUNDS):
        rates["library"].append(float(subprocess.run([LIBRARY, "library"], check=True, capture_output=True, text=True).stdout))
        for name, threads in [("one", 1), ("two", 2)]:
            clock, processor = time.perf_counter(), time.process_time()
            answers = preflop.predict_table(table, gpu="h200", threads=threads)
            rates[name].append(ROWS / (time.process_time() - processor))
            rates[f"{name} by the clock"].append(ROWS / (time.perf_counter() - clock))
            assert answers.column("error").null_count == ROWS
    median = {name: statistics.median(values) for name, values in rates.items()}
    print(f"library, one core            {median['library']:12.0f} rows a processor second")
    print(f"predict_table, one thread    {median['one']:12.0f}   {median['one'] / median['library']:.2f} of the library; wanted: 0.80")
    print(f"predict_table, two threads   {median['two']:12.0f}   {median['two'] / median['one']:.2f} of one thread's; wanted: 1")
    print(f"two threads over one, clock  {median['two by the clock'] / median['one by the clock']:12.2f}   wanted: 2 on two idle cores")


if __name__ == "__main__":
    main()
