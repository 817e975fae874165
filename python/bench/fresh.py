"""Networks that no fit has seen: measured once on a GPU, after the model was frozen, and recorded and predicted without one.

    python python/bench/fresh.py measure OUT.csv [SECONDS] [more|third|fourth|fifth]   on a GPU: the first list, or that of fresh_more.py and so on
    python python/bench/fresh.py profile OUT.csv [SECONDS] [more|third|fourth|fifth]   on a GPU: what each operator took, with its kernels
    python python/bench/fresh.py predict IN.csv [GPU] [NAME]                     anywhere: records every case with preflop and prints how far off it is

`fresh.csv`, `fresh_more.csv`, `fresh_third.csv`, `fresh_fourth.csv` and `fresh_fifth.csv` beside it were measured on an H200 (PyTorch 2.11, transformers 5.17) for judging alone: no fit reads them. One line a case: name, precision, mode, iter_ms, gpu_busy_ms, kernels, peak_mem_mib. Precision is `amp` (bf16 autocast), `bf16` (all weights) or `default`, what PyTorch does when it is
not told otherwise (TF32 in convolutions, fp32 products). Training has PyTorch's default optimizer (AdamW for those that attend, SGD with momentum else), inference no gradients. `OUT_kernels.csv` has the kernels of each case by name. Iterations are
the median of nine after four, by the wall clock; busy time is the sum of the kernels' times in one more under the profiler, as in e2e.csv.
"""

from __future__ import annotations

import csv
import gc
import importlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable

import torch
from torch import nn

from fresh_parts import NETWORKS


ATTEND = ("roberta", "electra", "albert", "pythia", "bloom", "gemma", "qwen3", "phi", "bart", "whisper", "wav2vec2", "segformer", "dinov2", "swin", "maxvit", "diffusion", "mlp_mixer", "xlnet", "fnet", "longformer", "nystromformer", "cohere", "nemotron", "glm", "mixture", "pegasus", "hiera", "masked_autoencoder", "segment_anything", "wavlm")


def step_of(name: str, model: nn.Module, loss: Callable, precision: str, mode: str) -> Callable[[], None]:
    if precision == "bf16":
        model.bfloat16()
    if mode == "infer":
        model.eval()

        def infer() -> None:
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp"):
                loss(model)

        return infer
    model.train()
    parameters = model.parameters()
    optimizer = torch.optim.AdamW(parameters) if name.startswith(ATTEND) else torch.optim.SGD(parameters, 0.01, momentum=0.9)

    def train() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp"):
            value = loss(model)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return train


def busy(step: Callable[[], None]) -> tuple[float, list]:
    """Milliseconds of all kernels, and the kernels as (name, microseconds)."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    total = sum(e.device_time_total for e in events)
    return total / 1e3, [(e.name, e.device_time_total) for e in events]


def measured(step: Callable[[], None]) -> tuple[float, float, list, float]:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(9):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    peak = torch.cuda.max_memory_allocated() / 2**20
    return statistics.median(times), *busy(step), peak


def made(name: str) -> tuple:
    torch.manual_seed(0)
    with torch.device("cuda"):
        return NETWORKS[name][0]()


def measure(path: str, seconds: float) -> None:
    begin = time.time()
    with open(path, "w", newline="") as file, open(path.replace(".csv", "_kernels.csv"), "w", newline="") as names:
        out, each = csv.writer(file, lineterminator="\n"), csv.writer(names, lineterminator="\n")
        each.writerow("model,precision,mode,kernel,count,total_us".split(","))
        out.writerow("model,precision,mode,iter_ms,gpu_busy_ms,kernels,peak_mem_mib".split(","))
        busy(lambda: torch.ones(8, device="cuda") + 1)
        for name, (_, precisions) in NETWORKS.items():
            for precision in precisions:
                for mode in ("train", "infer"):
                    if time.time() - begin > seconds:
                        return
                    try:
                        model, loss = made(name)
                        ms, busy_ms, kernels, peak = measured(step_of(name, model, loss, precision, mode))
                        out.writerow([name, precision, mode, f"{ms:.3f}", f"{busy_ms:.3f}", len(kernels), f"{peak:.0f}"])
                        file.flush()
                        totals: dict[str, list[float]] = {}
                        for kernel, us in kernels:
                            total = totals.setdefault(kernel[:200], [0, 0.0])
                            total[0] += 1
                            total[1] += us
                        for kernel, (count, us) in sorted(totals.items(), key=lambda x: -x[1][1]):
                            each.writerow([name, precision, mode, kernel, count, f"{us:.1f}"])
                        names.flush()
                        print(f"{time.time() - begin:5.0f} s {name} {precision} {mode} {ms:.2f} ms", flush=True)
                    except Exception as error:  # one network must not end the list
                        print(f"{name} {precision} {mode}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                    model = loss = None
                    gc.collect()


def profile(path: str, seconds: float) -> None:
    """Writes what each operator of each network took, with the shapes of its inputs and its kernels."""
    begin = time.time()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with open(path, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow("model,precision,mode,operator,shapes,kernels,count,total_us".split(","))
        for name, (_, precisions) in NETWORKS.items():
            for precision, mode in ((p, m) for p in precisions for m in ("train", "infer")):
                if time.time() - begin > seconds:
                    return
                try:
                    step = step_of(name, *made(name), precision, mode)
                    step()
                    step()
                    torch.cuda.synchronize()
                    with torch.profiler.profile(activities=activities, record_shapes=True) as taken:
                        step()
                        torch.cuda.synchronize()
                    totals: dict[tuple, list[float]] = {}
                    for event in taken.events():
                        if event.kernels:
                            kernels = "|".join(k.name[:120] for k in event.kernels[:12])
                            total = totals.setdefault((event.name, str(event.input_shapes), kernels), [0, 0.0])
                            total[0] += 1
                            total[1] += sum(k.duration for k in event.kernels)
                    for key, (count, us) in sorted(totals.items(), key=lambda x: -x[1][1]):
                        out.writerow([name, precision, mode, *key, count, f"{us:.1f}"])
                    file.flush()
                    print(f"{time.time() - begin:5.0f} s {name} {precision} {mode}", flush=True)
                except Exception as error:  # one network must not end the list
                    print(f"{name} {precision} {mode}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                step = taken = None
                gc.collect()
                torch.cuda.empty_cache()


def report(row: dict[str, str], said: object, off: dict[str, list[float]]) -> None:
    """Prints one case and adds how far off it is."""
    kernels = said.to_dict()["kernels"]
    busy_ms, ms, memory = float(row["gpu_busy_ms"]), float(row["iter_ms"]), float(row["peak_mem_mib"])
    errors = [said.gpu_busy_ms / busy_ms - 1, said.iteration_ms / ms - 1, said.memory_mib / memory - 1, kernels / float(row["kernels"]) - 1]
    inside = said.low_ms <= ms <= said.high_ms
    bound = "GPU" if busy_ms > 0.8 * ms else "host"
    off.setdefault("GPU time", []).append(errors[0])
    off.setdefault(f"iterations bound by the {bound}", []).append(errors[1])
    off.setdefault("inside", []).append(float(inside))
    off.setdefault(f"memory, {row['mode']}", []).append(errors[2])
    off.setdefault("kernels", []).append(errors[3])
    print(
        f"{row['model']:22} {row['precision']:8} {row['mode']:6} {busy_ms:9.3f} {said.gpu_busy_ms:9.3f} {100 * errors[0]:+6.1f}% {ms:9.3f} {said.iteration_ms:9.3f} {100 * errors[1]:+6.1f}% "
        f"{'yes' if inside else 'no':>3} {memory:7.0f} {100 * errors[2]:+6.1f}% {row['kernels']:>8} {100 * errors[3]:+6.1f}%",
        flush=True,
    )


def predict(path: str, gpu: str, only: str | None) -> None:
    import preflop

    rows = [r for r in csv.DictReader(open(path)) if only is None or r["model"].startswith(only)]
    print(f"{'model':22} {'format':8} {'mode':6} {'busy ms':>9} {'predicted':>9} {'off':>7} {'iteration':>9} {'predicted':>9} {'off':>7} {'in':>3} {'memory':>7} {'off':>7} {'launches':>8} {'off':>7}", flush=True)
    off: dict[str, list[float]] = {}
    for row in rows:
        name, precision, mode = row["model"], row["precision"], row["mode"]
        try:
            with preflop.record(name, samples=1) as graph:
                step = step_of(name, *made(name), precision, mode)
                for _ in range(2):  # the first one has the optimizer's states to make
                    step()
                    graph.step()
            said = graph.predict(gpu)
        except Exception as error:
            print(f"{name:22} {precision:8} {mode:6} {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        report(row, said, off)
    for what, each in off.items():
        values = [abs(x) for x in each] if what != "inside" else each
        print(f"{what:28} n {len(each):3}  mean {100 * statistics.fmean(values):6.1f} %  median {100 * statistics.median(values):6.1f} %  bias {100 * statistics.median(each):+6.1f} %")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    lists = {}
    for which in ("first", "more", "third", "fourth", "fifth"):
        known = set(NETWORKS)
        importlib.import_module(f"fresh_{which}")
        lists[which] = [n for n in NETWORKS if n not in known]
    if sys.argv[1] in ("measure", "profile"):
        chosen = next((names for which, names in lists.items() if which in sys.argv), lists["first"])
        for name in [n for n in NETWORKS if n not in chosen]:
            del NETWORKS[name]
        work = measure if sys.argv[1] == "measure" else profile
        work(sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 300)
    else:
        predict(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "h200", sys.argv[4] if len(sys.argv) > 4 else None)
