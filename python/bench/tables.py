"""How fast ``preflop.predict_table`` is beside the library that it calls, and how much memory a long stream takes.

    python python/bench/tables.py LIBRARY        the same rows by turns in one run; status 1 where a ratio is missed
    python python/bench/tables.py stream ROWS    so many rows, made as they are read; status 1 where 1 GB is exceeded

LIBRARY is the program ``preflop-tables`` of crates/bench, which has no Python and no table in it. ``cargo xtask ray`` builds it and runs both.
Rates are rows a second of processor time, which other work on the machine hardly changes; what the clock says is printed beside.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy
import pyarrow

import preflop

ROWS = 1 << 16
ROUNDS = 7
#: Share of the library's rate that a table must keep, and of one thread's that each of two must.
WANTED = 0.80
LINEAR = 0.90
#: Bytes that a stream may take, however long it is.
MEMORY = 1e9


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


def rates(library: str) -> bool:
    table = rows()
    found: dict[str, list[float]] = {"library": [], "one": [], "two": [], "one by the clock": [], "two by the clock": []}
    preflop.predict_table(table, gpu="h200")
    for _ in range(ROUNDS):
        # By turns, so that what else the machine does strikes all alike.
        found["library"].append(float(subprocess.run([library, "library"], check=True, capture_output=True, text=True).stdout))
        for name, threads in [("one", 1), ("two", 2)]:
            clock, processor = time.perf_counter(), time.process_time()
            answers = preflop.predict_table(table, gpu="h200", threads=threads)
            found[name].append(ROWS / (time.process_time() - processor))
            found[f"{name} by the clock"].append(ROWS / (time.perf_counter() - clock))
            assert answers.column("error").null_count == ROWS
    median = {name: statistics.median(values) for name, values in found.items()}
    kept, linear = median["one"] / median["library"], median["two"] / median["one"]
    clock = max(found["two by the clock"]) / max(found["one by the clock"])
    print(f"library, one core            {median['library']:12.0f} rows a processor second")
    print(f"predict_table, one thread    {median['one']:12.0f}   {kept:.2f} of the library's; wanted: at least {WANTED:.2f}")
    print(f"predict_table, two threads   {median['two']:12.0f}   {linear:.2f} of one thread's; wanted: at least {LINEAR:.2f}")
    print(f"two threads over one, clock  {clock:12.2f}   best of {ROUNDS} rounds each; 2 on two idle cores ({os.cpu_count()} here, load {os.getloadavg()[0]:.1f})")
    return kept >= WANTED and linear >= LINEAR


def made(count: int) -> Iterator[pyarrow.RecordBatch]:
    """Matrix products, made block by block as they are asked for."""
    for start in range(0, count, ROWS):
        i = numpy.arange(start, min(start + ROWS, count))
        op, dtype = (pyarrow.DictionaryArray.from_arrays(numpy.zeros(len(i), numpy.int8), [name]) for name in ("mm", "bf16"))
        shape = {"shape.m": 1 + i % 4099, "shape.n": 1 + i * 7 % 2053, "shape.k": 8 + i * 13 % 1021}
        yield pyarrow.record_batch({"op": op, "dtype": dtype, **shape})


def stream(count: int) -> bool:
    start, processor = time.perf_counter(), time.process_time()
    reader = pyarrow.RecordBatchReader.from_batches(next(made(1)).schema, made(count))
    seen, total, failed = 0, 0.0, 0
    for answers in preflop.predict_table(reader, gpu="h200"):
        seen += answers.num_rows
        failed += answers.num_rows - answers.column("error").null_count
        total += answers.column("time_us").to_numpy().sum()
    took, spent = time.perf_counter() - start, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{seen} rows, {failed} with an error, {total / 1e6:.6g} s of GPU time in all; {took:.1f} s by the clock, "
        f"{seen / spent:.0f} rows a processor second; most memory {peak / 1e6:.0f} MB; wanted: under {MEMORY / 1e6:.0f}"
    )
    return seen == count and failed == 0 and peak < MEMORY


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stream", count]:
            sys.exit(0 if stream(int(float(count))) else 1)
        case [library]:
            sys.exit(0 if rates(library) else 1)
        case _:
            sys.exit(__doc__)
