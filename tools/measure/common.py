"""Shared parts of the measurement scripts: timing, random shapes, and CSV output that survives a kill.

The GPU time of a call is its share of a CUDA graph that repeats the call on rotating copies of its inputs, so that
the inputs together exceed the L2 cache; the median of several replays counts. No profiler runs in a timing process.
With PREFLOP_DEVICE=cpu nothing is timed: every call runs once, which checks a script where there is no GPU.
"""
import csv
import json
import math
import os
import random
import sys
import time

import torch

DEV = os.environ.get("PREFLOP_DEVICE", "cuda")
GPU = DEV == "cuda"
DT = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
L2 = torch.cuda.get_device_properties(0).L2_cache_size if GPU else 60 << 20
STREAM = torch.cuda.Stream() if GPU else None


class Draw(random.Random):
    """A random generator with the draws the shape generators need."""

    def pick(self, *options):
        return self.choice(options)

    def logi(self, low, high, multiple=1):
        v = math.exp(self.uniform(math.log(low), math.log(high)))
        return max(multiple, int(round(v / multiple)) * multiple)

    def flip(self, p=0.5):
        return self.random() < p


_pools = {}
POOL_ELEMENTS = 1 << 30


def rand(*shape, dt="bf16"):
    """Random numbers of a shape: the next stretch of a large pool, since drawing them anew takes longer than timing them."""
    kind, n = DT[dt], math.prod(shape)
    if not GPU or n > POOL_ELEMENTS // 8:
        return torch.randn(*shape, device=DEV, dtype=torch.float32).to(kind)
    pool, at = _pools.get(kind) or (torch.randn(POOL_ELEMENTS, device=DEV, dtype=kind), 0)
    if at + n > POOL_ELEMENTS:
        at = 0
    _pools[kind] = pool, (at + n + 255) // 256 * 256
    return pool[at:at + n].view(shape)


def nbytes(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def allow_tf32(on):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = on


def replay_ms(run):
    a, b = torch.cuda.Event(True), torch.cuda.Event(True)
    a.record()
    run()
    b.record()
    torch.cuda.synchronize()
    return a.elapsed_time(b)


def captured(calls):
    """A CUDA graph of the calls. The context manager of torch would empty all caches every time."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(STREAM):
        graph.capture_begin()
        calls()
        graph.capture_end()
    return graph


def time_calls(make, span_ms=3.0, most=64, replays=7, long_ms=20.0, capture=True, slow_ms=math.inf):
    """Microseconds of GPU time per call, and the number of input copies.

    make() returns a callable with inputs of its own, and the bytes of those inputs. The graph holds about span_ms of
    calls, at most `most`. capture=False times a plain loop instead, for calls that wait for the GPU. Calls slower than slow_ms have one copy.
    """
    if not GPU:
        f, _ = make()
        f()
        return 1.0, 1
    STREAM.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(STREAM):
        first, size = make()
        copies = 1 if size > L2 else min(8, int(2 * L2 / max(size, 1)) + 1)
        calls = [first] + [make()[0] for _ in range(copies - 1)]
        for f in calls[:2]:
            f()
        torch.cuda.synchronize()
        est = max(min(replay_ms(calls[0]) for _ in range(2)), 1e-3)
    if est > slow_ms:
        calls, copies = calls[:1], 1
    n = max(len(calls), min(most, int(span_ms / est)))
    n = n // len(calls) * len(calls)

    def all_calls():
        for i in range(n):
            calls[i % len(calls)]()

    if capture:
        run = captured(all_calls).replay
    else:
        run = all_calls
    run()
    torch.cuda.synchronize()
    times = sorted(replay_ms(run) for _ in range(replays if est < long_ms else 3))
    return times[len(times) // 2] / n * 1e3, copies


class Table:
    """A CSV file whose rows reach the disk as they come."""

    def __init__(self, path, columns):
        self.file = open(path, "w", newline="")
        self.writer = csv.writer(self.file)
        self.rows = 0
        self.row(columns)
        self.rows = 0

    def row(self, values):
        self.writer.writerow([json.dumps(v) if isinstance(v, dict) else v for v in values])
        self.file.flush()
        self.rows += 1


def recover(error, *what):
    """Reports a failed row and leaves the device usable for the next; ends the process where that cannot be."""
    print("skip", *what, type(error).__name__, str(error).replace("\n", " ")[:200], file=sys.stderr, flush=True)
    if GPU:
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as dead:
            sys.exit(f"the device is lost: {str(dead)[:200]}")


class Clock:
    """A time limit with progress lines."""

    def __init__(self, seconds):
        self.start = self.last = time.time()
        self.end = self.start + seconds

    def over(self):
        return time.time() > self.end

    def progress(self, *what):
        if time.time() - self.last > 20:
            self.last = time.time()
            print(f"{self.last - self.start:6.0f} s", *what, flush=True)
