#!/usr/bin/env python3
"""Times operators that the other sweeps lack or have only in common shapes: sorting, scattering, transforms, sampling, volumes.

usage: operators.py OUT.csv [--seconds S] [--seed TEXT] [--only OP[,OP...]] [--selftest] [--names]

Rows and ways are those of ops_extra.py. Operators that wait for the GPU (their sizes depend on data, or a solver checks
itself) are timed in a plain loop and have `"loop": true`: the host is in their time. --names times nothing: the
profiler lists the kernels of each call, with the sum of their times in gpu_us and the names in a further column.
"""
import math
import re
import sys

import torch
import torch.nn.functional as F
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

import ops_extra
from common import DEV, DT, GPU, nbytes, rand
from ops_extra import ALL, FLOATS, HALF, RND, add, ints, layout

aten = torch.ops.aten
ops_extra.CASES.clear()
BOTH = ("bf16", "fp32")
LOOPED = ops_extra.NO_CAPTURE


def back(out, *inputs):
    """The backward of the last operation behind `out`, as autograd runs it, and the bytes that it reads."""
    grad, node = torch.randn_like(out), out.grad_fn
    grads = [grad]
    try:
        node(*grads)
    except TypeError as said:  # a node with several results says how many gradients it expects
        grads += [None] * (int(re.search(r"expected (\d+) arguments", str(said))[1]) - 1)
    return (lambda: node(*grads)), nbytes(grad, *inputs)


def leaf(*shape, dt):
    return rand(*shape, dt=dt).detach().requires_grad_()


def simple(op, phase, dtypes, rows, draw, make):
    """A case whose `draw()` gives the shape as a dict and whose `make(dt, **shape)` gives (callable, bytes read)."""
    def gen(dt):
        shape = draw()
        if shape is None:
            return None
        return shape, lambda: make(dt, **{k: v for k, v in shape.items() if k != "loop"})
    add(op, phase, dtypes, rows, gen)


# --- sorting, scans, picking ---

def matrix(most_cols=1 << 20, limit=5e7, least_cols=2):
    rows, cols = RND.pick(1, RND.logi(1, 65536), RND.logi(1, 65536)), RND.pick(RND.logi(least_cols, most_cols), RND.logi(least_cols, 4096), RND.pick(100, 512, 1000, 1024, 2048, 4096, 8192, 32000, 50257, 128256))
    return (rows, min(cols, most_cols)) if 64 <= rows * cols <= limit else None


def of_matrix(**more):
    def draw():
        rc = matrix()
        return rc and dict(rows=rc[0], cols=rc[1], **{k: v(rc) for k, v in more.items()})
    return draw


def values(dt, *shape):
    return ints(1 << 20, *shape) if dt == "int64" else rand(*shape, dt=dt)


def unary(f):
    def make(dt, rows, cols, **rest):
        x = values(dt, rows, cols)
        return (lambda: f(x, **rest)), 2 * nbytes(x)
    return make


simple("sort", "fwd", ("fp32", "bf16", "int64"), 110, of_matrix(), unary(lambda x: torch.sort(x, -1)))
simple("topk", "fwd", ("fp32", "bf16"), 130, of_matrix(k=lambda rc: min(rc[1], RND.pick(1, 2, 5, 8, 10, 50, 100, RND.logi(1, 4096)))), unary(lambda x, k: torch.topk(x, k)))
simple("kthvalue", "fwd", ("fp32",), 20, of_matrix(k=lambda rc: (rc[1] + 1) // 2), unary(lambda x, k: torch.kthvalue(x, k)))
simple("cumsum", "fwd", ("fp32", "bf16", "int64"), 90, of_matrix(), unary(lambda x: torch.cumsum(x, -1)))
simple("cummax", "fwd", ("fp32",), 25, of_matrix(), unary(lambda x: torch.cummax(x, -1)))
simple("logcumsumexp", "fwd", ("fp32",), 25, of_matrix(), unary(lambda x: torch.logcumsumexp(x, -1)))
simple("max_rows", "fwd", BOTH, 60, of_matrix(), unary(lambda x: torch.max(x, -1)))
simple("var_mean", "fwd", BOTH, 50, of_matrix(), unary(lambda x: torch.var_mean(x, -1)))
simple("logsumexp", "fwd", BOTH, 30, of_matrix(), unary(lambda x: torch.logsumexp(x, -1)))
LOOPED.add("multinomial")
simple("multinomial", "fwd", ("fp32",), 30, lambda: (lambda rc: rc and dict(rows=rc[0], cols=rc[1], loop=True))(matrix(1 << 17)), unary(lambda x: torch.multinomial(x.abs_(), 1)))
simple("searchsorted", "fwd", ("fp32",), 25, lambda: dict(n=RND.logi(64, 1 << 24), v=RND.logi(2, 1 << 20)),
       lambda dt, n, v: (lambda e, x: ((lambda: torch.searchsorted(e, x)), nbytes(e, x)))(torch.sort(rand(v, dt=dt))[0], rand(n, dt=dt)))


def inner_dim():
    outer, length, inner = RND.pick(1, 2, 8, 32, RND.logi(1, 256)), RND.pick(2, 3, 19, 21, 64, 150, 256, 1000, RND.logi(2, 4096)), RND.pick(64, 256, 1024, 4096, 65536, 128 * 128, 256 * 512, RND.logi(2, 1 << 17))
    return dict(rows=outer, cols=length, width=inner) if 1000 < outer * length * inner < 8e7 else None


def along_inner(f):
    def make(dt, rows, cols, width):
        x = rand(rows, cols, width, dt=dt)
        return (lambda: f(x)), 2 * nbytes(x)
    return make


def softmax_inner_bwd(name):
    def make(dt, rows, cols, width):
        x = leaf(rows, cols, width, dt=dt)
        return back(getattr(torch, name)(x, 1), x)
    return make


simple("cumsum_inner", "fwd", BOTH, 50, inner_dim, along_inner(lambda x: torch.cumsum(x, 1)))
simple("sum_inner", "fwd", BOTH, 60, inner_dim, along_inner(lambda x: x.sum(1)))
simple("max_inner", "fwd", BOTH, 40, inner_dim, along_inner(lambda x: torch.max(x, 1)))
simple("argmax_inner", "fwd", BOTH, 40, inner_dim, along_inner(lambda x: x.argmax(1)))
for name in ("softmax", "log_softmax"):
    simple(name + "_inner", "fwd", FLOATS, 45, inner_dim, along_inner(lambda x, name=name: getattr(torch, name)(x, 1)))
    simple(name + "_inner", "bwd", FLOATS, 45, inner_dim, softmax_inner_bwd(name))


# --- picking and adding by index ---

def picks(real=((169343, 128, 1166243), (2708, 16, 10556), (232965, 602, 500000), (10000, 64, 100000), (10000, 256, 160000), (65536, 1, 1 << 20))):
    def draw():
        if RND.flip(.3):
            v, d, n = RND.choice(real)
            d = RND.pick(d, 16, 32, 64, 128)
        else:
            v, d, n = RND.logi(2, 1 << 20), RND.pick(1, 2, 3, 4, 8, 16, 32, 64, 100, 128, 256, 512, 1024, RND.logi(1, 2048)), RND.logi(16, 1 << 21)
        return dict(v=v, d=d, n=n) if v * d < 1.5e8 and n * d < 1.5e8 else None
    return draw


def by_index(f, expanded=False):
    """f(target, index, source): target [v, d], index [n] (or [n, d] with the same row number all along), source [n, d]."""
    def make(dt, v, d, n):
        target, source, index = rand(v, d, dt=dt), rand(n, d, dt=dt), ints(v, n)
        if expanded:
            index = index[:, None].expand(n, d)
        return (lambda: f(target, index, source)), nbytes(target, source) + 8 * n
    return make


simple("scatter_add", "fwd", BOTH, 90, picks(), by_index(lambda t, i, s: t.scatter_add_(0, i, s), True))
simple("index_add", "fwd", BOTH, 90, picks(), by_index(lambda t, i, s: t.index_add_(0, i, s)))
simple("scatter_reduce", "fwd", ("fp32",), 30, picks(), by_index(lambda t, i, s: t.scatter_reduce_(0, i, s, "amax"), True))
simple("scatter", "fwd", BOTH, 40, picks(), by_index(lambda t, i, s: t.scatter_(0, i, s), True))
simple("index_copy", "fwd", BOTH, 30, picks(), by_index(lambda t, i, s: t.index_copy_(0, i, s)))
simple("index_put", "fwd", BOTH, 30, picks(), by_index(lambda t, i, s: t.index_put_((i,), s)))
simple("index_put_add", "fwd", BOTH, 70, picks(), by_index(lambda t, i, s: t.index_put_((i,), s, accumulate=True)))
simple("index_select", "fwd", BOTH, 60, picks(), by_index(lambda t, i, s: torch.index_select(t, 0, i)))
simple("index", "fwd", BOTH, 60, picks(), by_index(lambda t, i, s: t[i]))
simple("gather_dim", "fwd", BOTH, 60, picks(), by_index(lambda t, i, s: torch.gather(t, 0, i), True))


def gather_rows(dt, rows, cols, k):
    x, index = rand(rows, cols, dt=dt), ints(cols, rows, k)
    return (lambda: torch.gather(x, 1, index)), nbytes(x, index)


simple("gather_rows", "fwd", BOTH, 40, of_matrix(k=lambda rc: min(rc[1], RND.pick(1, 1, 8, 100, RND.logi(1, 2048)))), gather_rows)


def bags(phase):
    def make(dt, v, d, n, k):
        table, index = leaf(v, d, dt=dt), ints(v, n * k)
        offsets = torch.arange(0, n * k, k, device=DEV)
        if phase == "fwd":
            with torch.no_grad():
                return (lambda: aten._embedding_bag(table, index, offsets)), nbytes(table, index)
        _, bag, size, most = aten._embedding_bag(table.detach(), index, offsets)
        g = rand(n, d, dt=dt)
        return (lambda: aten._embedding_bag_dense_backward(g, index, bag, size, most, v, False, 0, None, -1)), nbytes(g, index) + v * d * g.element_size()
    return make


def bag_shape():
    v, d, n, k = RND.logi(10, 1 << 21), RND.pick(4, 8, 16, 32, 64, 128, 256, RND.logi(4, 512)), RND.pick(512, 2048, 8192, 65536, RND.logi(16, 131072)), RND.pick(1, 1, 2, 10, 20, 50, RND.logi(1, 200))
    return dict(v=v, d=d, n=n, k=k) if v * d < 2e8 and n * d < 1e8 and n * k < 1e7 else None


simple("embedding_bag", "fwd", BOTH, 60, bag_shape, bags("fwd"))
simple("embedding_bag", "bwd", BOTH, 60, bag_shape, bags("bwd"))


def flags(f):
    def make(dt, n):
        mask, x = torch.rand(n, device=DEV) > .5, rand(n, dt="fp32")
        return (lambda: f(mask, x)), nbytes(mask, x)
    return make


for op, f in (("nonzero", lambda m, x: m.nonzero()), ("masked_select", lambda m, x: x[m]), ("unique", lambda m, x: torch.unique(x))):
    LOOPED.add(op)
    simple(op, "fwd", ("fp32",), 24, lambda: dict(n=RND.logi(64, 1 << 26), loop=True), flags(f))
simple("bincount", "fwd", ("fp32",), 12, lambda: dict(n=RND.logi(64, 1 << 24), v=RND.logi(2, 1 << 16), loop=True), lambda dt, n, v: (lambda i: ((lambda: torch.bincount(i, minlength=v)), nbytes(i)))(ints(v, n)))
LOOPED.add("bincount")
simple("randperm", "fwd", ("fp32",), 12, lambda: dict(n=RND.logi(64, 1 << 24), loop=True), lambda dt, n: ((lambda: torch.randperm(n, device=DEV)), 8 * n))
LOOPED.add("randperm")


# --- Fourier transforms ---

def length():
    return RND.pick(RND.pick(128, 256, 400, 512, 1000, 1024, 2048, 4096, 8192, 16384, 65536), 1 << RND.randint(3, 20), RND.logi(8, 1 << 17, RND.pick(1, 2, 6, 8, 10)))


def lines():
    rows, n = RND.pick(1, RND.logi(1, 65536)), length()
    return dict(rows=rows, n=n) if 256 < rows * n < 4e7 else None


def planes():
    rows = RND.pick(1, 3, 16, 64, 256, RND.logi(1, 2048))
    h, w = (RND.pick(14, 28, 32, 56, 64, 128, 224, 256, 512, 1024),) * 2 if RND.flip(.6) else (RND.logi(8, 1024), RND.logi(8, 1024))
    return dict(rows=rows, h=h, w=w) if rows * h * w < 4e7 else None


def transform(f, complex_input, two=False):
    def make(dt, rows, **n):
        x = rand(rows, *n.values(), dt=dt)
        if complex_input:
            x = torch.complex(x, x)
        return (lambda: f(x)), 2 * nbytes(x)
    return make


simple("fft_c2c", "fwd", ("fp32",), 90, lines, transform(torch.fft.fft, True))
simple("fft_r2c", "fwd", ("fp32",), 90, lines, transform(torch.fft.rfft, False))
simple("fft_c2r", "fwd", ("fp32",), 60, lines, transform(torch.fft.irfft, True))
simple("fft2_c2c", "fwd", ("fp32",), 60, planes, transform(torch.fft.fft2, True))
simple("fft2_r2c", "fwd", ("fp32",), 60, planes, transform(torch.fft.rfft2, False))


# --- sampling, resizing, windows ---

def sampled():
    b, c = RND.pick(1, 2, 4, 8, 16, RND.logi(1, 128)), RND.pick(1, 2, 3, 32, 64, 128, 256, RND.logi(1, 512))
    hw, out = (RND.pick(28, 32, 50, 64, 100, 128, 224, 256, 512) for _ in range(2))
    if RND.flip(.3):
        out = hw
    return dict(b=b, c=c, hw=hw, out=out, mode=RND.pick("bilinear", "bilinear", "nearest")) if b * c * max(hw, out) ** 2 < 6e7 else None


def grid_sample(phase):
    def make(dt, b, c, hw, out, mode):
        x = leaf(b, c, hw, hw, dt=dt)
        grid = (torch.rand(b, out, out, 2, device=DEV) * 2 - 1).to(DT[dt]).requires_grad_(phase == "bwd")
        if phase == "fwd":
            x = x.detach()
            return (lambda: F.grid_sample(x, grid, mode=mode, align_corners=False)), nbytes(x, grid)
        return back(F.grid_sample(x, grid, mode=mode, align_corners=False), x, grid)
    return make


simple("grid_sample", "fwd", BOTH, 70, sampled, grid_sample("fwd"))
simple("grid_sample", "bwd", ("fp32",), 60, sampled, grid_sample("bwd"))


def resized():
    b, c, hw = RND.pick(1, 2, 4, 8, 16, 32), RND.pick(1, 2, 3, 19, 21, 64, 128, 256, 512, RND.logi(1, 1024)), RND.pick(7, 8, 14, 16, 28, 32, 56, 64, 128, RND.logi(4, 256))
    out = hw * RND.pick(2, 2, 2, 4, 8) if RND.flip(.7) else RND.logi(4, 512)
    cl = RND.flip(.35) and c > 1
    return dict(b=b, c=c, hw=hw, out=out, mode=RND.pick("nearest", "bilinear", "bilinear", "bicubic"), channels_last=cl) if b * c * max(out, hw) ** 2 < 8e7 else None


def resize(phase):
    def make(dt, b, c, hw, out, mode, channels_last):
        x = rand(b, c, hw, hw, dt=dt).contiguous(memory_format=layout(channels_last)).detach().requires_grad_(phase == "bwd")

        def f():
            return F.interpolate(x, (out, out), mode=mode, align_corners=None if mode == "nearest" else False)
        return (f, nbytes(x)) if phase == "fwd" else back(f(), x)
    return make


simple("interpolate", "fwd", BOTH, 90, resized, resize("fwd"))
simple("interpolate", "bwd", BOTH, 80, resized, resize("bwd"))


def far():
    """Maps resized by much, as segmentation does: pooled ones to all places, results to the image."""
    b = RND.pick(1, 2, 4, 8, 16, 32)
    if RND.flip(.4):
        c, hw, out = RND.pick(64, 128, 256, 512), 1, RND.pick(8, 16, 24, 32, 48, 64, 96)
    else:
        c, hw = RND.pick(2, 19, 21, 64, 150, 256, RND.logi(1, 512)), RND.pick(12, 16, 24, 32, 48, 64, 96, 128)
        out = hw * RND.pick(1, 2, 4, 4, 8, 8, 16)
    return dict(b=b, c=c, area=hw * hw, n=out * out) if b * c * out ** 2 < 1.2e8 else None


def resize_far(phase, last):
    def make(dt, b, c, area, n):
        hw, out = math.isqrt(area), math.isqrt(n)
        x = rand(b, c, hw, hw, dt=dt).contiguous(memory_format=layout(last)).detach().requires_grad_(phase == "bwd")

        def f():
            return F.interpolate(x, (out, out), mode="bilinear", align_corners=False)
        return (f, nbytes(x)) if phase == "fwd" else back(f(), x)
    return make


for phase in ("fwd", "bwd"):
    simple("interpolate_bilinear", phase, BOTH, 60, far, resize_far(phase, False))
    simple("interpolate_bilinear_last", phase, BOTH, 60, far, resize_far(phase, True))


def resized_volume():
    b, c, d, h = RND.pick(1, 2, 4), RND.pick(1, 4, 32, 64, 128, 320), RND.pick(4, 8, 16, 32), RND.pick(7, 8, 16, 32, 64)
    return dict(b=b, c=c, depth=d, hw=h, scale=2, mode=RND.pick("nearest", "trilinear")) if b * c * d * h * h * 8 < 8e7 else None


def resize_volume(phase):
    def make(dt, b, c, depth, hw, scale, mode):
        x = rand(b, c, depth, hw, hw, dt=dt).detach().requires_grad_(phase == "bwd")

        def f():
            return F.interpolate(x, scale_factor=scale, mode=mode)
        return (f, nbytes(x)) if phase == "fwd" else back(f(), x)
    return make


simple("interpolate3d", "fwd", BOTH, 25, resized_volume, resize_volume("fwd"))
simple("interpolate3d", "bwd", BOTH, 25, resized_volume, resize_volume("bwd"))


def windows():
    b, c, hw, k = RND.pick(1, 2, 8, 32, 64), RND.pick(3, 16, 64, 96, 192, RND.logi(1, 256)), RND.pick(14, 28, 32, 56, 64, 112, 224), RND.pick(2, 3, 3, 4, 7, 16)
    st = RND.pick(1, 2, k)
    pad = k // 2 if st < k else 0
    n = (hw + 2 * pad - k) // st + 1
    return dict(b=b, c=c, hw=hw, k=k, stride=st, pad=pad) if n > 0 and b * c * k * k * n * n < 1e8 and b * c * hw * hw < 5e7 else None


def unfold(dt, b, c, hw, k, stride, pad):
    x = rand(b, c, hw, hw, dt=dt)
    return (lambda: F.unfold(x, k, padding=pad, stride=stride)), nbytes(x)


def fold(dt, b, c, hw, k, stride, pad):
    n = (hw + 2 * pad - k) // stride + 1
    x = rand(b, c * k * k, n * n, dt=dt)
    return (lambda: F.fold(x, (hw, hw), k, padding=pad, stride=stride)), nbytes(x)


simple("unfold", "fwd", BOTH, 45, windows, unfold)
simple("fold", "fwd", BOTH, 45, windows, fold)


def padded():
    b, c, hw, p = RND.pick(1, 2, 8, 32), RND.pick(1, 3, 64, 128, 256), RND.pick(32, 56, 64, 128, 256, 512), RND.pick(1, 1, 3, 8)
    return dict(b=b, c=c, hw=hw, pad=p) if b * c * hw * hw < 6e7 else None


def reflect(phase):
    def make(dt, b, c, hw, pad):
        x = rand(b, c, hw, hw, dt=dt).detach().requires_grad_(phase == "bwd")

        def f():
            return F.pad(x, (pad,) * 4, "reflect")
        return (f, nbytes(x)) if phase == "fwd" else back(f(), x)
    return make


simple("reflection_pad", "fwd", BOTH, 20, padded, reflect("fwd"))
simple("reflection_pad", "bwd", BOTH, 20, padded, reflect("bwd"))


def pooled_volume():
    b, c, d, hw, k = RND.pick(1, 2, 4, 8), RND.pick(1, 32, 64, 128, 256, 512), RND.pick(4, 8, 16, 32, 64), RND.pick(7, 14, 28, 56, 112), RND.pick(2, 2, 3)
    return dict(b=b, c=c, depth=d, hw=hw, k=k, stride=2, pad=k // 2 if k == 3 else 0) if b * c * d * hw * hw < 8e7 else None


def pool_volume(f, phase):
    def make(dt, b, c, depth, hw, k, stride, pad):
        x = rand(b, c, depth, hw, hw, dt=dt).detach().requires_grad_(phase == "bwd")
        return ((lambda: f(x, k, stride, pad)), nbytes(x)) if phase == "fwd" else back(f(x, k, stride, pad), x)
    return make


for phase in ("fwd", "bwd"):
    simple("maxpool3d", phase, BOTH, 30, pooled_volume, pool_volume(F.max_pool3d, phase))
    simple("avgpool3d", phase, BOTH, 20, pooled_volume, pool_volume(F.avg_pool3d, phase))


# --- activations, norms and losses ---

def channelled():
    b, c, area = RND.pick(1, 8, 32, 128, RND.logi(1, 512)), RND.pick(1, 3, 12, 56, 64, 128, 512, RND.logi(1, 2048)), RND.pick(1, 49, 196, 784, 3136, 12544, RND.logi(1, 1 << 16))
    return dict(b=b, c=c, area=area) if 64 < b * c * area < 1e8 else None


def prelu(phase):
    def make(dt, b, c, area):
        x, w = leaf(b, c, area, dt=dt), leaf(1, c, 1, dt=dt)
        if phase == "fwd":
            with torch.no_grad():
                return (lambda: aten._prelu_kernel(x.detach(), w.detach())), 2 * nbytes(x)
        g = rand(b, c, area, dt=dt)
        return (lambda: aten._prelu_kernel_backward(g, x.detach(), w.detach())), 3 * nbytes(x)
    return make


simple("prelu", "fwd", FLOATS, 35, channelled, prelu("fwd"))
simple("prelu", "bwd", FLOATS, 35, channelled, prelu("bwd"))


def rows_of_channels():
    if RND.flip(.3):  # sequences and clouds of points
        b, c, length = RND.pick(4, 8, 16, 32, 64), RND.pick(32, 64, 128, 256, 512, 1024), RND.pick(128, 256, 500, 1000, 1024, 2000, 2048, 4096, 16000)
        return dict(b=b, c=c, h=length, w=1) if b * c * length < 1.5e8 else None
    b, c, length = RND.pick(16, 64, 128, 256, 512, 1024, RND.logi(2, 65536)), RND.pick(10, 64, 100, 128, 256, 512, 1024, 2048, RND.logi(4, 8192)), RND.pick(1, 1, 1, 1, RND.logi(2, 16000))
    return dict(b=b, c=c, h=length, w=1) if 64 < b * c * length < 8e7 else None


def line_norm(phase, training=True):
    def make(dt, b, c, h, w):
        x = (rand(b, c, dt=dt) if h == 1 else rand(b, c, h, dt=dt)).detach().requires_grad_(phase == "bwd")
        like = dict(device=DEV, dtype=torch.float32)
        weight, bias, mean, var = torch.ones(c, **like).requires_grad_(phase == "bwd"), torch.zeros(c, **like).requires_grad_(phase == "bwd"), torch.zeros(c, **like), torch.ones(c, **like)
        if phase == "fwd":
            return (lambda: F.batch_norm(x, mean, var, weight, bias, training)), nbytes(x)
        return back(F.batch_norm(x, mean, var, weight, bias, training), x)
    return make


simple("batchnorm", "fwd", FLOATS, 50, rows_of_channels, line_norm("fwd"))
simple("batchnorm", "bwd", FLOATS, 50, rows_of_channels, line_norm("bwd"))
simple("batchnorm_eval", "fwd", FLOATS, 50, rows_of_channels, line_norm("fwd", False))
simple("batchnorm_eval", "bwd", ("fp32",), 20, rows_of_channels, line_norm("bwd", False))


def grouped_maps():
    b, c, hw, groups = RND.pick(1, 2, 4, 8, 16, 32), RND.pick(32, 64, 128, 256, 320, 512, 640, 960, 1280, 1920, 2560), RND.pick(7, 8, 14, 16, 28, 32, 56, 64, 128), RND.pick(1, 8, 16, 32, 32)
    return dict(b=b, c=c, hw=hw, groups=groups, channels_last=RND.flip(.7)) if b * c * hw * hw < 1e8 and c % groups == 0 else None


def group_norm(phase):
    def make(dt, b, c, hw, groups, channels_last):
        x, w, bias = rand(b, c, hw, hw, dt=dt).contiguous(memory_format=layout(channels_last)), rand(c, dt=dt), rand(c, dt=dt)
        if phase == "fwd":
            return (lambda: F.group_norm(x, groups, w, bias)), 2 * nbytes(x)
        return back(F.group_norm(x.detach().requires_grad_(), groups, w.detach().requires_grad_(), bias.detach().requires_grad_()), x)
    return make


simple("groupnorm", "fwd", FLOATS, 45, grouped_maps, group_norm("fwd"))
simple("groupnorm", "bwd", FLOATS, 45, grouped_maps, group_norm("bwd"))


def segments():
    b, v, hw = RND.pick(1, 2, 4, 8, 16), RND.pick(2, 4, 19, 21, 80, 150, RND.logi(2, 300)), RND.pick(32, 64, 128, 224, 256, 512, 520)
    return dict(b=b, v=v, hw=hw) if b * v * hw * hw < 8e7 else None


def segment_loss(phase):
    def make(dt, b, v, hw):
        x, t = rand(b, v, hw, hw, dt=dt), ints(v, b, hw, hw)
        if phase == "fwd":
            return (lambda: F.cross_entropy(x, t)), nbytes(x, t)
        ls = torch.log_softmax(x, 1)
        _, weight = aten.nll_loss2d_forward(ls, t, None, 1, -100)
        g = torch.ones((), device=DEV, dtype=DT[dt])
        return (lambda: aten._log_softmax_backward_data(aten.nll_loss2d_backward(g, ls, t, None, 1, -100, weight), ls, 1, ls.dtype)), 2 * nbytes(x)
    return make


simple("cross_entropy2d", "fwd", BOTH, 40, segments, segment_loss("fwd"))
simple("cross_entropy2d", "bwd", BOTH, 40, segments, segment_loss("bwd"))


def classes():
    v, n = RND.pick(2, 3, 5, 10, 17, 1001, 21843, RND.logi(2, 150000)), RND.pick(1, 3, 17, 100, 1000, 4095, RND.logi(1, 200000))
    return dict(n=n, v=v) if 4 < v * n < 2e8 else None


def class_loss(phase, smoothing):
    def make(dt, n, v):
        x, t = rand(n, v, dt=dt).detach(), ints(v, n)
        if phase == "fwd":
            return (lambda: F.cross_entropy(x, t, label_smoothing=smoothing)), nbytes(x)
        ls = torch.log_softmax(x, 1)
        _, weight = aten.nll_loss_forward(ls, t, None, 1, -100)
        g = torch.ones((), device=DEV, dtype=DT[dt])
        return (lambda: aten._log_softmax_backward_data(aten.nll_loss_backward(g, ls, t, None, 1, -100, weight), ls, 1, ls.dtype)), 2 * nbytes(x)
    return make


simple("cross_entropy", "fwd", BOTH, 50, classes, class_loss("fwd", 0.0))
simple("cross_entropy", "bwd", BOTH, 50, classes, class_loss("bwd", 0.0))


def spoken():
    b, s, v = RND.pick(1, 4, 8, 16, 32, 64), RND.pick(50, 100, 200, 400, 800, RND.logi(20, 1500)), RND.pick(29, 32, 64, 128, 1024, 5000)
    return dict(b=b, s=s, v=v, l=max(1, s // RND.pick(3, 5, 10))) if b * s * v < 5e7 else None


def ctc(phase):
    def make(dt, b, s, v, l):
        x = torch.log_softmax(rand(s, b, v, dt="fp32"), 2).detach().requires_grad_(phase == "bwd")
        t = 1 + ints(v - 1, b, l)
        if phase == "fwd":
            return (lambda: aten._ctc_loss(x, t, [s] * b, [l] * b, 0, False)), nbytes(x)
        loss, alpha = aten._ctc_loss(x.detach(), t, [s] * b, [l] * b, 0, False)
        g = torch.ones_like(loss)
        return (lambda: aten._ctc_loss_backward(g, x.detach(), t, [s] * b, [l] * b, loss, alpha, 0, False)), 2 * nbytes(x)
    return make


LOOPED.add("ctc_loss")  # it copies lengths from the host
simple("ctc_loss", "fwd", ("fp32",), 15, lambda: (lambda s: s and dict(s, loop=True))(spoken()), ctc("fwd"))
simple("ctc_loss", "bwd", ("fp32",), 15, lambda: (lambda s: s and dict(s, loop=True))(spoken()), ctc("bwd"))


def pairs(dt, b, m, n, d):
    x, y = rand(b, m, d, dt=dt), rand(b, n, d, dt=dt)
    return (lambda: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")), nbytes(x, y)


simple("cdist", "fwd", ("fp32",), 25, lambda: (lambda b, m, n, d: dict(b=b, m=m, n=n, d=d) if b * m * n * d < 1e9 and b * m * n < 5e7 else None)(
    RND.pick(1, 1, 4, 16), RND.logi(4, 4096), RND.logi(4, 4096), RND.pick(2, 3, 16, 64, 128)), pairs)


def weight_norm(phase):
    def make(dt, rows, cols):
        v, g = rand(rows, cols, dt=dt), rand(rows, 1, dt=dt)
        if phase == "fwd":
            return (lambda: aten._weight_norm_interface(v, g, 0)), nbytes(v)
        w, norm = aten._weight_norm_interface(v, g, 0)
        grad = torch.randn_like(w)
        return (lambda: aten._weight_norm_interface_backward(grad, v, g, norm, 0)), 2 * nbytes(v)
    return make


for phase in ("fwd", "bwd"):
    simple("weight_norm", phase, ("fp32",), 15, lambda: dict(rows=RND.logi(1, 2048), cols=RND.logi(3, 8192)), weight_norm(phase))


# --- recurrent cells and layers ---

def cell(kind, phase):
    gates = 4 if kind == "lstm" else 3

    def make(dt, b, hidden):
        x, h = rand(b, gates * hidden, dt=dt), rand(b, gates * hidden, dt=dt)
        bi, bh, c = rand(gates * hidden, dt=dt), rand(gates * hidden, dt=dt), rand(b, hidden, dt=dt)
        forward = (lambda: aten._thnn_fused_lstm_cell(x, h, c, bi, bh)) if kind == "lstm" else (lambda: aten._thnn_fused_gru_cell(x, h, c, bi, bh))
        if phase == "fwd":
            return forward, nbytes(x, h, c)
        out, g = forward(), rand(b, hidden, dt=dt)
        if kind == "lstm":
            return (lambda: aten._thnn_fused_lstm_cell_backward_impl(g, g, c, out[1], out[2], True)), nbytes(out[2], c, g)
        return (lambda: aten._thnn_fused_gru_cell_backward(g, out[1], True)), nbytes(out[1], g)
    return make


for kind in ("lstm", "gru"):
    for phase in ("fwd", "bwd"):
        simple(kind + "_cell", phase, FLOATS if GPU else (), 16, lambda: dict(b=RND.logi(1, 4096), hidden=RND.pick(32, 64, 128, 200, 256, 512, 1024, RND.logi(8, 2048))), cell(kind, phase))


def wide_rnn(kind, phase):
    mode, cls = ops_extra.MODES[kind]

    def gen(dt):
        b, s, i = RND.pick(1, 8, 16, 32, 64, 128, RND.logi(1, 512)), RND.pick(16, 50, 100, 128, 200, 256, RND.logi(4, 800)), RND.pick(1, 13, 39, 64, 80, 128, 256, 300, 512, 1024, RND.logi(1, 1024))
        h, layers, two = RND.pick(32, 64, 100, 128, 256, 300, 384, 512, 768, 800, 1024, RND.logi(8, 2048)), RND.pick(1, 1, 2, 3), RND.flip(.4)
        if b * s * h * layers > 3e7 or s * layers > 1200 or b * s * i > 3e7:
            return None
        train = phase == "bwd" or RND.flip(.5)
        shape = dict(b=b, s=s, input=i, hidden=h, layers=layers, bidirectional=two)
        if phase == "fwd":
            shape["train"] = train

        def make():
            m = cls(i, h, layers, bidirectional=two, device=DEV, dtype=DT[dt])
            m.flatten_parameters()
            m.train(train)
            x = rand(s, b, i, dt=dt)
            if phase == "fwd":
                def forward():
                    with torch.set_grad_enabled(train):
                        m(x)
                return forward, nbytes(x, *m.parameters())
            w = [p.detach() for p in m._flat_weights]
            zero = torch.zeros(layers * (2 if two else 1), b, h, device=DEV, dtype=DT[dt])
            state = zero.clone() if kind == "lstm" else None
            out, _, _, reserve, buf = aten._cudnn_rnn(x, w, 4, None, zero, state, mode, h, 0, layers, False, 0.0, True, two, [], None)
            grad = torch.randn_like(out)
            return (lambda: aten._cudnn_rnn_backward(x, w, 4, buf, zero, state, out, grad, None, None, mode, h, 0, layers, False, 0.0, True, two, [], None, reserve, [True, False, False, True])), nbytes(x, out, grad, *w)

        return shape, make
    return gen


for kind, rows in (("gru", 60), ("lstm", 25), ("rnn", 12)):
    for phase in ("fwd", "bwd"):
        add(kind, phase, ALL if GPU else (), rows, wide_rnn(kind, phase))


# --- attention with other lengths and masks ---

def crossed(masked):
    def gen(dt, phase="fwd", train=False):
        if RND.flip(.4):
            h, s, n, d = RND.pick((8, 4096, 77, 40), (8, 1024, 77, 80), (8, 256, 77, 160), (10, 4096, 77, 64), (20, 1024, 77, 64), (12, 197, 197, 64), (16, 512, 64, 64), (8, 100, 2500, 32), (8, 900, 900, 32), (8, 64, 49, 32), (4, 49, 49, 32), (12, 512, 512, 64), (8, 128, 128, 64), (3, 49, 49, 32), (1, 4096, 16, 64), (16, 1, 577, 64))
            b = RND.pick(1, 2, 4, 8, 16, 64, 256)
        else:
            b, h, d = RND.logi(1, 512), RND.pick(1, 2, 3, 4, 6, 8, 12, 16), RND.pick(16, 24, 32, 40, 48, 64, 80, 96, 128)
            s, n = RND.logi(1, 4096), RND.logi(1, 512) if RND.flip(.7) else RND.logi(1, 4096)
        single = dt in ("fp32", "tf32")
        if 4 * b * h * s * n * d > (1e11 if single else 5e11) or b * h * max(s, n) * d > 1e8 or b * h * s * n > 4e8:
            return None
        shape = dict(b=b, h=h, kv=h, s=s, kv_len=n, d=d, causal=False, train=train)
        heads = images = 1
        if masked:
            heads, images = RND.pick(1, h), RND.pick(1, b)
            shape["mask"] = heads * images

        def make():
            q, k, v = (rand(b, h, x, d, dt=dt).detach().requires_grad_(train) for x in (s, n, n))
            mask = rand(images, heads, s, n, dt=dt).expand(b, h, s, n) if masked else None
            shape["backend"] = ops_extra.BACKENDS.get(torch._fused_sdp_choice(q, k, v, mask, 0.0, False, scale=None), "?")

            def forward():
                return F.scaled_dot_product_attention(q, k, v, mask)

            if phase == "fwd":
                return forward, nbytes(q, k, v) + (images * heads * s * n * q.element_size() if masked else 0)
            out = forward()
            if "ScaledDotProduct" not in type(out.grad_fn).__name__:
                raise RuntimeError("not a fused attention: " + type(out.grad_fn).__name__)
            return back(out, q, k, v, out)

        return shape, make
    return gen


for masked, rows in ((False, 70), (True, 70)):
    draw = crossed(masked)
    add("sdpa", "fwd", ("bf16", "fp32", "fp16"), rows, draw)
    add("sdpa", "fwd", ("bf16", "fp32"), rows // 3, lambda dt, draw=draw: draw(dt, "fwd", True))
    add("sdpa", "bwd", ("bf16", "fp32"), rows // 2, lambda dt, draw=draw: draw(dt, "bwd", True))


# --- convolutions over lines and volumes, grouped and dilated ones ---

def convolution(dims, phase, draw):
    """draw() gives b, ci, co, size, k, stride, pad, dilation (lists over dims), groups and whether it is transposed."""
    def gen(dt):
        c = draw()
        if c is None:
            return None
        cl = dims > 1 and dt in HALF and RND.flip(.5) or dims > 1 and RND.flip(.1)
        out = [((n - 1) * st - 2 * p + dl * (k - 1) + 1) if c["transposed"] else (n + 2 * p - dl * (k - 1) - 1) // st + 1 for n, k, st, p, dl in zip(c["size"], c["k"], c["stride"], c["pad"], c["dilation"])]
        b, ci, co, g, size = c["b"], c["ci"], c["co"], c["groups"], c["size"]
        if min(out) < 1 or ci % g or co % g:
            return None
        macs = b * ci * co // g * math.prod(c["k"]) * math.prod(size if c["transposed"] else out)
        if macs > ((1e11 if dt == "fp32" else 3e11) if GPU else 1e8) or b * max(ci * math.prod(size), co * math.prod(out)) > 1.5e8:
            return None
        memory = {2: torch.channels_last, 3: torch.channels_last_3d}[dims] if cl else torch.contiguous_format
        args = c["stride"], c["pad"], c["dilation"], c["transposed"], [0] * dims, g

        def make():
            x = rand(b, ci, *size, dt=dt).contiguous(memory_format=memory)
            w = (rand(ci, co // g, *c["k"], dt=dt) if c["transposed"] else rand(co, ci // g, *c["k"], dt=dt)).contiguous(memory_format=memory)
            if phase == "fwd":
                return (lambda: aten.convolution(x, w, None, *args)), nbytes(x, w)
            y = rand(b, co, *out, dt=dt).contiguous(memory_format=memory)
            return (lambda: aten.convolution_backward(y, x, w, None, *args, [phase == "dgrad", phase == "wgrad", False])), nbytes(x, w, y)

        shape = dict(b=b, ci=ci, co=co, groups=g, channels_last=cl)
        if dims == 3:
            shape.update(size=size, k=c["k"], stride=c["stride"], pad=c["pad"], dilation=c["dilation"])
        else:
            one = dims == 1
            names = ("h", "w"), ("r", "s")
            shape.update({n: v for n, v in zip(names[0], ([1] if one else []) + size)}, **{n: v for n, v in zip(names[1], ([1] if one else []) + c["k"])})
            shape.update(stride=([1] if one else []) + c["stride"], pad=([0] if one else []) + c["pad"], dilation=([1] if one else []) + c["dilation"])
        return shape, make
    return gen


def layer(dims, b, ci, co, size, k, stride=1, pad=None, dilation=1, groups=1, transposed=False):
    every = lambda x: list(x) if isinstance(x, (list, tuple)) else [x] * dims
    k, dilation = every(k), every(dilation)
    pad = [d * (n // 2) for d, n in zip(dilation, k)] if pad is None else every(pad)
    return dict(b=b, ci=ci, co=co, size=every(size), k=k, stride=every(stride), pad=pad, dilation=dilation, groups=groups, transposed=transposed)


def volume():
    r = RND
    b = r.pick(1, 1, 2, 4, 8, 16)
    if r.flip(.25):  # first layers, of few channels
        k, st = r.pick(((3, 7, 7), (1, 2, 2)), ((1, 7, 7), (1, 2, 2)), ((5, 7, 7), (1, 2, 2)), (7, 2), (3, 1), (3, 2), (3, (1, 2, 2)), (5, 1), ((1, 3, 3), (1, 2, 2)), (1, 1), (4, 4), ((2, 16, 16), (2, 16, 16)))
        patches = k == st
        return layer(3, b, r.pick(1, 1, 2, 3, 3, 3, 4), r.pick(8, 16, 24, 32, 45, 64, 64, 96, 128, 768 if patches else 32), (r.pick(4, 8, 16, 32, 64), *[r.pick(56, 64, 96, 112, 128, 160, 224)] * 2), k, st, 0 if patches else None)
    if r.flip(.5):
        ci, co, t, hw, k, st, pad = r.pick((3, 64, 16, 112, (3, 7, 7), (1, 2, 2), None), (64, 64, 16, 56, 3, 1, None), (64, 128, 16, 56, 3, 2, None), (128, 128, 8, 28, 3, 1, None), (128, 256, 8, 28, 3, 2, None), (256, 256, 4, 14, 3, 1, None), (512, 512, 2, 7, 3, 1, None),
                                     (64, 144, 16, 56, (1, 3, 3), 1, None), (144, 64, 16, 56, (3, 1, 1), 1, None), (230, 128, 8, 28, (3, 1, 1), 1, None), (64, 128, 16, 56, 1, 2, 0), (3, 96, 16, 224, (2, 4, 4), (2, 4, 4), 0), (3, 768, 16, 224, (2, 16, 16), (2, 16, 16), 0),
                                     (1, 32, 64, 64, 3, 1, None), (32, 32, 64, 64, 3, 1, None), (32, 64, 64, 64, 3, 2, None), (64, 128, 32, 32, 3, 1, None), (128, 256, 16, 16, 3, 1, None), (320, 320, 8, 8, 3, 1, None), (192, 96, 16, 28, 1, 1, None), (480, 192, 8, 14, 1, 1, None), (24, 24, 32, 56, (3, 1, 1), 1, None))
        return layer(3, b, ci, co, (t, hw, hw), k, st, pad)
    k = r.pick(1, 3, 3, 3, 2, 5, (1, 3, 3), (3, 1, 1))
    st = r.pick(1, 1, 1, 2)
    co = r.logi(4, 768, r.pick(1, 8))
    c = layer(3, b, r.logi(1, 768, r.pick(1, 8)), co, (r.logi(2, 64), *[r.logi(4, 128)] * 2), k, st)
    if r.flip(.15):
        c.update(k=[2] * 3, stride=[2] * 3, pad=[0] * 3, transposed=True)
    elif r.flip(.1):
        c.update(groups=c["ci"], co=c["ci"])
    return c


def line():
    r = RND
    b = r.pick(1, 2, 4, 8, 16, 32, r.logi(1, 128))
    if r.flip(.4):
        ci, co, n, k, st, pad, g = r.pick((1, 512, 16000, 10, 5, 0, 1), (512, 512, 3199, 3, 2, 0, 1), (512, 512, 799, 3, 2, 0, 1), (512, 512, 399, 2, 2, 0, 1), (768, 768, 499, 128, 1, 64, 16), (80, 512, 3000, 3, 1, 1, 1), (512, 512, 3000, 3, 2, 1, 1), (80, 512, 100, 7, 1, 3, 1), (256, 256, 800, 7, 1, None, 1),
                                 (128, 128, 6400, 11, 1, None, 1), (64, 64, 12800, 3, 1, None, 1), (32, 32, 25600, 7, 1, None, 1), (512, 512, 400, 31, 1, None, 512), (256, 512, 400, 1, 1, 0, 1), (1024, 1024, 200, 31, 1, None, 1024), (2048, 2048, 1024, 4, 1, 3, 2048))
        return layer(1, b, ci, co, n, k, st, pad, RND.pick(1, 1, 2) if k in (3, 7, 11) and st == 1 else 1, g)
    k = r.pick(1, 2, 3, 3, 5, 7, 9, 15)
    if r.flip(.25):
        st = r.pick(2, 4, 8)
        return layer(1, b, r.logi(8, 512, r.pick(1, 8)), r.logi(4, 512, r.pick(1, 8)), r.logi(8, 8000), 2 * st, st, st // 2, transposed=True)
    g = r.pick(1, 1, 1, 1, 2, 4, 16)
    return layer(1, b, r.logi(1, 64) * g, r.logi(1, 64) * g, r.logi(16, 32000), k, r.pick(1, 1, 1, 2), None, r.pick(1, 1, 1, 2, 4, 16, 64), g) if g > 1 else layer(1, b, r.logi(1, 1024, r.pick(1, 8)), r.logi(1, 1024, r.pick(1, 8)), r.logi(16, 32000), k, r.pick(1, 1, 1, 2), None, r.pick(1, 1, 1, 2, 4, 16, 64))


def grouped():
    r = RND
    b = r.pick(1, 4, 8, 16, 32, 64, 128)
    if r.flip():
        g, c, hw, st = r.pick((32, 128, 56, 1), (32, 256, 28, 1), (32, 512, 14, 1), (32, 1024, 7, 1), (32, 256, 56, 2), (64, 256, 56, 1), (64, 512, 28, 1), (64, 1024, 14, 1), (32, 2048, 7, 1), (2, 48, 56, 1), (6, 48, 56, 1), (20, 160, 14, 1), (46, 368, 7, 1), (7, 168, 28, 1), (16, 384, 14, 1), (38, 912, 7, 1), (2, 232, 56, 1), (3, 696, 28, 1), (6, 1392, 14, 1), (2, 264, 56, 1), (11, 2640, 14, 1))
        return layer(2, b, c, c, hw, 3, st, groups=g)
    g = r.pick(2, 3, 4, 8, 8, 16, 32, 64, r.logi(2, 128))
    k = r.pick(1, 1, 3, 3, 3, 5, 7)
    ci, co = g * r.logi(1, 96), g * r.logi(1, 96)
    return layer(2, b, ci, ci if r.flip(.6) else co, r.pick(7, 14, 28, 56, r.logi(4, 112)), k, r.pick(1, 1, 2), groups=g)


def dilated():
    r = RND
    b, k = r.pick(1, 2, 4, 8, 16), r.pick(3, 3, 3, 5)
    dil = r.pick(2, 2, 3, 4, 6, 12, 18, 24, 36)
    if r.flip(.3):
        c = r.pick(256, 512, 960, 320)
        return layer(2, b, c, c, r.pick(28, 33, 65, 64), 3, 1, None, r.pick(2, 4), groups=r.pick(1, c))
    return layer(2, b, r.pick(64, 256, 320, 512, 2048, r.logi(8, 1024)), r.pick(64, 256, 512, r.logi(8, 512)), r.pick(28, 33, 64, 65, 97, r.logi(16, 128)), k, 1, None, dil)


for phase in ("fwd", "dgrad", "wgrad"):
    add("conv3d", phase, ALL, 70, convolution(3, phase, volume))
    add("conv1d", phase, ALL, 45, convolution(1, phase, line))
    add("conv2d", phase, ALL, 50, convolution(2, phase, grouped))
    add("conv2d", phase, ALL, 18, convolution(2, phase, dilated))


# --- solvers ---

def square(f, k=None):
    def make(dt, rows, n, **rest):
        a = rand(rows, n, n, dt=dt)
        spd = a @ a.mT + n * torch.eye(n, device=DEV)
        rhs = rand(rows, n, rest.get("k", 1), dt=dt)
        return (lambda: f(a, spd, rhs)), nbytes(a)
    return make


def systems(most, work):
    def draw():
        rows, n = RND.pick(1, 1, RND.logi(1, 4096)), min(most, RND.pick(2, 3, 4, 16, 64, 128, 512, RND.logi(2, most)))
        return dict(rows=rows, n=n, k=RND.pick(1, 1, 8, 64), loop=True) if rows * n ** 3 < work and (rows < 300 or work > 1e9) else None
    return draw


SOLVERS = {"cholesky": (4096, lambda a, s, r: torch.linalg.cholesky(s)), "solve": (4096, lambda a, s, r: torch.linalg.solve(s, r)), "inv": (2048, lambda a, s, r: torch.linalg.inv(s)), "qr": (512, lambda a, s, r: torch.linalg.qr(a)),
           "eigh": (512, lambda a, s, r: torch.linalg.eigh(s)), "svd": (384, lambda a, s, r: torch.linalg.svd(a)), "solve_triangular": (4096, lambda a, s, r: torch.linalg.solve_triangular(s.tril(), r, upper=False))}
for op, (most, f) in SOLVERS.items():
    LOOPED.add(op)
    simple(op, "fwd", ("fp32",), 14, systems(most, 3e8 if op in ("svd", "eigh", "qr") else 2e10), square(f))


# --- optimizers over lists of tensors ---

LIKE = dict(differentiable=False, has_complex=False, maximize=False)


def lists():
    n = RND.pick(RND.logi(1 << 14, 1 << 27), RND.logi(1 << 20, 1 << 27))
    return dict(n=n, parts=min(n, RND.pick(1, 2, 16, 60, 160, 320, RND.logi(1, 800))))


def many(kind):
    def make(dt, n, parts):
        # As in networks: half of the tensors are biases and scales, the others hold nearly all elements.
        small = parts // 2
        ps = [torch.randn(256, device=DEV) for _ in range(small)] + [torch.randn(max(1, n // (parts - small)), device=DEV) for _ in range(parts - small)]
        gs, one = [torch.randn_like(p) for p in ps], [torch.zeros_like(p) for p in ps]
        if kind == "sgd_fused":
            return (lambda: sgd(ps, gs, one, has_sparse_grad=False, fused=True, foreach=False, weight_decay=0, momentum=.9, lr=.01, dampening=0, nesterov=False, maximize=False)), 12 * n
        if kind == "foreach_mul":
            return (lambda: torch._foreach_mul_(gs, 0.5)), 4 * n
        if kind == "foreach_norm":
            return (lambda: torch._foreach_norm(gs)), 4 * n
        two, steps = [torch.zeros_like(p) for p in ps], [torch.tensor(1., device=DEV if kind.endswith("fused") else "cpu") for _ in ps]
        if kind == "rmsprop_foreach":
            return (lambda: rmsprop(ps, gs, one, [], [], steps, foreach=True, capturable=False, lr=.01, alpha=.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, **LIKE)), 12 * n
        if kind == "adagrad_foreach":
            return (lambda: adagrad(ps, gs, one, steps, foreach=True, lr=.01, weight_decay=0, lr_decay=0, eps=1e-10, has_sparse_grad=False, **LIKE)), 12 * n
        amsgrad = [torch.zeros_like(p) for p in ps] if kind == "amsgrad_foreach" else []
        fused = kind == "adam_fused"
        return (lambda: adam(ps, gs, one, two, amsgrad, steps, foreach=not fused, capturable=False, fused=fused, amsgrad=bool(amsgrad), beta1=.9, beta2=.999, lr=1e-3, weight_decay=0, eps=1e-8, **LIKE)), 16 * n
    return make


for kind in ("sgd_fused", "adam_fused", "rmsprop_foreach", "adagrad_foreach", "amsgrad_foreach", "foreach_mul", "foreach_norm"):
    simple(kind, "fwd", ("fp32",), 40 if kind != "adam_fused" else 60, lists, many(kind))


# --- names instead of times ---

def named(path, cases, seconds):
    """The kernels of calls, by the profiler: for operators timed in a loop as many as fit, for the others a few."""
    from torch.profiler import ProfilerActivity, profile

    from common import Clock, Table, allow_tf32, recover
    clock, out = Clock(seconds), Table(path, ["op", "phase", "dtype", "shape", "gpu_us", "copies", "kernels"])
    todo = [c for c in cases for _ in range(12 if c[0] in LOOPED else 3)]
    RND.shuffle(todo)
    for op, phase, dt, _, gen in todo:
        if clock.over():
            break
        drawn = None
        while drawn is None:
            drawn = gen()
        shape, make = drawn
        allow_tf32(dt == "tf32")
        try:
            call, _ = make()
            for _ in range(2):
                call()
            if not GPU:
                continue
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as prof:
                call()
                torch.cuda.synchronize()
            found = [e for e in prof.events() if e.device_type == torch.autograd.DeviceType.CUDA]
            names = {}
            for e in found:
                names[e.name[:60]] = names.get(e.name[:60], 0) + 1
            out.row([op, phase, dt, shape, f"{sum(e.time_range.elapsed_us() for e in found):.3f}", 1, " | ".join(n if c == 1 else f"{n} x{c}" for n, c in names.items())])
        except Exception as e:
            recover(e, op, phase, dt, shape)
        del make, drawn
        clock.progress(out.rows, "named, at", op, phase, dt)
    print("named", out.rows, flush=True)


if __name__ == "__main__":
    if "--names" in sys.argv:
        RND.seed("preflop-names")
        torch.manual_seed(20261116)
        at = sys.argv.index("--seconds") if "--seconds" in sys.argv else None
        named(sys.argv[1], ops_extra.CASES, float(sys.argv[at + 1]) if at else 60)
    else:
        ops_extra.main()
