#!/usr/bin/env python3
"""Names the kernels that convolutions and matrix products launch, without timing them.

usage: names.py IN.csv[.gz]|IN.txt OUT.csv [--processes P] [--seconds S]

IN is a list of conv_shapes.py or has the columns op, phase, dtype, shape (conv2d, mm, linear, bmm); OUT repeats its columns and adds kernels (full names
cut at 400 characters, separated by a bar, without memsets and copies) and grids (grid and block of each kernel, as
1x2x3/128x1x1). Timing is another process's work, because a profiler adds about 2 us to every launch timed beside it;
here nothing is timed, so several processes share the GPU. Rows that are not reached in time have no names.
"""
import argparse
import csv
import gzip
import json
import multiprocessing
import os
import sys
import tempfile
import time

import torch

import conv_extra
import products
from common import DEV, DT, Table, allow_tf32, recover

CHUNK = 100
MOST_BYTES = 5e9  # kept by one process between rows


def empty(*shape, dt):
    return torch.empty(*shape, device=DEV, dtype=DT[dt])


def maker(row):
    shape = json.loads(row["shape"])
    if row["op"] == "conv2d":
        if "hw" in shape:  # square ones of the first sweep
            hw, k, pad = shape["hw"], shape["k"], shape["pad"]
            shape.update(h=hw, w=hw, r=k, s=k, pad=[pad, pad], dilation=1)
        return conv_extra.maker(row["phase"], row["dtype"], shape, empty)
    return products.maker(row["op"], row["dtype"], shape, empty)


def kernels_of(calls, kinds=("kernel",), warm=False):
    """For each of the calls (dtype, make, words for messages) the list of (name, grid/block, us), from one profiler session; a spin
    kernel marks each call's ends. `kinds` may ask for copies and memsets too, `warm` for a call before the one that counts."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        for dtype, make, *words in calls:
            allow_tf32(dtype == "tf32")
            call = None
            try:
                call, _ = make()
                if warm:
                    call()
            except Exception as e:
                call = None
                recover(e, "names", dtype, *words)
            torch.cuda._sleep(100)
            if call is not None:
                try:
                    call()
                except Exception as e:
                    recover(e, "names", dtype, *words)
            torch.cuda._sleep(100)
            del call
            if torch.cuda.memory_reserved() > MOST_BYTES:
                torch.cuda.empty_cache()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "trace.json")
        prof.export_chrome_trace(path)
        with open(path) as f:
            events = [e for e in json.load(f)["traceEvents"] if e.get("cat") in kinds]
    events.sort(key=lambda e: e["ts"])
    found, inside, marks = [], False, 0
    for e in events:
        if "spin_kernel" in e["name"]:
            marks += 1
            inside = not inside
            if inside:
                found.append([])
        elif inside:
            shape = "/".join("x".join(map(str, e["args"].get(k, []))) for k in ("grid", "block"))
            found[-1].append((e["name"][:400].replace("|", "/"), shape, e["dur"]))
    if marks != 2 * len(calls):
        raise RuntimeError(f"{marks} marks for {len(calls)} rows")
    return found


def work(number, processes, rows, end, folder):
    """Names every `processes`-th chunk of the rows."""
    with open(os.path.join(folder, f"{number}.json"), "w") as f:
        for start in range(number * CHUNK, len(rows), processes * CHUNK):
            if time.time() > end:
                break
            try:
                found = kernels_of([(r["dtype"], lambda r=r: maker(r)(), r["phase"], r["shape"]) for r in rows[start:start + CHUNK]])
            except Exception as e:
                recover(e, "names of rows from", start)
                continue
            torch.cuda.empty_cache()
            f.write(json.dumps([start, found]) + "\n")
            f.flush()


def read(path):
    """Columns and rows of a file."""
    if path.endswith(".txt"):
        rows = [dict(op="conv2d", phase=phase, dtype=dt, shape=json.dumps(shape)) for _, phase, dt, shape in conv_extra.listed(path)]
        return ["op", "phase", "dtype", "shape"], rows
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", newline="") as f:
        reader = csv.DictReader(f)
        return list(reader.fieldnames), [r for r in reader if r["op"] in ("conv2d", "mm", "linear", "bmm")]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("rows")
    ap.add_argument("out")
    ap.add_argument("--processes", type=int, default=12)
    ap.add_argument("--seconds", type=float, default=60)
    a = ap.parse_args()
    columns, rows = read(a.rows)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        context, end = multiprocessing.get_context("spawn"), time.time() + a.seconds
        workers = [context.Process(target=work, args=(n, a.processes, rows, end, folder)) for n in range(a.processes)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        for n in range(a.processes):
            with open(os.path.join(folder, f"{n}.json")) as f:
                for line in f:
                    start, kernels = json.loads(line)
                    found.update(enumerate(kernels, start))
    out = Table(a.out, columns + ["kernels", "grids"])
    for i, row in enumerate(rows):
        kernels = found.get(i, [])
        out.row([row[c] for c in columns] + ["|".join(n for n, *_ in kernels), "|".join(g for _, g, _ in kernels)])
    print("rows", out.rows, "named", len(found), flush=True)


if __name__ == "__main__":
    sys.exit(main())
