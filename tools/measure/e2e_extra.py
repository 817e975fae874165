#!/usr/bin/env python3
"""Times whole training and inference iterations, with the kernels of one iteration of each.

usage: e2e_extra.py OUTDIR [--seconds S] [--start N] [--selftest] [--list]

Writes OUTDIR/e2e_extra.csv (model, batch, seq, precision, mode, iter_ms, gpu_busy_ms, kernels, peak_mem_mib, params) and
OUTDIR/e2e_kernels.csv (model, batch, seq, precision, mode, kernel, count, total_us; names cut at 160 characters).
Eager PyTorch, NCHW. Four warm-up iterations, nine timed by the wall clock with a synchronisation after each, the median
counts; then one more under a profiler of GPU activity alone. Precision: fp32 (TF32 off), tf32, amp (bf16 autocast),
amp_cl (amp with channels_last). Training uses SGD with momentum (foreach), or single-tensor Adam for the models in ADAM.
A model is built once for all its precisions and modes; the cases are those that no other file of this project holds.
"""
import argparse
import gc
import os
import time
import warnings
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

from common import DEV, GPU, Clock, Table, allow_tf32, recover

ADAM = ("bert", "gpt", "llama", "transformer", "gnmt", "dcgan", "vit", "swin", "distilbert", "t5", "opt", "qwen")
LONG = {"gpt2": 1024, "gpt2-large": 1024, "llama-1b": 2048, "bert-large": 512, "bert-base": 128, "distilbert": 128, "t5-small": 128, "opt-125m": 512, "qwen2-0.5b": 1024}
# Batch sizes kept for checking predictions: never measured here.
HELD_OUT = {"resnet50": (16, 32, 64, 128, 256), "inception_v3": (16, 64, 128), "transformer": (32, 64, 256), "gnmt": (16, 64, 128), "dcgan": (64, 128, 1024), "vgg16": (32, 128), "alexnet": (128, 512), "googlenet": (128,),
            "resnet152": (64,), "mobilenet_v2": (64, 256), "efficientnet_b0": (64,), "densenet121": (64,), "vit_b_16": (64, 128), "convnext_tiny": (64,), "bert-base": (16, 64), "bert-large": (16, 32), "gpt2": (4, 8),
            "gpt2-large": (4,), "llama-1b": (2, 4), "transformer-big": (64,), "swin_t": (64,), "resnext50_32x4d": (64,)}


class DCGAN(nn.Module):
    """Generator and discriminator of 64x64 images, run one after the other."""

    def __init__(self, nz=100, g=64, d=64):
        super().__init__()

        def up(i, o, stride, pad):
            return [nn.ConvTranspose2d(i, o, 4, stride, pad, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]

        def down(i, o):
            return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.2, True)]

        self.g = nn.Sequential(*up(nz, g * 8, 1, 0), *up(g * 8, g * 4, 2, 1), *up(g * 4, g * 2, 2, 1), *up(g * 2, g, 2, 1), nn.ConvTranspose2d(g, 3, 4, 2, 1, bias=False), nn.Tanh())
        self.d = nn.Sequential(nn.Conv2d(3, d, 4, 2, 1, bias=False), nn.LeakyReLU(.2, True), *down(d, d * 2), *down(d * 2, d * 4), *down(d * 4, d * 8), nn.Conv2d(d * 8, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def forward(self, z):
        return self.d(self.g(z)).view(-1)


class GNMT(nn.Module):
    """Encoder-decoder LSTM of eight layers with attention, 1024 wide."""

    def __init__(self, v=32317, h=1024):
        super().__init__()
        self.e = nn.Embedding(v, h)
        self.bi = nn.LSTM(h, h, 1, bidirectional=True)
        self.enc = nn.LSTM(2 * h, h, 3)
        self.dec = nn.LSTM(h, h, 4)
        self.q = nn.Linear(h, h, bias=False)
        self.o = nn.Linear(2 * h, v)

    def forward(self, src, tgt):
        x, _ = self.bi(self.e(src))
        x, _ = self.enc(x)
        y, _ = self.dec(self.e(tgt))
        a = torch.bmm(self.q(y).transpose(0, 1), x.permute(1, 2, 0)).softmax(-1)
        c = torch.bmm(a, x.transpose(0, 1)).transpose(0, 1)
        return self.o(torch.cat([y, c], -1))


class Transformer(nn.Module):
    def __init__(self, v=32000, d=512, h=8, n=6, ff=2048):
        super().__init__()
        self.e = nn.Embedding(v, d)
        self.t = nn.Transformer(d, h, n, n, ff, batch_first=True)
        self.o = nn.Linear(d, v)

    def forward(self, a, b):
        return self.o(self.t(self.e(a), self.e(b)))


def language_model(name):
    import transformers as T
    if name == "bert-base":
        return T.BertForMaskedLM(T.BertConfig())
    if name == "bert-large":
        return T.BertForMaskedLM(T.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096))
    if name == "gpt2":
        return T.GPT2LMHeadModel(T.GPT2Config())
    if name == "gpt2-large":
        return T.GPT2LMHeadModel(T.GPT2Config(n_embd=1280, n_layer=36, n_head=20))
    if name == "llama-1b":
        return T.LlamaForCausalLM(T.LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256))
    if name == "distilbert":
        return T.DistilBertForMaskedLM(T.DistilBertConfig())
    if name == "t5-small":
        return T.T5ForConditionalGeneration(T.T5Config())
    if name == "opt-125m":
        return T.OPTForCausalLM(T.OPTConfig())
    return T.Qwen2ForCausalLM(T.Qwen2Config(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True))


def build(name):
    with torch.device(DEV):
        if name == "dcgan":
            return DCGAN()
        if name == "gnmt":
            return GNMT()
        if name == "transformer":
            return Transformer()
        if name == "transformer-big":
            return Transformer(d=1024, h=16, ff=4096)
        if name in LONG:
            return language_model(name)
        return torchvision.models.get_model(name, weights=None)


def inputs(name, b, seq):
    """The positional arguments of the model and its loss."""
    def ints(high, *shape):
        return torch.randint(0, high, shape, device=DEV)

    if name == "dcgan":
        return (torch.randn(b, 100, 1, 1, device=DEV),), lambda o: F.binary_cross_entropy(o.float(), torch.ones(b, device=DEV))
    if name in ("gnmt", "transformer", "transformer-big"):
        v, shape = (32317, (50, b)) if name == "gnmt" else (32000, (b, 50))
        s, t = ints(v, *shape), ints(v, *shape)
        return (s, t), lambda o: F.cross_entropy(o.float().flatten(0, 1), t.flatten())
    if name in LONG:
        x = ints(30000, b, seq)
        return ((x, None, x) if name == "t5-small" else (x,)), lambda o: F.cross_entropy(o.logits.float().flatten(0, 1), x.flatten())
    t, size = ints(1000, b), 299 if name == "inception_v3" else 224
    return (torch.randn(b, 3, size, size, device=DEV),), lambda o: F.cross_entropy((o[0] if isinstance(o, tuple) else o).float(), t)


P3, TI = ("fp32", "tf32", "amp"), ("train", "infer")
NO32 = ("tf32", "amp")
# Groups in order of value: models, batch, precisions, modes
GROUPS = [
    ("resnet50", 8, P3, TI), ("bert-base", 8, P3, TI), ("gpt2", 2, P3, TI), ("gnmt", 32, P3, TI), ("transformer", 128, P3, TI), ("dcgan", 256, P3, TI), ("vit_b_16", 32, P3, TI), ("swin_t", 32, P3, TI), ("convnext_tiny", 32, P3, TI),
    ("densenet121", 32, P3, TI), ("vgg16", 64, P3, TI), ("resnet18", 32, P3, TI), ("mobilenet_v2", 32, P3, TI), ("efficientnet_b0", 32, P3, TI), ("resnext50_32x4d", 32, P3, TI), ("llama-1b", 1, NO32, TI), ("resnet50", 96, P3, TI),
    ("inception_v3", 32, P3, TI), ("googlenet", 32, P3, TI), ("alexnet", 256, P3, TI), ("bert-large", 8, P3, TI), ("resnet101", 32, P3, TI), ("wide_resnet50_2", 32, P3, TI), ("vgg11", 64, P3, TI), ("bert-base", 32, P3, TI),
    ("resnet34", 64, P3, TI), ("mobilenet_v3_large", 64, P3, TI), ("shufflenet_v2_x1_0", 64, P3, TI), ("gpt2-large", 2, ("amp",), TI), ("distilbert", 16, P3, TI), ("t5-small", 16, P3, TI), ("opt-125m", 4, NO32, TI), ("regnet_y_400mf", 64, P3, TI),

    ("transformer", 8, P3, TI),
    ("resnet50", 48, ("fp32", "amp", "amp_cl"), TI), ("vgg19", 32, P3, TI), ("squeezenet1_0", 64, P3, TI), ("efficientnet_v2_s", 32, P3, TI), ("qwen2-0.5b", 2, NO32, TI), ("mnasnet1_0", 64, P3, TI), ("transformer-big", 32, P3, TI),
    ("resnet152", 32, P3, TI), ("swin_s", 16, P3, TI), ("vit_l_16", 16, P3, TI), ("densenet169", 16, P3, TI), ("convnext_small", 16, P3, TI), ("mobilenet_v2", 128, P3, TI), ("vit_b_32", 64, P3, TI), ("bert-large", 1, NO32, ("infer",)),
    ("gnmt", 8, P3, TI), ("gnmt", 96, P3, TI), ("dcgan", 512, P3, TI), ("alexnet", 64, P3, TI), ("gpt2", 6, P3, TI), ("vit_b_16", 96, P3, TI), ("resnet18", 256, P3, TI), ("googlenet", 64, P3, TI), ("inception_v3", 96, P3, TI),
    ("swin_t", 128, P3, TI), ("convnext_tiny", 128, ("amp", "amp_cl", "tf32"), TI), ("resnet50", 192, P3, TI), ("densenet121", 96, P3, TI), ("vgg16", 16, P3, TI), ("resnext50_32x4d", 16, P3, TI), ("efficientnet_b0", 128, P3, TI), ("bert-base", 48, P3, TI),
]


BATCH_1 = ("resnet50", "bert-base", "gpt2", "vit_b_16", "swin_t", "convnext_tiny", "densenet121", "efficientnet_b0", "mobilenet_v2", "vgg16", "inception_v3", "gnmt", "alexnet", "resnet18", "resnext50_32x4d", "googlenet", "transformer", "dcgan")


def with_batch_1(groups):
    """The groups with inference at batch 1 after the first group of each model in BATCH_1."""
    out, seen = [], set()
    for g in groups:
        out.append(g)
        if g[0] in BATCH_1 and g[0] not in seen:
            seen.add(g[0])
            out.append((g[0], 1, P3, ("infer",)))
    return out


GROUPS = with_batch_1(GROUPS)


def kernels_of(step):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        step()
        torch.cuda.synchronize()
    return [(e.name, e.device_time_total) for e in prof.events() if e.device_type == torch.autograd.DeviceType.CUDA]


def measure(name, m, args, loss, precision, mode):
    """iter_ms, peak memory in MiB and the kernels of one iteration as (name, us)."""
    train = mode == "train"
    allow_tf32(precision == "tf32")
    m.train(train)
    mf = torch.channels_last if precision == "amp_cl" else torch.contiguous_format
    for p in m.parameters():
        if p.dim() == 4:
            p.data = p.data.contiguous(memory_format=mf)
    args = tuple(x.contiguous(memory_format=mf) if x is not None and x.dim() == 4 else x for x in args)
    opt = None
    if train:
        opt = torch.optim.Adam(m.parameters(), fused=False) if name.startswith(ADAM) else torch.optim.SGD(m.parameters(), .01, momentum=.9)

    def step():
        with torch.autocast(DEV, torch.bfloat16, enabled=precision.startswith("amp")):
            if train:
                value = loss(m(*args))
            else:
                with torch.no_grad():
                    m(*args)
        if train:
            value.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)

    try:
        if not GPU:
            step()
            return 1.0, 0.0, [("none", 1.0)]
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        times = []
        for _ in range(9):
            t0 = time.perf_counter()
            step()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - t0) * 1e3)
        peak = torch.cuda.max_memory_allocated() / 2**20
        return sorted(times)[4], peak, kernels_of(step)
    finally:
        m.zero_grad(set_to_none=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("outdir")
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--start", type=int, default=0, help="skip that many groups")
    ap.add_argument("--selftest", action="store_true")
    ap.add_argument("--list", action="store_true")
    a = ap.parse_args()
    warnings.filterwarnings("ignore")
    clash = [g[:2] for g in GROUPS if g[1] in HELD_OUT.get(g[0], ())]
    if clash:
        raise SystemExit(f"held-out cases: {clash}")
    groups = GROUPS[a.start:]
    if a.selftest:
        groups = [("resnet18", 2, P3, TI), ("gnmt", 2, ("amp",), TI), ("t5-small", 2, ("amp",), TI), ("opt-125m", 1, ("tf32",), TI), ("distilbert", 1, ("amp",), ("infer",)), ("resnet50", 2, ("amp_cl",), TI)]
    if a.list:
        return print(*groups, f"{sum(len(g[2]) * len(g[3]) for g in groups)} cases", sep="\n")
    clock = Clock(a.seconds)
    out = Table(os.path.join(a.outdir, "e2e_extra.csv"), "model,batch,seq,precision,mode,iter_ms,gpu_busy_ms,kernels,peak_mem_mib,params".split(","))
    kern = Table(os.path.join(a.outdir, "e2e_kernels.csv"), "model,batch,seq,precision,mode,kernel,count,total_us".split(","))
    if GPU:  # the first case runs after a profiler, too, as all the others do
        kernels_of(lambda: torch.ones(8, device=DEV) + 1)
    m, held, done = None, None, 0
    for number, (name, b, precisions, modes) in enumerate(groups):
        if clock.over():
            break
        seq = LONG.get(name, 0)
        try:
            args = loss = None
            if held != name:
                m = held = None
                gc.collect()
                m, held = build(name), name
            args, loss = inputs(name, b, seq)
        except Exception as e:
            m = held = None
            recover(e, "building", name, b)
            continue
        params = sum(p.numel() for p in m.parameters())
        for precision in precisions:
            for mode in modes:
                if clock.over():
                    break
                try:
                    t0 = time.time()
                    ms, peak, events = measure(name, m, args, loss, precision, mode)
                    total = defaultdict(lambda: [0, 0.0])
                    for k, us in events:
                        total[k[:160]][0] += 1
                        total[k[:160]][1] += us
                    out.row([name, b, seq, precision, mode, f"{ms:.3f}", f"{sum(us for _, us in events) / 1e3:.3f}", len(events), f"{peak:.0f}", params])
                    for k, (n, us) in sorted(total.items(), key=lambda x: -x[1][1]):
                        kern.row([name, b, seq, precision, mode, k, n, f"{us:.2f}"])
                    done += 1
                    print(f"{time.time() - clock.start:5.0f} s group {a.start + number}: {name} b{b} {precision} {mode} {ms:.2f} ms, took {time.time() - t0:.1f} s", flush=True)
                except Exception as e:
                    recover(e, name, b, precision, mode)
                    gc.collect()
    print("cases", done, flush=True)


if __name__ == "__main__":
    main()
