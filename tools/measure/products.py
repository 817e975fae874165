#!/usr/bin/env python3
"""Times matrix products (mm, linear, bmm) at random shapes, or lists shapes for names.py.

usage: products.py time OUT.csv [--seconds S] [--seed TEXT] [--selftest]
       products.py shapes OUT.csv [--count N] [--seed TEXT]

Rows of `time`: op, phase, dtype, shape (json), gpu_us, copies. `shapes` writes op, phase, dtype, shape and runs nothing.
Three quarters of the shapes are spread evenly over the logarithms of their dimensions, a third of those powers of two and
a third multiples of eight; the others have the widths of language models, from one row (decoding) to many.
"""
import argparse
import sys

import torch
import torch.nn.functional as F

from common import GPU, Clock, Draw, Table, allow_tf32, nbytes, rand, recover, time_calls

RND = Draw("preflop-products-0")
COLUMNS = ["op", "phase", "dtype", "shape"]
WIDTHS = (256, 384, 512, 768, 1024, 1152, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 11008, 12288, 14336)


def dtype():
    return RND.pick("bf16", "bf16", "fp16", "tf32", "fp32")


def dimension(low, high, odd_high):
    """A power of two, any number or a multiple of eight, alike often."""
    return RND.pick(1 << RND.randint(low.bit_length() - 1, high.bit_length() - 1), RND.logi(low, odd_high), RND.logi(low, high, 8))


def plain():
    m, n, k = dimension(16, 16384, 16384), dimension(32, 16384, 8192), dimension(32, 16384, 8192)
    return m, n, k


def network():
    """A linear layer of a network, or one of the two products of its backward pass."""
    width, other = RND.choice(WIDTHS), RND.choice(WIDTHS)
    rows = RND.pick(1, RND.logi(1, 64), RND.logi(16, 16384), 128 * RND.logi(1, 128), 197 * RND.pick(1, 8, 32, 64))
    n = RND.pick(other, width, 4 * width, 3 * width, 1000, 30522, 50257) if rows * width * 50257 < 1e12 else other
    return RND.pick((rows, n, width), (rows, n, width), (width, n, rows))


def product():
    dt = dtype()
    m, n, k = plain() if RND.flip(.75) else network()
    if 2 * m * n * k > 3e12:
        return None
    layout = RND.pick("linear", "nn", "tn")
    bias = layout == "linear" and RND.flip()
    return ("linear" if layout == "linear" else "mm"), dt, dict(m=m, n=n, k=k, layout=layout, bias=bias)


def batched():
    dt = RND.pick("bf16", "fp16", "tf32", "fp32")
    b = RND.logi(1, 1024)
    m, n = (RND.pick(1 << RND.randint(4, 11), RND.logi(16, 2048)) for _ in range(2))
    k = RND.pick(32, 64, 128, RND.logi(16, 2048))
    if 2 * b * m * n * k > 2e12 or b * (m * k + k * n + m * n) > 2e9:
        return None
    return "bmm", dt, dict(b=b, m=m, n=n, k=k)


def draw():
    return product() if RND.flip(.7) else batched()


def maker(op, dt, s, new=rand):
    def make():
        if op == "bmm":
            x, y = new(s["b"], s["m"], s["k"], dt=dt), new(s["b"], s["k"], s["n"], dt=dt)
            return (lambda: torch.bmm(x, y)), nbytes(x, y)
        if op == "linear":
            x, w = new(s["m"], s["k"], dt=dt), new(s["n"], s["k"], dt=dt)
            bias = new(s["n"], dt=dt) if s["bias"] else None
            return (lambda: F.linear(x, w, bias)), nbytes(x, w)
        x = new(s["m"], s["k"], dt=dt) if s["layout"] == "nn" else new(s["k"], s["m"], dt=dt).t()
        w = new(s["k"], s["n"], dt=dt)
        return (lambda: torch.mm(x, w)), nbytes(x, w)

    return make


def times(a):
    clock, out, bad, turn = Clock(a.seconds), Table(a.out, COLUMNS + ["gpu_us", "copies"]), 0, 0
    for drawn in iter(draw, 0):
        if clock.over() or (a.selftest and turn >= 40):
            break
        if drawn is None:
            continue
        op, dt, shape = drawn
        allow_tf32(dt == "tf32")
        turn += 1
        try:
            us, copies = time_calls(maker(op, dt, shape), span_ms=1.5, replays=5, long_ms=5.0)
            out.row([op, "fwd", dt, shape, f"{us:.3f}", copies])
        except Exception as e:
            bad += 1
            recover(e, op, dt, shape)
        if GPU and turn % 50 == 0:
            torch.cuda.empty_cache()
        clock.progress(out.rows, "rows, at", op, dt)
    print("measured", out.rows, "skipped", bad, flush=True)


def shapes(a):
    out = Table(a.out, COLUMNS)
    while out.rows < a.count:
        drawn = draw()
        if drawn is not None:
            op, dt, shape = drawn
            out.row([op, "fwd", dt, shape])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="what", required=True)
    t, n = sub.add_parser("time"), sub.add_parser("shapes")
    for p in (t, n):
        p.add_argument("out")
        p.add_argument("--seed", default="0")
    t.add_argument("--seconds", type=float, default=60)
    t.add_argument("--selftest", action="store_true")
    n.add_argument("--count", type=int, default=1000)
    a = ap.parse_args()
    RND.seed("preflop-products-" + a.seed)
    torch.manual_seed(20261115)
    times(a) if a.what == "time" else shapes(a)


if __name__ == "__main__":
    sys.exit(main())
