#!/usr/bin/env python3
"""Times operators where the sweeps before it had no rows: many short rows, optimizers in 16 bit, attention of narrow heads, norms over lines with
stored statistics, attention with learned masks, products of experts. Ways and options are those of ops_extra.py.

usage: gaps.py OUT.csv [--seconds S] [--seed TEXT] [--only OP[,OP...]] [--selftest]

What ops_extra.py cannot time as a row of the operator tables is printed by `gaps.py --probe`: which kernels attention runs whose mask needs a gradient, and
grouped products beside products of the same sizes.
"""
import sys

import torch
import torch.nn.functional as F
from torch.optim.adam import adam
from torch.optim.sgd import sgd

import ops_extra
from common import DEV, DT, GPU, nbytes, rand, time_calls
from ops_extra import FLOATS, HALF, RND, add

aten = torch.ops.aten
ops_extra.CASES.clear()


def short_rows(op, phase):
    """Rows of few columns, as many as images have places or edges a graph."""
    def gen(dt):
        cols = RND.pick(16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, RND.logi(4, 512, 4), RND.logi(3, 300))
        rows = RND.logi(1024, 1 << 22)
        if rows * cols > 1 << 27:
            return None

        def make():
            x, w, b = rand(rows, cols, dt=dt), rand(cols, dt=dt), rand(cols, dt=dt)
            if phase == "fwd":
                f = {"softmax": lambda: torch.softmax(x, -1), "log_softmax": lambda: torch.log_softmax(x, -1), "layernorm": lambda: F.layer_norm(x, (cols,), w, b), "rmsnorm": lambda: F.rms_norm(x, (cols,), w), "sum": lambda: x.sum(-1)}[op]
                return f, 2 * nbytes(x)
            if op in ("softmax", "log_softmax"):
                y, g = getattr(torch, op)(x, -1), torch.randn_like(x)
                back = aten._softmax_backward_data if op == "softmax" else aten._log_softmax_backward_data
                return (lambda: back(g, y, -1, x.dtype)), 3 * nbytes(x)
            if op == "rmsnorm":
                y, rstd = aten._fused_rms_norm(x, [cols], w, None)
                g = torch.randn_like(y)
                return (lambda: aten._fused_rms_norm_backward(g, x, [cols], rstd, w, [True, True])), 3 * nbytes(x)
            y, mean, rstd = aten.native_layer_norm(x, [cols], w, b, 1e-5)
            g = torch.randn_like(y)
            return (lambda: aten.native_layer_norm_backward(g, x, [cols], mean, rstd, w, b, [True, True, True])), 3 * nbytes(x)

        return dict(rows=rows, cols=cols), make
    return gen


for op in ("layernorm", "rmsnorm", "softmax", "log_softmax"):
    for phase in ("fwd", "bwd"):
        add(op, phase, FLOATS, 40 if op.endswith("norm") else 25, short_rows(op, phase))
add("sum", "fwd", FLOATS, 40, short_rows("sum", "fwd"))


def optimizer(kind):
    def gen(dt):
        parts = 1 if kind == "adam_single" else RND.pick(1, 4, 16, 60, 160, 320, RND.logi(1, 400))
        n = RND.logi(1, 1 << 28) if kind == "adam_single" else RND.pick(RND.logi(1 << 14, 1 << 28), RND.logi(1 << 20, 1 << 29))
        shape = dict(n=n) if kind == "adam_single" else dict(n=n, parts=parts)

        def make():
            new = lambda: [torch.ones(max(1, n // parts), device=DEV, dtype=DT[dt]) for _ in range(parts)]  # noqa: E731
            ps, gs = new(), new()
            if kind == "foreach_mul":
                return (lambda: torch._foreach_mul_(ps, .99)), 2 * n
            if kind == "foreach_norm":
                return (lambda: torch._foreach_norm(ps, 2.)), 2 * n
            if kind == "sgd_plain":
                return (lambda: torch._foreach_add_(ps, gs, alpha=-.01)), 4 * n
            m = new()
            if kind == "sgd_foreach":
                return (lambda: sgd(ps, gs, m, has_sparse_grad=False, foreach=True, weight_decay=0, momentum=.9, lr=.01, dampening=0, nesterov=False, maximize=False)), 6 * n
            v, steps = new(), [torch.ones((), device=DEV if kind == "adam" else "cpu") for _ in ps]
            if kind == "adam":
                return (lambda: torch._fused_adamw_(ps, gs, m, v, [], steps, lr=1e-3, beta1=.9, beta2=.999, weight_decay=.01, eps=1e-8, amsgrad=False, maximize=False)), 8 * n
            return (lambda: adam(ps, gs, m, v, [], steps, foreach=kind == "adam_foreach", capturable=False, differentiable=False, fused=False, has_complex=False, amsgrad=False, beta1=.9, beta2=.999,
                                 lr=1e-3, weight_decay=0, eps=1e-8, maximize=False)), 8 * n

        return shape, make
    return gen


for op, rows in (("adam", 45), ("adam_foreach", 45), ("adam_single", 40), ("sgd_foreach", 40), ("sgd_plain", 25), ("foreach_mul", 30), ("foreach_norm", 30)):
    add(op, "fwd", ("bf16",), rows, optimizer(op))
    add(op, "fwd", ("fp16",), rows // 3, optimizer(op))


def narrow_heads(phase):
    def gen(dt):
        b, h, s, d = RND.logi(1, 2048), RND.pick(1, 2, 4, 8, 12, 16, RND.logi(1, 32)), RND.pick(16, 49, 64, 144, 196, 256, 512, 1024, RND.logi(8, 2048)), RND.pick(8, 16, 16, 24, 32, 32, 40, 48)
        if b * h * s * d > 1 << 26 or b * h * s * s > 1 << 31:
            return None
        shape = dict(b=b, h=h, kv=h, s=s, d=d, causal=False, layout="bhsd", dropout=0, train=phase == "bwd")

        def make():
            q, k, v = (rand(b, h, s, d, dt=dt).requires_grad_(phase == "bwd") for _ in range(3))
            shape["backend"] = ops_extra.BACKENDS.get(torch._fused_sdp_choice(q, k, v, None, 0.0, False, scale=None, enable_gqa=False), "?")
            if phase == "fwd":
                return (lambda: F.scaled_dot_product_attention(q, k, v)), nbytes(q, k, v)
            out = F.scaled_dot_product_attention(q, k, v)
            node, grad = out.grad_fn, torch.randn_like(out)
            if "ScaledDotProduct" not in type(node).__name__:
                raise RuntimeError("not a fused attention: " + type(node).__name__)
            return (lambda: node(grad)), nbytes(q, k, v, out, grad)

        return shape, make
    return gen


for phase, rows in (("fwd", 60), ("bwd", 60)):
    add("sdpa", phase, ("bf16",), rows, narrow_heads(phase))
    add("sdpa", phase, ("fp16",), rows // 3, narrow_heads(phase))


def line_norm(op):
    """Batch norm of lines with stored or own statistics, as `BatchNorm1d` runs it."""
    def gen(dt):
        b, c, area = RND.pick(16, 64, 256, 1024, RND.logi(1, 4096)), RND.pick(32, 64, 128, 256, 512, RND.logi(4, 1024)), RND.pick(1, 16, 49, 63, 64, 100, 256, 1000, RND.logi(2, 20000))
        if b * c * area > 1 << 26:
            return None

        def make():
            x = rand(b, c, area, dt=dt) if area > 1 else rand(b, c, dt=dt)
            w, bias, mean, var = torch.ones(c, device=DEV), torch.zeros(c, device=DEV), torch.zeros(c, device=DEV), torch.ones(c, device=DEV)
            return (lambda: F.batch_norm(x, mean, var, w, bias, op == "batchnorm_line")), 2 * nbytes(x)

        return dict(b=b, c=c, area=area), make
    return gen


add("batchnorm_line_eval", "fwd", FLOATS, 50, line_norm("batchnorm_line_eval"))
add("batchnorm_line", "fwd", ("bf16", "fp32"), 30, line_norm("batchnorm_line"))


def learned_mask(phase):
    """Attention with a mask that gets a gradient: the memory-efficient kernel, whatever the format. Keys in eights, so that nothing is padded."""
    def gen(dt):
        b, h, s = RND.logi(1, 512), RND.pick(1, 2, 4, 8, 12, 16, 32), RND.pick(16, 49, 64, 144, 196, 256, 512, 1024, 4096, RND.logi(8, 4096))
        n, d = 8 * RND.pick(-(-s // 8), -(-s // 8), RND.logi(1, 512)), RND.pick(16, 32, 32, 64, 64, 64, 80, 96, 128)
        m = RND.pick(1, h, h, b * h)
        if b * h * s * n > 1 << 30 or m * s * n > 1 << 28 or b * h * max(s, n) * d > 1 << 27:
            return None

        def make():
            q, k, v = (rand(b, h, length, d, dt=dt).requires_grad_() for length in (s, n, n))
            mask = rand(b if m == b * h else 1, 1 if m == 1 else h, s, n, dt=dt).clone().requires_grad_()
            out = F.scaled_dot_product_attention(q, k, v, mask)
            node, grad = out.grad_fn, torch.randn_like(out)
            if "Efficient" not in type(node).__name__:
                raise RuntimeError("another attention: " + type(node).__name__)
            if phase == "fwd":
                return (lambda: F.scaled_dot_product_attention(q, k, v, mask)), nbytes(q, k, v, mask)
            return (lambda: node(grad)), nbytes(q, k, v, out, grad, mask)

        return dict(b=b, h=h, s=s, n=n, d=d, m=m), make
    return gen


for phase in ("fwd", "bwd"):
    add("sdpa_bias", phase, HALF, 40, learned_mask(phase))
    add("sdpa_bias", phase, ("fp32",), 25, learned_mask(phase))


def of_experts(by_sums):
    """One product for each group of rows, in one kernel; unevenly spread as a router spreads them, from even to all tokens to a few."""
    def gen(dt):
        g = RND.pick(2, 4, 8, 8, 16, 32, 64, 64, 128, 256)
        rows, k, n = RND.logi(g, 1 << 17), RND.pick(512, 768, 1024, 2048, 4096, RND.logi(64, 8192, 16)), RND.pick(512, 768, 1408, 2048, 2816, 4096, RND.logi(64, 16384, 16))
        if g * k * n > 1 << 31 or rows * max(k, n) > 1 << 29 or rows * k * n > 4e12:
            return None
        spread = RND.pick(0.0, .5, 1.0)

        def make():
            weights = torch.exp(spread * torch.randn(g, dtype=torch.float64))
            ends = torch.round(torch.cumsum(weights / weights.sum(), 0) * rows).to(torch.int32)
            if by_sums:
                ends = (ends + 7) // 8 * 8
            ends = ends.to(DEV)
            total = int(ends[-1])
            x = rand(total, k, dt=dt)
            if by_sums:
                y = rand(total, n, dt=dt)
                return (lambda: torch._grouped_mm(x.t(), y, offs=ends)), nbytes(x, y)
            w = rand(g, k, n, dt=dt)
            return (lambda: torch._grouped_mm(x, w, offs=ends)), nbytes(x, w)

        return dict(groups=g, m=k if by_sums else rows, n=n, k=rows if by_sums else k), make
    return gen


add("grouped_mm", "fwd", ("bf16",), 120, of_experts(False))
add("grouped_sums", "fwd", ("bf16",), 60, of_experts(True))


def probe():
    """Which kernels attention with a mask runs, and how long; grouped products beside products."""
    from torch.profiler import ProfilerActivity, profile

    def kernels(f):
        f()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            f()
            torch.cuda.synchronize()
        return "|".join(f"{e.name[:70]}:{e.device_time_total:.1f}" for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA)

    for dt in ("bf16", "fp32"):
        for b, h, s, kv, d in ((4, 8, 256, 256, 64), (4, 8, 196, 196, 64), (25, 12, 196, 196, 64), (1, 12, 1024, 1024, 64), (2, 4, 100, 77, 32), (8, 16, 512, 512, 128), (1, 12, 4096, 4096, 64)):
            for mask in ("none", "full", "heads", "row"):
                for needs in (False, True):
                    if mask == "none" and needs:
                        continue
                    try:
                        q, k, v = (rand(b, h, n, d, dt=dt).requires_grad_() for n in (s, kv, kv))
                        shape = {"full": (b, h, s, kv), "heads": (1, h, s, kv), "row": (b, 1, 1, kv)}.get(mask)
                        bias = None if shape is None else rand(*shape, dt=dt).clone().requires_grad_(needs)
                        run = lambda: F.scaled_dot_product_attention(q, k, v, bias)  # noqa: E731
                        out = run()
                        grad = torch.randn_like(out)
                        node = type(out.grad_fn).__name__
                        back = lambda: torch.autograd.grad(run(), [q, k, v, *([bias] if needs else [])], grad)  # noqa: E731
                        print("MASK", dt, (b, h, s, kv, d), mask, needs, node, kernels(run), "BACK", kernels(back), flush=True)
                    except Exception as error:
                        print("MASK", dt, (b, h, s, kv, d), mask, needs, type(error).__name__, str(error)[:120], flush=True)
                    torch.cuda.empty_cache()
    for dt in ("bf16", "fp32"):
        for groups, rows, k, n in ((8, 4096, 768, 4096), (8, 4096, 2048, 768), (8, 16384, 1024, 2816), (64, 8192, 1024, 512), (64, 32768, 2048, 1408), (128, 16384, 2048, 768), (8, 1024, 4096, 14336), (8, 65536, 4096, 1024), (32, 512, 1024, 1024), (16, 16384, 512, 512)):
            for even in (True, False):
                ends = torch.arange(1, groups + 1, device=DEV) * (rows // groups)
                if not even:
                    ends = torch.sort(torch.randint(0, rows, (groups,), device=DEV)).values
                    ends[-1] = rows
                ends = ends.to(torch.int32)

                def make():
                    x, w = rand(rows, k, dt=dt), rand(groups, k, n, dt=dt)
                    return (lambda: torch._grouped_mm(x, w, offs=ends)), nbytes(x, w)

                def back():
                    x, g = rand(rows, k, dt=dt), rand(rows, n, dt=dt)
                    return (lambda: torch._grouped_mm(x.t(), g, offs=ends)), nbytes(x, g)

                def single():
                    x, w = rand(groups, rows // groups, k, dt=dt), rand(groups, k, n, dt=dt)
                    return (lambda: torch.bmm(x, w)), nbytes(x, w)

                for what, made in (("grouped", make), ("by sums", back), ("batched", single)):
                    try:
                        us, _ = time_calls(made, capture=dt == "bf16" or what == "batched")
                        print("GROUPS", dt, (groups, rows, k, n), "even" if even else "uneven", what, f"{us:.1f}", kernels(made()[0])[:260], flush=True)
                    except Exception as error:
                        print("GROUPS", dt, (groups, rows, k, n), even, what, type(error).__name__, str(error)[:160], flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    if "--probe" in sys.argv:
        if not GPU:
            sys.exit("--probe needs a GPU")
        probe()
    else:
        ops_extra.main()
