"""Times the parts of a decode step with a static key-value cache: repeated heads, masked attention, stores, products.

usage: measure_decode.py OUT.csv [SECONDS]

Every part runs in a CUDA graph that rotates over copies larger than the L2; the names of its kernels come from a second, profiled run.
"""

import csv
import sys
import time

import torch

torch.set_grad_enabled(False)
END = time.time() + (float(sys.argv[2]) if len(sys.argv) > 2 else 120)
L2 = 60 << 20


def measure(make, call):
    """Microseconds of one call, and the kernels it launches."""
    first = make()
    size = sum(t.numel() * t.element_size() for t in first if isinstance(t, torch.Tensor))
    copies = [first] + [make() for _ in range(min(63, max(2, 3 * L2 // max(size, 1))))]
    for args in copies[:2]:
        call(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for args in copies:
            call(*args)
    times = []
    for _ in range(9):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(copies))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call(*first)
        torch.cuda.synchronize()
    kernels = [e.name[:90] for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return sorted(times[2:])[3], kernels


def half(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def repeated(x, n):
    b, k, s, d = x.shape
    return x[:, :, None].expand(b, k, n, s, d).reshape(b, k * n, s, d)


def parts(b, kv, heads, ctx, d):
    sdpa = torch.nn.functional.scaled_dot_product_attention
    mask = torch.ones(1, 1, 1, ctx, dtype=torch.bool, device="cuda").expand(b, 1, 1, ctx)
    yield "repeat", lambda: (half(b, kv, ctx, d),), lambda k: repeated(k, heads // kv)
    yield "masked", lambda: (half(b, heads, 1, d), half(b, heads, ctx, d), half(b, heads, ctx, d)), lambda q, k, v: sdpa(q, k, v, attn_mask=mask)
    yield "grouped", lambda: (half(b, heads, 1, d), half(b, kv, ctx, d), half(b, kv, ctx, d)), lambda q, k, v: sdpa(q, k, v, enable_gqa=True)
    yield "causal", lambda: (half(b, heads, ctx, d), half(b, kv, ctx, d), half(b, kv, ctx, d)), lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True)
    place = torch.tensor([ctx - 1], device="cuda")
    yield "store", lambda: (half(b, kv, ctx, d), half(b, kv, 1, d)), lambda c, x: c.index_copy_(2, place, x)
    yield "grow", lambda: (half(b, kv, ctx, d), half(b, kv, 1, d)), lambda c, x: torch.cat([c, x], dim=-2)


def main():
    with open(sys.argv[1], "w", newline="", buffering=1) as file:
        out = csv.writer(file)
        out.writerow("part,batch,kv_heads,heads,context,head_dim,n,k,us,kernels".split(","))
        for b, ctx in [(1, 136), (1, 2056), (1, 8200), (4, 520), (8, 2056), (16, 1032), (32, 520), (64, 520), (128, 264)]:
            for kv, heads, d in [(8, 32, 128), (8, 32, 64), (4, 28, 128), (32, 32, 128)]:
                for name, make, call in parts(b, kv, heads, ctx, d):
                    if name == "causal" and b * ctx > 16384:
                        continue
                    if time.time() > END:
                        return
                    us, kernels = measure(make, call)
                    out.writerow([name, b, kv, heads, ctx, d, "", "", f"{us:.3f}", "|".join(kernels)])
        for m in (1, 4, 8, 16, 32, 64, 128):
            for n, k in [(4096, 4096), (1024, 4096), (14336, 4096), (4096, 14336), (128256, 4096), (8192, 2048), (2048, 8192), (512, 2048)]:
                if time.time() > END:
                    return
                us, kernels = measure(lambda: (half(m, k), half(n, k)), torch.nn.functional.linear)
                out.writerow(["linear", m, "", "", "", "", n, k, f"{us:.3f}", "|".join(kernels)])


main()
