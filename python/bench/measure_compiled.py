"""Runs compiled iterations on a GPU and writes down every kernel that the profiler saw, in order.

    python python/bench/measure_compiled.py OUT.csv SECONDS [MODEL ..]
    python python/bench/measure_compiled.py - 0 MODEL       fills the compiler's caches only, for many models at a time

The names of fused kernels equal those that `preflop` lists without a GPU, so one kernel's price can be checked at a time.
Rows of kind `run` hold a whole iteration (milliseconds, MiB); rows of kind `kernel` one launch (microseconds, the median of three
iterations).
"""

from __future__ import annotations

import csv
import gc
import statistics
import sys
import time
import warnings

import torch
import torch.nn.functional as F

warnings.filterwarnings("ignore")

#: Batch and image size or tokens.
MODELS = {
    "resnet50": (64, 224),
    "gpt2": (8, 1024),
    "vit_b_16": (64, 224),
    "resnet18": (128, 224),
    "convnext_tiny": (64, 224),
    "mobilenet_v2": (256, 224),
    "bert": (16, 512),
    "t5": (16, 256),
    "llama": (4, 1024),
    "efficientnet_b0": (128, 224),
    "densenet121": (32, 224),
    "swin_t": (32, 224),
}


def build(name: str, batch: int, size: int, device: str):
    """Model, inputs, loss of its output, name of the optimizer."""
    import transformers as T

    def tokens() -> torch.Tensor:
        return torch.randint(0, 30000, (batch, size), device=device)

    if name in ("gpt2", "llama", "bert", "t5"):
        x = tokens()
        causal = lambda o: F.cross_entropy(o.logits.float().flatten(0, 1), x.flatten())
        if name == "gpt2":
            return T.GPT2LMHeadModel(T.GPT2Config()), (x,), causal, "adamw"
        if name == "bert":
            return T.BertForMaskedLM(T.BertConfig()), (x,), causal, "adamw"
        if name == "t5":
            config = T.T5Config(d_model=512, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0)
            return T.T5ForConditionalGeneration(config), (x,), causal, "adamw"
        config = T.LlamaConfig(
            vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16,
            num_key_value_heads=4, max_position_embeddings=2048,
        )
        return T.LlamaForCausalLM(config), (x,), causal, "adamw"
    import torchvision

    labels = torch.randint(0, 1000, (batch,), device=device)
    images = torch.randn(batch, 3, size, size, device=device)
    return torchvision.models.get_model(name, weights=None), (images,), lambda o: F.cross_entropy(o.float(), labels), "sgd"


def step_of(name: str, training: bool, compiled: str | None, device: str = "cuda"):
    """One iteration as a function."""
    batch, size = MODELS[name]
    model, inputs, loss, optimizer = build(name, batch, size, device)
    model = model.to(device).train(training)
    steps = None
    if training:
        steps = (
            torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
            if optimizer == "sgd"
            else torch.optim.AdamW(model.parameters(), 1e-4)
        )

    def forward(*arguments):
        with torch.autocast("cuda", torch.bfloat16):
            out = model(arguments[0], decoder_input_ids=arguments[0]) if name == "t5" else model(*arguments)
            return loss(out) if training else out

    if compiled is not None:
        torch._dynamo.reset()
        forward = torch.compile(forward, mode=None if compiled == "default" else compiled)

    def step() -> None:
        if steps is None:
            with torch.no_grad():
                forward(*inputs)
            return
        forward(*inputs).backward()
        steps.step()
        steps.zero_grad(set_to_none=True)

    return step


def kernels(step) -> list[tuple[str, float]]:
    """Every launch of three iterations: name and median time, if all three agree; else those of the last."""
    runs = []
    for _ in range(3):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
            torch.cuda.synchronize()
        events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        events.sort(key=lambda e: e.time_range.start)
        runs.append([(e.name, e.device_time_total) for e in events])
    if len({tuple(n for n, _ in run) for run in runs}) == 1:
        return [(run[0][0], statistics.median(t for _, t in run)) for run in zip(*runs)]
    return runs[-1]


def measure(writer, name: str, training: bool, compiled: str | None) -> None:
    """One model in one mode."""
    gc.collect()
    torch.cuda.empty_cache()
    start = time.time()
    step = step_of(name, training, compiled)
    step()
    torch.cuda.synchronize()
    first = time.time() - start
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(15):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    memory = torch.cuda.max_memory_allocated() / 2**20
    seen = kernels(step)
    mode, run = "train" if training else "infer", compiled or "eager"
    busy = sum(t for _, t in seen) / 1e3
    row = [name, mode, run, "run", "", f"{statistics.median(times):.3f}", f"{busy:.3f}", len(seen), f"{memory:.0f}", f"{first:.1f}"]
    writer.writerow(row)
    print(*row, flush=True)
    if compiled == "default":
        for i, (kernel, microseconds) in enumerate(seen):
            writer.writerow([name, mode, run, "kernel", kernel[:100], f"{microseconds:.2f}", "", i, "", ""])


def main() -> int:
    out, end = sys.argv[1], time.time() + float(sys.argv[2])
    wanted = sys.argv[3:] or list(MODELS)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if out == "-":
        for name in wanted:
            for training in (True, False):
                step_of(name, training, "default")()
        return 0
    with open(out, "w", newline="", buffering=1, encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow("model,mode,run,kind,name,time,busy_ms,kernels,memory_mib,first_call_s".split(","))
        for name in wanted:
            for training in (True, False):
                for compiled in (["default", None] if name not in list(MODELS)[:6] else ["default"]):
                    if time.time() > end:
                        print("time is over before", name, flush=True)
                        return 0
                    try:
                        measure(writer, name, training, compiled)
                    except Exception as error:  # noqa: BLE001: one model that fails leaves the others
                        print("skipped", name, training, type(error).__name__, str(error)[:200].replace("\n", " "), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
