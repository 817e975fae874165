"""What activation checkpointing costs the host, in linear layers of a module: for each tensor saved, and for each segment.

    python python/bench/measure_checkpoint.py

Runs on the CPU with tiny tensors, so that next to nothing but the host's work is timed. The least of many repetitions counts.
"""

from __future__ import annotations

import time
from typing import Callable

import torch
from torch.utils.checkpoint import checkpoint

SEGMENTS = 12
REPEATS = 60


class Chain(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def least(run: Callable[[], None]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times)


def extra(layers: int) -> tuple[float, float]:
    """Seconds that checkpoints add to forward twice and backward, and seconds of one layer's forward."""
    blocks = torch.nn.ModuleList(Chain(layers) for _ in range(SEGMENTS))
    x = torch.randn(2, 4, requires_grad=True)

    def forward(again: bool) -> torch.Tensor:
        y = x
        for block in blocks:
            y = checkpoint(block, y, use_reentrant=False) if again else block(y)
        return y

    once = least(lambda: forward(False))
    eager = least(lambda: forward(False).sum().backward())
    both = least(lambda: forward(True).sum().backward())
    return both - eager - once, once / (SEGMENTS * layers)


def main() -> None:
    torch.set_num_threads(1)
    few, many = 5, 40
    (short, _), (long, layer) = extra(few), extra(many)
    # A linear layer saves two tensors: what goes in and the weight.
    saved = (long - short) / (2 * SEGMENTS * (many - few))
    segment = short / SEGMENTS - 2 * few * saved
    print(f"a linear layer in a module: {1e6 * layer:.1f} us")
    print(f"each saved tensor: {1e6 * saved:.1f} us, {saved / layer:.1f} layers; each segment: {1e6 * segment:.0f} us, {segment / layer:.0f} layers")


if __name__ == "__main__":
    main()
