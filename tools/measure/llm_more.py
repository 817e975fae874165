#!/usr/bin/env python3
"""Times prefill and decode steps of language models of many families: bf16, a static key-value cache, eager and as a CUDA graph.

usage: llm_more.py OUT.csv CONFIGS.jsonl [--kernels FILE.csv] [--seconds S] [--only NAME,NAME] [--selftest]

Models are built from their configuration with random weights. CONFIGS.jsonl gets each of them as `config.json` would hold it,
with the name that the rows use. Rows are those of llm.csv, and the least and the largest of the iterations: what the
host binds is not one figure. `before` counts the graphs that this process captured before: each had a stream, for which
cuBLAS keeps a workspace of 32 MiB. `--kernels` gets names, counts and times of each step's kernels. `--selftest` builds small models on the CPU and runs every step once.
"""
import argparse
import csv
import gc
import json
import os
import time

import torch
import transformers

GPU = os.environ.get("PREFLOP_DEVICE", "cuda") != "cpu"
DEVICE = "cuda" if GPU else "cpu"
SHAPES = [(1, 128), (1, 4096), (8, 1024), (48, 512)]
# More tokens than a prompt on one GPU has at a time.
LONGEST_PREFILL = 16384
MODELS = {
    # Those of llm.csv, to see how far two runs of one program differ.
    "llama-1b": ("Llama", dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                               num_key_value_heads=8, vocab_size=128256, max_position_embeddings=32768)),
    "llama-8b": ("Llama", dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                               num_key_value_heads=8, vocab_size=128256, max_position_embeddings=32768)),
    "qwen2.5-1.5b": ("Qwen2", dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
                                   num_key_value_heads=2, vocab_size=151936, max_position_embeddings=32768, tie_word_embeddings=True)),
    "qwen3-4b": ("Qwen3", dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32, head_dim=128,
                               num_key_value_heads=8, vocab_size=151936, max_position_embeddings=40960, tie_word_embeddings=True)),
    "mistral-7b": ("Mistral", dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                                   num_key_value_heads=8, vocab_size=32768, max_position_embeddings=32768, sliding_window=None)),
    "gpt-neox-1.4b": ("GPTNeoX", dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=24, num_attention_heads=16,
                                      vocab_size=50304, max_position_embeddings=8192)),
    "phi-3-mini": ("Phi3", dict(hidden_size=3072, intermediate_size=8192, num_hidden_layers=32, num_attention_heads=32,
                                num_key_value_heads=32, vocab_size=32064, max_position_embeddings=8192, sliding_window=None,
                                pad_token_id=0)),
    "gemma-2b": ("Gemma", dict(hidden_size=2048, intermediate_size=16384, num_hidden_layers=18, num_attention_heads=8, head_dim=256,
                               num_key_value_heads=1, vocab_size=256000, max_position_embeddings=8192)),
    "llama-3b": ("Llama", dict(hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24, head_dim=128,
                               num_key_value_heads=8, vocab_size=128256, max_position_embeddings=32768, tie_word_embeddings=True)),
    "granite-2b": ("Granite", dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=40, num_attention_heads=32,
                                   num_key_value_heads=8, vocab_size=49152, max_position_embeddings=8192, tie_word_embeddings=True)),
    "olmo2-7b": ("Olmo2", dict(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
                               num_key_value_heads=32, vocab_size=100352, max_position_embeddings=8192)),
    "gpt2-large": ("GPT2", dict(n_embd=1280, n_layer=36, n_head=20, vocab_size=50257, n_positions=8192)),
    "qwen2.5-14b": ("Qwen2", dict(hidden_size=5120, intermediate_size=13824, num_hidden_layers=48, num_attention_heads=40,
                                  num_key_value_heads=8, vocab_size=152064, max_position_embeddings=32768)),
}


def synchronize():
    if GPU:
        torch.cuda.synchronize()


def timed(step, iterations):
    """Median, least and largest milliseconds of a step, then its kernels in one more: name, milliseconds."""
    for _ in range(3 if GPU else 1):
        step()
    synchronize()
    times = []
    for _ in range(iterations):
        start = time.perf_counter()
        step()
        synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    if not GPU:
        return times[len(times) // 2], times[0], times[-1], []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        synchronize()
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return times[len(times) // 2], times[0], times[-1], [(e.name, e.device_time_total / 1e3) for e in events]


def peak_mib():
    return torch.cuda.max_memory_allocated() / 2**20 if GPU else 0.0


def fresh():
    gc.collect()
    if GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def steps(model, batch, context):
    """The steps of one shape in turn: phase, way to run, what `timed` gives, peak memory."""
    fresh()
    if batch * context <= LONGEST_PREFILL:
        tokens = torch.randint(0, 30000, (batch, context), device=DEVICE)
        yield "prefill", "eager", timed(lambda: model(tokens, use_cache=True, logits_to_keep=1), 5), peak_mib()
        del tokens
        fresh()
    cache = transformers.StaticCache(config=model.config, max_cache_len=context + 8)
    token = torch.randint(0, 30000, (batch, 1), device=DEVICE)
    at = torch.tensor([context], device=DEVICE)

    def decode():
        model(token, past_key_values=cache, cache_position=at, position_ids=at[None].expand(batch, 1), use_cache=True)

    yield "decode", "eager", timed(decode, 15), peak_mib()
    if not GPU:
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            decode()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode()
    yield "decode", "graph", timed(graph.replay, 9), peak_mib()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("configs")
    parser.add_argument("--kernels", default=os.devnull)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--only", default="")
    parser.add_argument("--selftest", action="store_true")
    args = parser.parse_args()
    end = time.time() + args.seconds
    torch.set_grad_enabled(False)
    print(torch.__version__, transformers.__version__, flush=True)
    before = 0
    with (open(args.out, "w", newline="", buffering=1) as out, open(args.configs, "w", buffering=1) as configs,
          open(args.kernels, "w", newline="", buffering=1) as names):
        table, listing = csv.writer(out), csv.writer(names)
        table.writerow("model,batch,context,phase,run,iter_ms,least_ms,most_ms,gpu_busy_ms,kernels,peak_mem_mib,params,before".split(","))
        listing.writerow("model,batch,context,phase,run,kernel,count,ms".split(","))
        for name, (family, sizes) in MODELS.items():
            if time.time() > end or (args.only and name not in args.only.split(",")):
                continue
            began = time.time()
            try:
                config = getattr(transformers, family + "Config")(**sizes)
                if args.selftest:
                    config.num_hidden_layers = 1
                config.architectures = [transformers.AutoModelForCausalLM._model_mapping[type(config)].__name__]
                with torch.device(DEVICE):
                    model = transformers.AutoModelForCausalLM.from_config(
                        config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
            except Exception as error:
                print("skip", name, type(error).__name__, str(error)[:300].replace("\n", " "), flush=True)
                continue
            configs.write(json.dumps({"name": name, "config": config.to_dict()}, default=str) + "\n")
            parameters = sum(p.numel() for p in model.parameters())
            for batch, context in [(2, 16)] if args.selftest else SHAPES:
                if time.time() > end:
                    break
                try:
                    for phase, run, (median, least, most, kernels), memory in steps(model, batch, context):
                        row = [name, batch, context, phase, run]
                        milliseconds = [f"{v:.3f}" for v in (median, least, most, sum(ms for _, ms in kernels))]
                        table.writerow([*row, *milliseconds, len(kernels), f"{memory:.0f}", parameters, before])
                        for kernel in dict.fromkeys(n for n, _ in kernels):
                            its = [ms for n, ms in kernels if n == kernel]
                            listing.writerow([*row, kernel[:110], len(its), f"{sum(its):.4f}"])
                        before += run == "graph"
                except Exception as error:
                    print("skip", name, batch, context, type(error).__name__, str(error)[:300].replace("\n", " "), flush=True)
            print(name, f"{time.time() - began:.1f} s", flush=True)
            del model


if __name__ == "__main__":
    main()
