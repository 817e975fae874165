#!/usr/bin/env python3
"""Times the forward operators of the first sweep at more shapes, with the ways and options of ops_extra.py.

usage: ops_forward.py OUT.csv [--seconds S] [--seed TEXT] [--only OP[,OP...]] [--selftest]
"""
import torch
import torch.nn.functional as F

import ops_extra
from common import DEV, nbytes, rand
from ops_extra import FLOATS, RND, add, ints, layout, matrix

ops_extra.CASES.clear()
BOTH = ("bf16", "fp32")


def rowwise(op):
    """Three quarters spread evenly over the logarithms or at round widths, the others as networks have them."""
    def gen(dt):
        rows, cols = RND.logi(16, 1 << 17), RND.pick(128, 256, 512, 768, 1024, 2048, 4096, 8192, RND.logi(32, 32768), RND.logi(32, 32768), RND.logi(32, 32768, 8))
        if RND.flip(.25):
            rows, cols = matrix() or (rows, cols)
        if rows * cols > 3e8:
            return None

        def make():
            x, w, b = rand(rows, cols, dt=dt), rand(cols, dt=dt), rand(cols, dt=dt)
            f = {"softmax": lambda: torch.softmax(x, -1), "log_softmax": lambda: torch.log_softmax(x, -1), "layernorm": lambda: F.layer_norm(x, (cols,), w, b), "rmsnorm": lambda: F.rms_norm(x, (cols,), w), "sum": lambda: x.sum(-1)}[op]
            return f, 2 * nbytes(x)

        return dict(rows=rows, cols=cols), make
    return gen


def batchnorm_eval(dt):
    b, c, hw = RND.pick(1, 8, 32, 64, 128, 256, RND.logi(1, 256)), RND.pick(64, 128, 256, 512, 1024, RND.logi(8, 2048, 8)), RND.pick(7, 14, 28, 56, 112, RND.logi(4, 128))
    cl = dt != "fp32" and RND.flip(.6)
    if b * c * hw * hw > 3e8:
        return None

    def make():
        x = rand(b, c, hw, hw, dt=dt).contiguous(memory_format=layout(cl))
        w, bias, mean, var = torch.ones(c, device=DEV), torch.zeros(c, device=DEV), torch.zeros(c, device=DEV), torch.ones(c, device=DEV)
        return (lambda: F.batch_norm(x, mean, var, w, bias, False)), 2 * nbytes(x)

    return dict(b=b, c=c, hw=hw, channels_last=cl), make


def embedding(dt):
    v, d, n = RND.logi(1000, 200000), RND.pick(256, 512, 768, 1024, 4096, RND.logi(64, 8192, 8)), RND.logi(64, 65536)
    if v * d > 8e8 or n * d > 3e8:
        return None

    def make():
        w, index = rand(v, d, dt=dt), ints(v, n)
        return (lambda: F.embedding(index, w)), nbytes(w)

    return dict(v=v, d=d, n=n), make


def two_sizes(op):
    def gen(dt):
        rows, cols = RND.logi(64, 16384), RND.logi(64, 16384)
        if rows * cols > 3e8:
            return None

        def make():
            x = rand(rows, cols, dt=dt)
            if op == "transpose":
                return (lambda: x.t().contiguous()), 2 * nbytes(x)
            y = rand(rows, cols, dt=dt)
            return (lambda: torch.cat([x, y], 1)), 4 * nbytes(x)

        return dict(rows=rows, cols=cols), make
    return gen


def adam(dt):
    n, parts = RND.logi(1 << 18, 1 << 28), RND.pick(1, 10, 100)

    def make():
        ps = [torch.randn(max(1, n // parts), device=DEV) for _ in range(parts)]
        gs, m, v = ([torch.randn_like(p) for p in ps] for _ in range(3))
        v, steps = [x.abs() for x in v], [torch.ones((), device=DEV) for _ in ps]
        return (lambda: torch._fused_adamw_(ps, gs, m, v, [], steps, lr=1e-3, beta1=.9, beta2=.999, weight_decay=.01, eps=1e-8, amsgrad=False, maximize=False)), 16 * n

    return dict(n=n, parts=parts), make


def pointwise(op):
    def gen(dt):
        n = RND.logi(1 << 12, 1 << 28)

        def make():
            x = rand(n, dt=dt)
            o = torch.empty_like(x)
            f = {"copy": lambda: o.copy_(x), "dropout": lambda: F.dropout(x, .1, True), "silu": lambda: F.silu(x), "sigmoid": lambda: torch.sigmoid(x), "add_scalar": lambda: x + 1.0}[op]
            return f, 2 * nbytes(x)

        return dict(n=n), make
    return gen


for op in ("softmax", "log_softmax", "layernorm", "rmsnorm", "sum"):
    add(op, "fwd", FLOATS, 60, rowwise(op))
add("batchnorm_eval", "fwd", FLOATS, 60, batchnorm_eval)
add("embedding", "fwd", BOTH, 60, embedding)
for op in ("transpose", "cat"):
    add(op, "fwd", BOTH, 60, two_sizes(op))
add("adam", "fwd", ("fp32",), 60, adam)
for op in ("copy", "dropout", "silu", "sigmoid", "add_scalar"):
    add(op, "fwd", FLOATS, 25, pointwise(op))

if __name__ == "__main__":
    ops_extra.main()
