#!/usr/bin/env python3
"""Times bf16 linear layers the way inference servers time theirs: one input, six sets of weights in turn.

usage: served.py OUT.csv [--seconds S] [--seed TEXT]

Rows: op, phase, dtype, shape (json), gpu_us, copies. Operands that six sets of weights leave in the L2 come from there,
unlike in products.py, whose copies exceed the L2. Published tables of GPUs are measured so; this makes an H200's.
"""
import argparse

import torch
import torch.nn.functional as F

from common import GPU, STREAM, Clock, Draw, Table, captured, rand, recover, replay_ms

SETS = 6
ROWS = [*range(1, 17), *(16 * i + j for i in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16) for j in (0, 1)),
        *(256 * i + j for i in range(2, 18) for j in (0, 1)), 8192, 16384, 32768]
WIDTHS = (32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 16384, 51200, 65536)


def draw(rnd):
    m, n, k = rnd.choice(ROWS), rnd.choice(WIDTHS), rnd.choice(WIDTHS)
    return None if n * k > 4.3e8 or 2 * m * n * k > 6e12 else (m, n, k)


def microseconds(m, n, k):
    x = rand(m, k)
    weights = [rand(n, k) for _ in range(SETS)]

    def all_sets(times=1):
        for _ in range(times):
            for w in weights:
                F.linear(x, w)

    if not GPU:
        all_sets()
        return 1.0
    STREAM.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(STREAM):
        all_sets()
        torch.cuda.synchronize()
        once = max(replay_ms(all_sets), 1e-3)
    times = max(1, min(8, int(2.0 / once)))
    graph = captured(lambda: all_sets(times))
    graph.replay()
    torch.cuda.synchronize()
    replays = sorted(replay_ms(graph.replay) for _ in range(5 if once < 20 else 3))
    return replays[len(replays) // 2] / (times * SETS) * 1e3


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("out")
    cli.add_argument("--seconds", type=float, default=240)
    cli.add_argument("--seed", default="preflop-served-0")
    args = cli.parse_args()
    rnd, table, clock, done = Draw(args.seed), Table(args.out, ["op", "phase", "dtype", "shape", "gpu_us", "copies"]), Clock(args.seconds), set()
    while not clock.over():
        shape = draw(rnd)
        if shape is None or shape in done:
            continue
        done.add(shape)
        m, n, k = shape
        try:
            us = microseconds(m, n, k)
        except RuntimeError as e:
            recover(e, shape)
            continue
        table.row(["linear", "fwd", "bf16", dict(m=m, n=n, k=k, layout="linear", bias=False), f"{us:.3f}", SETS])
        clock.progress(table.rows)
    print(table.rows, "rows")


if __name__ == "__main__":
    main()
