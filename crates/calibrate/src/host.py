"""Times what the host does between kernels, for `preflop host`: operators, module calls, plain Python. Takes about a second.

Prints one JSON object: per kind the best and the median round in microseconds. Nothing runs on a GPU: the cost of
dispatching an operator is what a CPU tensor of eight elements costs.
"""
import json
import platform
import sys
import time

try:
    import torch
except ImportError as error:
    print(json.dumps({"failed": f"this Python has no PyTorch ({error})"}), flush=True)
    sys.exit(0)

ROUNDS = 12


class Identity(torch.nn.Module):
    def forward(self, x):
        return x


def add(count, x=torch.zeros(8)):
    for _ in range(count):
        x.add_(1.0)


def module(count, call=Identity(), x=torch.zeros(8)):
    for _ in range(count):
        call(x)


def loop(count):
    total = 0
    for i in range(count):
        total += i & 3
    return total


def rounds(work, count):
    """Microseconds of one pass: the best round and the median one."""
    work(count // 4)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work(count)
        times.append((time.perf_counter() - start) / count * 1e6)
    times.sort()
    return {"best_us": times[0], "median_us": times[len(times) // 2]}


torch.set_num_threads(1)
with torch.no_grad():
    said = {"operator": rounds(add, 8000), "module_call": rounds(module, 8000), "python": rounds(loop, 60000)}
print(json.dumps({**said, "torch": str(torch.__version__), "version": platform.python_version(), "processor": platform.machine()}), flush=True)
