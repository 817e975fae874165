"""Measures iterations under options on a GPU, in the form that `check_options.py` reads: autotuned convolutions in fp32 and TF32, checkpointed networks.

    python python/bench/measure_options.py OUT.csv [SECONDS]        on a machine with a GPU; stops before SECONDS (300) are over

Busy time and kernels come from PyTorch's profiler, times are medians of nine iterations, `full` checkpoints as `--checkpoint full` means them.
"""

from __future__ import annotations

import csv
import functools
import gc
import sys
import time
from typing import Callable

import torch
import torchvision
from torch.utils.checkpoint import checkpoint

from preflop._capture import _blocks

MODELS = {"resnet50": 64, "mobilenet_v2": 128, "vgg16": 32, "densenet121": 32, "vit_b_16": 64, "convnext_tiny": 64}
OPTIONS = ("eager", "cudnn_benchmark", "channels_last", "channels_last+cudnn_benchmark", "checkpointing")
FIELDS = "model,batch,size,precision,options,iter_ms,gpu_busy_ms,kernels,peak_mem_mib,first_call_s".split(",")


def step_of(name: str, precision: str, options: list[str]) -> Callable[[], None]:
    torch.backends.cudnn.benchmark = "cudnn_benchmark" in options
    torch.backends.cudnn.allow_tf32 = precision == "pytorch"
    torch.backends.cuda.matmul.allow_tf32 = False
    model = torchvision.models.get_model(name, weights=None).cuda().train()
    images = torch.randn(MODELS[name], 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (MODELS[name],), device="cuda")
    if "channels_last" in options:
        model, images = model.to(memory_format=torch.channels_last), images.contiguous(memory_format=torch.channels_last)
    if "checkpointing" in options:
        for block in _blocks(model):
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp"):
            loss = torch.nn.functional.cross_entropy(model(images).float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measured(step: Callable[[], None]) -> list[str]:
    start = time.time()
    step()
    torch.cuda.synchronize()
    first = time.time() - start
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(9):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    memory = torch.cuda.max_memory_allocated() / 2**20
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(e.device_time_total for e in events) / 1e3
    return [f"{sorted(times)[4]:.3f}", f"{busy:.3f}", str(len(events)), f"{memory:.0f}", f"{first:.1f}"]


def main() -> int:
    end = time.time() + float(sys.argv[2] if len(sys.argv) > 2 else 300)
    with open(sys.argv[1], "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(FIELDS)
        for precision in ("pytorch", "fp32", "amp"):
            for name, batch in MODELS.items():
                # Autocast was measured with every option but checkpoints.
                for option in OPTIONS if precision != "amp" else ("eager", "checkpointing"):
                    if time.time() > end:
                        print("time is over")
                        return 0
                    rows.writerow([name, batch, 224, precision, option, *measured(step_of(name, precision, option.split("+")))])
                    file.flush()
                    gc.collect()
                    torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
