#!/usr/bin/env python3
"""Times operators that the first sweep of operators lacks, or has few rows of, at random shapes.

usage: ops_extra.py OUT.csv [--seconds S] [--seed TEXT] [--only OP[,OP...]] [--selftest]

Each row: op, phase, dtype, shape (json), gpu_us, copies. Half of the shapes look like those of real networks. Every
(op, phase, dtype) has a wanted number of rows; the rows come in an order in which all of them fill at the same pace,
and start over with new shapes if time is left. --selftest measures each (op, phase, dtype) once.
"""
import argparse
import warnings

import torch
import torch.nn.functional as F
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from common import DEV, DT, GPU, Clock, Draw, Table, allow_tf32, nbytes, rand, recover, time_calls

aten = torch.ops.aten
RND = Draw("preflop-ops-0")
ALL, HALF, FLOATS = ("fp32", "tf32", "bf16", "fp16"), ("bf16", "fp16"), ("bf16", "fp32", "fp16")
NO_CAPTURE = {"nms"}
CASES = []  # (op, phase, dtype, wanted rows, generator); a generator returns (shape, make), or None to draw again


def add(op, phase, dtypes, rows, gen):
    for dt in dtypes:
        CASES.append((op, phase, dt, rows, lambda dt=dt: gen(dt)))


def ints(high, *shape):
    return torch.randint(0, high, shape, device=DEV)


def layout(channels_last):
    return torch.channels_last if channels_last else torch.contiguous_format


# --- attention ---

BACKENDS = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}


def sdpa(dt, phase, train):
    single = dt in ("fp32", "tf32")
    if RND.flip():
        h, kv, s, d, causal = RND.pick((12, 12, 128, 64, False), (16, 16, 512, 64, False), (12, 12, 1024, 64, True), (20, 20, 1024, 64, True), (32, 8, 2048, 64, True), (32, 8, 1024, 128, True),
                                       (12, 12, 197, 64, False), (16, 16, 197, 64, False), (8, 8, 50, 64, False), (16, 16, 50, 64, False), (12, 12, 50, 64, False), (12, 12, 384, 64, False), (32, 32, 2048, 128, True))
        b = RND.pick(1, 2, 4, 8, 16, 32, 64, 128)
    else:
        b, h, d = RND.logi(1, 64), RND.pick(4, 8, 12, 16, 24, 32), RND.pick(32, 64, 64, 128, 128, 96, 80)
        s, kv, causal = RND.pick(RND.logi(16, 4096), RND.logi(64, 4096, 64)), h if RND.flip(.8) else RND.pick(1, 2, 4), RND.flip()
    if single:
        kv = h
    if h % kv or 4 * b * h * s * s * d > (2e11 if single else 1e12) or b * h * s * d > 3e8:
        return None
    p = RND.pick(0.0, 0.0, 0.1) if train and phase == "fwd" else 0.0  # its random state would not outlive a graph
    heads_inside = RND.flip()
    shape = dict(b=b, h=h, kv=kv, s=s, d=d, causal=causal, layout="bshd" if heads_inside else "bhsd", dropout=p, train=train)

    def operand(heads):
        x = rand(b, s, heads, d, dt=dt).transpose(1, 2) if heads_inside else rand(b, heads, s, d, dt=dt)
        return x.requires_grad_(train)

    def make():
        q, k, v = operand(h), operand(kv), operand(kv)
        shape["backend"] = BACKENDS.get(torch._fused_sdp_choice(q, k, v, None, p, causal, scale=None, enable_gqa=kv != h), "?")

        def forward():
            return F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=causal, enable_gqa=kv != h)

        if phase == "fwd":
            return forward, nbytes(q, k, v)
        out = forward()
        node, grad = out.grad_fn, torch.randn_like(out)
        if "ScaledDotProduct" not in type(node).__name__:
            raise RuntimeError("not a fused attention: " + type(node).__name__)
        return (lambda: node(grad)), nbytes(q, k, v, out, grad)

    return shape, make


def sdpa_decode(dt):
    b, (h, kv), d, n = RND.logi(1, 128), RND.pick((32, 8), (32, 32), (12, 12), (16, 16), (64, 8), (40, 40), (32, 4)), RND.pick(64, 128, 128), RND.logi(32, 16384)
    if b * kv * n * d > 5e8:
        return None
    shape = dict(b=b, h=h, kv=kv, s=1, kv_len=n, d=d, causal=False)

    def make():
        q, k, v = rand(b, h, 1, d, dt=dt), rand(b, kv, n, d, dt=dt), rand(b, kv, n, d, dt=dt)
        shape["backend"] = BACKENDS.get(torch._fused_sdp_choice(q, k, v, None, 0.0, False, scale=None, enable_gqa=kv != h), "?")
        return (lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=kv != h)), nbytes(q, k, v)

    return shape, make


for phase, rows in (("fwd", 30), ("bwd", 80)):
    add("sdpa", phase, ("bf16",), rows, lambda dt, phase=phase: sdpa(dt, phase, True))
    add("sdpa", phase, ("fp16",), rows * 2 // 3, lambda dt, phase=phase: sdpa(dt, phase, True))
    add("sdpa", phase, ("fp32", "tf32"), 40, lambda dt, phase=phase: sdpa(dt, phase, True))
add("sdpa", "fwd", ("fp32", "tf32"), 20, lambda dt: sdpa(dt, "fwd", False))
add("sdpa", "fwd", HALF, 45, sdpa_decode)


# --- recurrent layers ---

MODES = {"rnn": (1, torch.nn.RNN), "lstm": (2, torch.nn.LSTM), "gru": (3, torch.nn.GRU)}


def rnn(dt, kind, phase, persistent=False):
    if persistent:  # one layer and direction, multiples of 128: the persistent kernels in fp16
        b, s, i, h, layers, two = RND.logi(8, 128, 8), RND.logi(4, 64), RND.logi(128, 1024, 128), RND.logi(128, 1024, 128), 1, False
    elif RND.flip(.4):
        b, s, (i, h, layers, two) = RND.pick(1, 16, 32, 64, 128), RND.pick(20, 35, 50), RND.pick((1024, 1024, 1, True), (2048, 1024, 3, False), (1024, 1024, 4, False), (650, 650, 2, False), (200, 200, 2, False), (512, 512, 1, False), (256, 256, 2, True))
    else:
        b, s, i = RND.pick(1, 16, 32, 64, RND.logi(1, 256)), RND.logi(4, 64), RND.pick(128, 256, 512, 1024, RND.logi(32, 1024, 8))
        h, layers, two = RND.pick(128, 256, 512, 1024, RND.logi(32, 2048, 8)), RND.pick(1, 1, 2, 4), RND.flip(1 / 3)
    if b * s * h * layers > 3e7:
        return None
    train = phase == "bwd" or (not persistent and RND.flip(.3))
    shape = dict(b=b, s=s, input=i, hidden=h, layers=layers, bidirectional=two)
    return recurrent(dt, kind, phase, train, **shape)


def recurrent(dt, kind, phase, train, b, s, input, hidden, layers, bidirectional):
    """Shape and make of a recurrent layer; `train` asks forward for what backward needs."""
    i, h, two = input, hidden, bidirectional
    shape = dict(b=b, s=s, input=i, hidden=h, layers=layers, bidirectional=two)
    if phase == "fwd":
        shape["train"] = train
    mode, cls = MODES[kind]

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
        cell = zero.clone() if kind == "lstm" else None
        out, _, _, reserve, buf = aten._cudnn_rnn(x, w, 4, None, zero, cell, mode, h, 0, layers, False, 0.0, True, two, [], None)
        grad = torch.randn_like(out)
        return (lambda: aten._cudnn_rnn_backward(x, w, 4, buf, zero, cell, out, grad, None, None, mode, h, 0, layers, False, 0.0, True, two, [], None, reserve,
                                                 [True, False, False, True])), nbytes(x, out, grad, *w)

    return shape, make


add("lstm", "bwd", ALL, 36, lambda dt: rnn(dt, "lstm", "bwd"))
add("lstm", "bwd", ("fp16",), 14, lambda dt: rnn(dt, "lstm", "bwd", True))
add("lstm", "fwd", ("fp32",), 60, lambda dt: rnn(dt, "lstm", "fwd"))
add("lstm", "fwd", ("fp16",), 60, lambda dt: rnn(dt, "lstm", "fwd", True))
add("lstm", "fwd", ("fp16", "tf32", "bf16"), 24, lambda dt: rnn(dt, "lstm", "fwd"))
add("gru", "fwd", ALL, 20, lambda dt: rnn(dt, "gru", "fwd"))
add("gru", "bwd", ALL, 20, lambda dt: rnn(dt, "gru", "bwd"))
add("rnn", "fwd", ALL, 12, lambda dt: rnn(dt, "rnn", "fwd"))


# --- transposed convolution and fp8 matrix products ---

def conv_transpose(dt, phase):
    b, out_pad, g = RND.pick(1, 8, 16, 32, 64, 128, RND.logi(1, 256)), 0, 1
    if RND.flip():
        ci, co, hw, k, st, pad = RND.pick((100, 512, 1, 4, 1, 0), (512, 256, 4, 4, 2, 1), (256, 128, 8, 4, 2, 1), (128, 64, 16, 4, 2, 1), (64, 3, 32, 4, 2, 1), (1024, 512, 14, 2, 2, 0), (512, 256, 28, 2, 2, 0),
                                          (256, 128, 56, 2, 2, 0), (128, 64, 112, 2, 2, 0), (256, 256, 14, 2, 2, 0), (2048, 256, 8, 4, 2, 1), (256, 256, 32, 4, 2, 1), (21, 21, 16, 4, 2, 1))
    else:
        ci, co, hw, k = RND.logi(8, 1024, RND.pick(1, 8)), RND.logi(4, 1024, RND.pick(1, 8)), RND.logi(4, 96), RND.pick(2, 3, 4, 4, 5)
        st = RND.pick(1, 2, 2)
        pad = {2: 0, 3: 1, 4: 1, 5: 2}[k]
        out_pad = 1 if st == 2 and k in (3, 5) else 0
    oh = (hw - 1) * st - 2 * pad + k + out_pad
    if oh < 1 or 2 * b * hw * hw * ci * co * k * k > 1e12 or b * ci * hw * hw > 2e8 or b * co * oh * oh > 2e8:
        return None
    cl = dt in HALF and RND.flip(.6)
    args = [st, st], [pad, pad], [1, 1], True, [out_pad, out_pad], g

    def make():
        x = rand(b, ci, hw, hw, dt=dt).contiguous(memory_format=layout(cl))
        w = rand(ci, co // g, k, k, dt=dt).contiguous(memory_format=layout(cl))
        if phase == "fwd":
            return (lambda: aten.convolution(x, w, None, *args)), nbytes(x, w)
        y = rand(b, co, oh, oh, dt=dt).contiguous(memory_format=layout(cl))
        mask = [phase == "dgrad", phase == "wgrad", False]
        return (lambda: aten.convolution_backward(y, x, w, None, *args, mask)), nbytes(x, w, y)

    return dict(b=b, ci=ci, hw=hw, co=co, k=k, stride=st, pad=pad, out_pad=out_pad, groups=g, channels_last=cl), make


for phase in ("fwd", "dgrad", "wgrad"):
    add("conv_transpose2d", phase, ALL, 30, lambda dt, phase=phase: conv_transpose(dt, phase))


def linear_fp8(dt):
    if RND.flip():
        n, k = RND.pick((768, 768), (3072, 768), (768, 3072), (4096, 1024), (1024, 4096), (4096, 4096), (8192, 2048), (2048, 8192), (14336, 4096), (4096, 14336), (28672, 8192), (6144, 4096))
        m = 1 << RND.randint(4, 14)
    else:
        m, n, k = RND.logi(16, 16384, RND.pick(1, 16)), RND.logi(32, 16384, 16), RND.logi(32, 16384, 16)
    if 2 * m * n * k > 3e12:
        return None
    by_row, fast = RND.flip(.3), RND.flip(.7)

    def make():
        x, w = rand(m, k).to(torch.float8_e4m3fn), rand(n, k).to(torch.float8_e4m3fn)
        sx, sw = (torch.ones(m, 1, device=DEV), torch.ones(1, n, device=DEV)) if by_row else (torch.ones((), device=DEV), torch.ones((), device=DEV))
        return (lambda: torch._scaled_mm(x, w.t(), sx, sw, out_dtype=torch.bfloat16, use_fast_accum=fast)), nbytes(x, w)

    return dict(m=m, n=n, k=k, layout="linear", bias=False, scale="row" if by_row else "tensor", fast_accum=fast), make


add("linear", "fwd", ("fp8",), 130, linear_fp8)


# --- elementwise ---

def elements(small):
    if small:
        return RND.logi(1, 4096)
    if RND.flip(.4):
        n = RND.pick(1, 8, 16, 32, 64, 128) * RND.pick(64 * 112 * 112, 256 * 56 * 56, 128 * 28 * 28, 512 * 28 * 28, 1024 * 14 * 14, 512 * 7 * 7, 128 * 768, 128 * 3072, 512 * 4096, 1024 * 3072, 197 * 768, 50 * 2048)
        if n < 1 << 28:
            return n
    return RND.logi(1 << 12, 1 << 27)


def elementwise(name, call, inputs, small=False):
    """call(dt, x, y, ...) returns the callable; `inputs` tensors of n elements are made for it."""
    def gen(dt):
        n = elements(small)

        def make():
            xs = [rand(n, dt=dt) for _ in range(inputs)]
            return call(dt, *xs), nbytes(*xs) + nbytes(xs[0])

        return dict(n=n), make
    return gen


def with_out(fn):
    def call(dt, x, *rest):
        o = torch.empty_like(x)
        return lambda: fn(x, *rest, out=o)
    return call


def dropout_bwd(dt, g, x):
    mask = x > -1.2
    return lambda: aten.native_dropout_backward(g, mask, 1.0 / 0.9)


def masked(fn):
    def call(dt, x, *rest):
        mask = torch.rand(x.numel(), device=DEV) > .5
        return lambda: fn(mask, x, *rest)
    return call


def copy_into(dt, x):
    o = torch.empty_like(x)
    return lambda: o.copy_(x)


BACKWARD = {
    "gelu": lambda dt, g, x: lambda: aten.gelu_backward(g, x), "relu": lambda dt, g, y: lambda: aten.threshold_backward(g, y, 0), "silu": lambda dt, g, x: lambda: aten.silu_backward(g, x),
    "tanh": lambda dt, g, y: lambda: aten.tanh_backward(g, y), "sigmoid": lambda dt, g, y: lambda: aten.sigmoid_backward(g, y), "dropout": dropout_bwd,
    "leaky_relu": lambda dt, g, x: lambda: aten.leaky_relu_backward(g, x, .2, False), "relu6": lambda dt, g, x: lambda: aten.hardtanh_backward(g, x, 0, 6), "hardswish": lambda dt, g, x: lambda: aten.hardswish_backward(g, x),
}
for op, call in BACKWARD.items():
    add(op, "bwd", FLOATS, 26 if op not in ("leaky_relu", "relu6", "hardswish") else 14, elementwise(op, call, 2))
FORWARD = {
    "native_dropout": (1, lambda dt, x: lambda: aten.native_dropout(x, 0.1, True)), "pow": (1, lambda dt, x: lambda: torch.pow(x, 3.0)), "square": (1, lambda dt, x: lambda: torch.pow(x, 2)),
    "mul_scalar": (1, lambda dt, x: lambda: x * 0.5), "relu_inplace": (1, lambda dt, x: lambda: x.relu_()), "add_inplace": (2, lambda dt, x, y: lambda: x.add_(y)), "leaky_relu": (1, lambda dt, x: lambda: F.leaky_relu(x, .2)),
    "relu6": (1, lambda dt, x: lambda: F.hardtanh(x, 0., 6.)), "hardswish": (1, lambda dt, x: lambda: F.hardswish(x)), "fill": (1, lambda dt, x: lambda: x.zero_()), "where": (2, masked(torch.where)),
    "masked_fill": (1, masked(lambda m, x: x.masked_fill(m, 0.))), "exp": (1, lambda dt, x: lambda: torch.exp(x)), "sqrt": (1, lambda dt, x: lambda: torch.sqrt(x)),
}
for op, (inputs, call) in FORWARD.items():
    add(op, "fwd", FLOATS if op == "native_dropout" else ("bf16", "fp32"), 26 if op == "native_dropout" else 16, elementwise(op, call, inputs))
SMALL = {
    "add": (2, with_out(torch.add)), "mul": (2, with_out(torch.mul)), "relu": (1, lambda dt, x: lambda: torch.relu(x)), "copy": (1, copy_into), "add_scalar": (1, lambda dt, x: lambda: x + 1.0),
    "mul_scalar": (1, lambda dt, x: lambda: x * 0.5), "tanh": (1, lambda dt, x: lambda: torch.tanh(x)), "sqrt": (1, lambda dt, x: lambda: torch.sqrt(x)), "fill": (1, lambda dt, x: lambda: x.zero_()), "gelu": (1, lambda dt, x: lambda: F.gelu(x)),
}
for op, (inputs, call) in SMALL.items():
    add(op, "fwd", ("bf16", "fp32"), 8, elementwise(op, call, inputs, small=True))


def cast(dt):
    n, to = elements(RND.flip(.25)), RND.choice([t for t in FLOATS if t != dt])

    def make():
        x = rand(n, dt=dt)
        return (lambda: x.to(DT[to])), nbytes(x) + n * 4

    return dict(n=n, to=to), make


add("cast", "fwd", FLOATS, 45, cast)


# --- rows of a matrix ---

def matrix(limit=2e8):
    if RND.flip():
        rows = RND.pick(16, 64, 128, 512, 2048, 4096, 8192, 16384) * RND.pick(1, 1, 50, 197) // RND.pick(1, 2)
        cols = RND.pick(197, 512, 768, 1000, 1024, 1280, 2048, 3072, 4096, 8192, 30522, 50257)
    else:
        rows, cols = RND.logi(4, 1 << 17), RND.logi(16, 32768)
    return (rows, cols) if 1 <= rows * cols <= limit else None


def rowwise(op, phase):
    def gen(dt):
        rc = matrix()
        if rc is None:
            return None
        rows, cols = rc

        def make():
            x = rand(rows, cols, dt=dt)
            if op == "rmsnorm":
                w = rand(cols, dt=dt)
                y, rstd = aten._fused_rms_norm(x, [cols], w, 1e-6)
                g = torch.randn_like(y)
                return (lambda: aten._fused_rms_norm_backward(g, x, [cols], rstd, w, [True, True])), 3 * nbytes(x)
            if op in ("softmax", "log_softmax"):
                y, g = getattr(torch, op)(x, -1), torch.randn_like(x)
                back = aten._softmax_backward_data if op == "softmax" else aten._log_softmax_backward_data
                return (lambda: back(g, y, -1, x.dtype)), 3 * nbytes(x)
            v, column = rand(cols, dt=dt), rand(rows, 1, dt=dt)
            f = {"sum_cols": lambda: x.sum([0], keepdim=True), "add_bias": lambda: x + v, "mul_row": lambda: x * v, "mul_col": lambda: x * column, "cumsum": lambda: torch.cumsum(x, -1), "mean": lambda: x.mean(-1, keepdim=True), "argmax": lambda: x.argmax(-1)}[op]
            return f, 2 * nbytes(x)

        return dict(rows=rows, cols=cols), make
    return gen


for op in ("softmax", "log_softmax", "rmsnorm"):
    add(op, "bwd", FLOATS, 36, rowwise(op, "bwd"))
add("sum_cols", "fwd", FLOATS, 45, rowwise("sum_cols", "fwd"))
add("add_bias", "fwd", FLOATS, 28, rowwise("add_bias", "fwd"))
for op, rows in (("mul_row", 16), ("mul_col", 20), ("cumsum", 20), ("mean", 24), ("argmax", 12)):
    add(op, "fwd", ("bf16", "fp32"), rows, rowwise(op, "fwd"))


def layer_norm_bwd(dt):
    rc = matrix()
    if rc is None:
        return None
    rows, cols = rc

    def make():
        x, w, bias = rand(rows, cols, dt=dt), rand(cols, dt=dt), rand(cols, dt=dt)
        y, mean, rstd = aten.native_layer_norm(x, [cols], w, bias, 1e-5)
        g = torch.randn_like(y)
        return (lambda: aten.native_layer_norm_backward(g, x, [cols], mean, rstd, w, bias, [True, True, True])), 3 * nbytes(x)

    return dict(rows=rows, cols=cols), make


add("layernorm", "bwd", ("fp32", "bf16"), 20, layer_norm_bwd)


# --- images ---

def image(limit=2e8):
    if RND.flip():
        c, hw = RND.pick((64, 112), (64, 56), (256, 56), (128, 28), (512, 28), (256, 14), (1024, 14), (512, 7), (2048, 7), (64, 224), (128, 112), (192, 35), (288, 35), (768, 17), (1280, 8), (2048, 8), (96, 56), (192, 28), (384, 14), (32, 112), (144, 56), (960, 7), (64, 32), (128, 16), (256, 8))
        b = RND.pick(1, 8, 16, 32, 64, 128, 256)
    else:
        b, c, hw = RND.logi(1, 256), RND.logi(8, 2048, RND.pick(1, 8)), RND.logi(4, 128)
    return (b, c, hw) if b * c * hw * hw <= limit else None


def spatial(op, phase, native=False):
    def gen(dt):
        bchw = image()
        if bchw is None:
            return None
        b, c, hw = bchw
        cl = dt != "fp32" and RND.flip(.4 if native else .5)
        shape = dict(b=b, c=c, hw=hw, channels_last=cl)
        k, st, pad = (3, 2, 1) if RND.flip(.6) else RND.pick((2, 2, 0), (3, 1, 1), (3, 2, 0))
        if op in ("maxpool", "avgpool"):
            shape.update(k=k, stride=st, pad=pad)
        if native:
            shape["native"] = True

        def make():
            x = rand(b, c, hw, hw, dt=dt).contiguous(memory_format=layout(cl))
            w, bias, mean, var = torch.ones(c, device=DEV), torch.zeros(c, device=DEV), torch.zeros(c, device=DEV), torch.ones(c, device=DEV)
            if op == "batchnorm":
                if phase == "fwd":
                    if native:
                        return (lambda: aten.native_batch_norm(x, w, bias, mean, var, True, .1, 1e-5)), 2 * nbytes(x)
                    return (lambda: F.batch_norm(x, mean, var, w, bias, True)), 2 * nbytes(x)
                if native:
                    y, sm, si = aten.native_batch_norm(x, w, bias, mean, var, True, .1, 1e-5)
                    g = torch.randn_like(y)
                    return (lambda: aten.native_batch_norm_backward(g, x, w, mean, var, sm, si, True, 1e-5, [True, True, True])), 3 * nbytes(x)
                y, sm, sv, reserve = aten.cudnn_batch_norm(x, w, bias, mean, var, True, .1, 1e-5)
                g = torch.randn_like(y)
                return (lambda: aten.cudnn_batch_norm_backward(x, g, w, mean, var, sm, sv, 1e-5, reserve)), 3 * nbytes(x)
            if op == "maxpool":
                if phase == "fwd":
                    return (lambda: F.max_pool2d(x, k, st, pad)), 2 * nbytes(x)
                y, index = aten.max_pool2d_with_indices(x, [k, k], [st, st], [pad, pad])
                g = torch.randn_like(y)
                return (lambda: aten.max_pool2d_with_indices_backward(g, x, [k, k], [st, st], [pad, pad], [1, 1], False, index)), 2 * nbytes(x) + nbytes(g, index)
            if op == "avgpool":
                if phase == "fwd":
                    return (lambda: F.avg_pool2d(x, k, st, pad)), 2 * nbytes(x)
                g = torch.randn_like(F.avg_pool2d(x, k, st, pad))
                return (lambda: aten.avg_pool2d_backward(g, x, [k, k], [st, st], [pad, pad], False, True, None)), 2 * nbytes(x) + nbytes(g)
            if phase == "fwd":
                return (lambda: F.adaptive_avg_pool2d(x, 1)), 2 * nbytes(x)
            g = rand(b, c, 1, 1, dt=dt)
            return (lambda: g.expand(b, c, hw, hw) / (hw * hw)), 2 * nbytes(x)

        return shape, make
    return gen


for op in ("maxpool", "avgpool", "gap"):
    add(op, "fwd", FLOATS, 52, spatial(op, "fwd"))
    add(op, "bwd", FLOATS, 36 if op != "gap" else 22, spatial(op, "bwd"))
add("batchnorm", "fwd", FLOATS, 55, spatial("batchnorm", "fwd"))
add("batchnorm", "bwd", ("fp32", "fp16"), 75, spatial("batchnorm", "bwd"))
for phase in ("fwd", "bwd"):
    add("batchnorm", phase, ("bf16",), 100, spatial("batchnorm", phase, native=True))
    add("batchnorm", phase, ("fp16", "fp32"), 16, spatial("batchnorm", phase, native=True))


def group_norm(phase):
    def gen(dt):
        bchw = image()
        if bchw is None:
            return None
        b, c, hw = bchw
        groups = RND.pick(8, 16, 32, 32, 1)
        if c % groups:
            return None

        def make():
            x, w, bias = rand(b, c, hw, hw, dt=dt), rand(c, dt=dt), rand(c, dt=dt)
            if phase == "fwd":
                return (lambda: F.group_norm(x, groups, w, bias)), 2 * nbytes(x)
            y, mean, rstd = aten.native_group_norm(x, w, bias, b, c, hw * hw, groups, 1e-5)
            g = torch.randn_like(y)
            return (lambda: aten.native_group_norm_backward(g, x, mean, rstd, w, b, c, hw * hw, groups, [True, True, True])), 3 * nbytes(x)

        return dict(b=b, c=c, hw=hw, groups=groups), make
    return gen


add("groupnorm", "fwd", FLOATS, 28, group_norm("fwd"))
add("groupnorm", "bwd", FLOATS, 28, group_norm("bwd"))


def cat_channels(dt):
    b, hw, parts, cl = RND.pick(1, 8, 16, 32, 64, 128), RND.pick(7, 8, 14, 17, 28, 35, 56, RND.logi(4, 112)), RND.pick(2, 2, 3, 4, 6, 8, 16, 24), dt != "fp32" and RND.flip()
    cs = [RND.pick(32, 32, 64, 96, 128, 192, 256)] * parts if RND.flip() else [RND.logi(8, 512, 8) for _ in range(parts)]
    if b * sum(cs) * hw * hw > 2e8:
        return None

    def make():
        xs = [rand(b, c, hw, hw, dt=dt).contiguous(memory_format=layout(cl)) for c in cs]
        return (lambda: torch.cat(xs, 1)), 2 * nbytes(*xs)

    return dict(b=b, c=cs, hw=hw, channels_last=cl), make


def interpolate(dt):
    b, c, hw, scale, mode = RND.pick(1, 2, 4, 8, 16, 32), RND.pick(3, 21, 64, 128, 256, 512), RND.logi(7, 128), RND.pick(2, 2, 4, 8), RND.pick("nearest", "bilinear")
    if b * c * hw * hw * scale * scale > 2e8:
        return None

    def make():
        x = rand(b, c, hw, hw, dt=dt)
        return (lambda: F.interpolate(x, scale_factor=scale, mode=mode, align_corners=None if mode == "nearest" else False)), nbytes(x) * (1 + scale * scale)

    return dict(b=b, c=c, hw=hw, scale=scale, mode=mode), make


def boxes_of(n, size):
    xy = torch.rand(n, 2, device=DEV) * size * .8
    return torch.cat([xy, xy + 1 + torch.rand(n, 2, device=DEV) * size * .2], 1)


def roi_align(dt):
    import torchvision
    b, c, hw, rois, out = RND.pick(1, 2, 4), RND.pick(64, 256, 256, 512), RND.pick(25, 50, 100, 200), RND.logi(16, 2048), RND.pick(7, 14)
    if rois * c * out * out > 2e8:
        return None

    def make():
        x, boxes = rand(b, c, hw, hw, dt=dt), torch.cat([ints(b, rois, 1).float(), boxes_of(rois, hw)], 1).to(DT[dt])
        return (lambda: torchvision.ops.roi_align(x, boxes, out, 1.0, 2, True)), nbytes(x, boxes)

    return dict(b=b, c=c, hw=hw, rois=rois, out=out, sampling=2), make


def nms(dt):
    import torchvision
    n = RND.logi(16, 8192)

    def make():
        boxes, scores = boxes_of(n, 800.), torch.rand(n, device=DEV)
        return (lambda: torchvision.ops.nms(boxes, scores, .5)), nbytes(boxes, scores)

    return dict(n=n), make


def to_channels_last(dt):
    bchw = image()
    if bchw is None:
        return None
    b, c, hw = bchw
    back = RND.flip()

    def make():
        x = rand(b, c, hw, hw, dt=dt).contiguous(memory_format=layout(back))
        return (lambda: x.contiguous(memory_format=layout(not back))), 2 * nbytes(x)

    return dict(b=b, c=c, hw=hw, to="nchw" if back else "nhwc"), make


def permute_copy(dt):
    b, s, h, d = RND.pick(1, 4, 8, 16, 32, 64, RND.logi(1, 256)), RND.pick(49, 50, 128, 197, 512, 1024, 2048, RND.logi(16, 4096)), RND.pick(3, 6, 8, 12, 16, 20, 32), RND.pick(32, 64, 64, 128, 80)
    if b * s * h * d > 2e8:
        return None

    def make():
        x = rand(b, s, h, d, dt=dt)
        return (lambda: x.permute(0, 2, 1, 3).contiguous()), 2 * nbytes(x)

    return dict(b=b, s=s, h=h, d=d), make


def roll(dt):
    b, hw, c = RND.pick(1, 8, 16, 32, 64, 128), RND.pick(7, 14, 28, 56), RND.pick(96, 192, 384, 768)
    if b * hw * hw * c > 2e8:
        return None

    def make():
        x = rand(b, hw, hw, c, dt=dt)
        return (lambda: torch.roll(x, (-3, -3), (1, 2))), 2 * nbytes(x)

    return dict(b=b, hw=hw, c=c), make


add("cat_channels", "fwd", ("bf16", "fp32"), 45, cat_channels)
add("interpolate", "fwd", ("bf16", "fp32"), 24, interpolate)
add("roi_align", "fwd", ("fp32",), 24, roi_align)
add("nms", "fwd", ("fp32",), 14, nms)
add("to_channels_last", "fwd", ("bf16", "fp32"), 30, to_channels_last)
add("permute_copy", "fwd", ("bf16", "fp32"), 36, permute_copy)
add("roll", "fwd", ("bf16", "fp32"), 12, roll)


# --- tables, loss, optimizers ---

def table(phase):
    def gen(dt):
        v, d, n = RND.pick(2, 512, 1024, 30522, 32000, 32317, 50257, 128256, RND.logi(100, 200000)), RND.pick(256, 512, 768, 1024, 1280, 2048, RND.logi(16, 4096, 8)), RND.pick(800, 2048, 4096, 8192, RND.logi(16, 65536))
        if v * d > 4e8 or n * d > 1e8:
            return None

        def make():
            index = ints(v, n)
            if phase == "fwd":
                w = rand(v, d, dt=dt)
                return (lambda: torch.index_select(w, 0, index)), nbytes(w)
            g = rand(n, d, dt=dt)
            return (lambda: aten.embedding_dense_backward(g, index, v, -1, False)), nbytes(g) + v * d * g.element_size()

        return dict(v=v, d=d, n=n), make
    return gen


def cross_entropy(phase):
    def gen(dt):
        v, n = RND.pick(1000, 10, 100, 21, 30522, 32000, 32317, 50257, 128256, RND.logi(10, 150000)), RND.pick(16, 32, 64, 128, 256, 2048, 4096, 8192, RND.logi(8, 16384), RND.logi(8, 16384))
        if v * n > 3e8:
            return None

        def make():
            x, t = rand(n, v, dt=dt), ints(v, n)
            if phase == "fwd":
                return (lambda: F.cross_entropy(x, t)), nbytes(x)
            ls = torch.log_softmax(x, 1)
            _, weight = aten.nll_loss_forward(ls, t, None, 1, -100)
            g = torch.ones((), device=DEV, dtype=DT[dt])
            return (lambda: aten._log_softmax_backward_data(aten.nll_loss_backward(g, ls, t, None, 1, -100, weight), ls, 1, ls.dtype)), 2 * nbytes(x)

        return dict(n=n, v=v), make
    return gen


add("embedding", "bwd", ("bf16", "fp32"), 40, table("bwd"))
add("index_select", "fwd", ("bf16", "fp32"), 20, table("fwd"))
add("cross_entropy", "fwd", ("bf16", "fp32"), 80, cross_entropy("fwd"))
add("cross_entropy", "bwd", ("bf16", "fp32"), 55, cross_entropy("bwd"))


def optimizer(kind):
    def gen(dt):
        parts = 1 if kind == "adam_single" else RND.pick(1, 4, 16, 60, 160, 320, RND.logi(1, 400))
        n = RND.logi(1, 1 << 27) if kind == "adam_single" else RND.pick(RND.logi(1 << 14, 1 << 27), RND.logi(1 << 20, 1 << 27))
        shape = dict(n=n) if kind == "adam_single" else dict(n=n, parts=parts)

        def make():
            ps = [torch.randn(max(1, n // parts), device=DEV) for _ in range(parts)]
            gs = [torch.randn_like(p) for p in ps]
            if kind == "sgd_foreach":
                bufs = [torch.randn_like(p) for p in ps]
                return (lambda: sgd(ps, gs, bufs, has_sparse_grad=False, foreach=True, weight_decay=0, momentum=.9, lr=.01, dampening=0, nesterov=False, maximize=False)), 12 * n
            m, v, steps = [torch.zeros_like(p) for p in ps], [torch.zeros_like(p) for p in ps], [torch.tensor(1.) for _ in ps]
            return (lambda: adam(ps, gs, m, v, [], steps, foreach=kind == "adam_foreach", capturable=False, differentiable=False, fused=False, has_complex=False, amsgrad=False, beta1=.9, beta2=.999,
                                 lr=1e-3, weight_decay=0, eps=1e-8, maximize=False)), 16 * n

        return shape, make
    return gen


for op, rows in (("adam_single", 70), ("adam_foreach", 55), ("sgd_foreach", 60)):
    add(op, "fwd", ("fp32",), rows, optimizer(op))


def schedule(cases, selftest):
    """Indices of the cases, each as often as it wants rows, spread evenly; then the same again, without end."""
    if selftest:
        yield from range(len(cases))
        return
    while True:
        slots = [((i + RND.random()) / c[3], k) for k, c in enumerate(cases) for i in range(c[3])]
        yield from (k for _, k in sorted(slots))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--seed", default="0")
    ap.add_argument("--only", default="")
    ap.add_argument("--selftest", action="store_true")
    a = ap.parse_args()
    warnings.filterwarnings("ignore")
    RND.seed("preflop-ops-" + a.seed)
    torch.manual_seed(20261115)
    cases = [c for c in CASES if not a.only or c[0] in a.only.split(",")]
    clock, table_, failed = Clock(a.seconds), Table(a.out, ["op", "phase", "dtype", "shape", "gpu_us", "copies"]), {}
    print(len(cases), "cases,", sum(c[3] for c in cases), "rows wanted", flush=True)
    for turn, k in enumerate(schedule(cases, a.selftest)):
        if clock.over():
            break
        op, phase, dt, _, gen = cases[k]
        if failed.get(k, 0) >= 4:
            continue
        drawn = None
        while drawn is None:
            drawn = gen()
        shape, make = drawn
        allow_tf32(dt == "tf32")
        try:
            us, copies = time_calls(make, capture=op not in NO_CAPTURE)
            table_.row([op, phase, dt, shape, f"{us:.3f}", copies])
        except Exception as e:
            failed[k] = failed.get(k, 0) + 1
            recover(e, op, phase, dt, shape)
        del make, drawn
        if GPU and turn % 50 == 49:
            torch.cuda.empty_cache()
        clock.progress(table_.rows, "rows, at", op, phase, dt)
    print("measured", table_.rows, "skipped", sum(failed.values()), "given up", [cases[k][:3] for k, n in failed.items() if n >= 4], flush=True)


if __name__ == "__main__":
    main()
