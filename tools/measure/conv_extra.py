#!/usr/bin/env python3
"""Times convolutions of the kinds that are hard to predict.

usage: conv_extra.py OUT.csv [--seconds S] [--seed TEXT] [--shapes FILE] [--selftest]

Rows: op, phase, dtype, shape (json), gpu_us, copies, kind; names.py tells the kernels that they launch. Kinds: about 40 %
ordinary layers (std, pw, dil, rect, gan), the rest grouped (grp), depthwise (dw), large kernels at stride 1 (big) and
stems.
"""
import argparse
import sys

import torch
import torch.nn.functional as F

from common import GPU, Clock, Draw, Table, allow_tf32, nbytes, rand, recover, time_calls

RND = Draw("preflop-conv-0")
COLUMNS = ["op", "phase", "dtype", "shape", "gpu_us", "copies", "kind"]
SIZES = (224, 112, 56, 28, 14, 7, 149, 147, 73, 71, 35, 17, 8, 128, 64, 32, 16, 192, 96, 48, 24, 12)
WIDTHS = (16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224, 240, 256, 288, 320, 384, 448, 480, 512, 576, 640, 672, 768, 960, 1024, 1280, 1536, 2048)
# Layers of known networks: input channels, size, output channels, kernel, stride
LAYERS = [(64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 256, 3, 1), (512, 7, 512, 3, 1), (128, 56, 128, 3, 2), (256, 28, 256, 3, 2), (512, 14, 512, 3, 2), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1),
          (256, 56, 512, 1, 2), (512, 28, 128, 1, 1), (128, 28, 512, 1, 1), (512, 28, 1024, 1, 2), (1024, 14, 256, 1, 1), (256, 14, 1024, 1, 1), (1024, 14, 2048, 1, 2), (2048, 7, 512, 1, 1), (512, 7, 2048, 1, 1),
          (64, 224, 64, 3, 1), (64, 112, 128, 3, 1), (128, 112, 128, 3, 1), (128, 56, 256, 3, 1), (256, 56, 256, 3, 1), (256, 28, 512, 3, 1), (512, 28, 512, 3, 1), (512, 14, 512, 3, 1), (64, 27, 192, 5, 1),
          (192, 13, 384, 3, 1), (384, 13, 256, 3, 1), (48, 35, 64, 5, 1), (64, 35, 96, 3, 1), (96, 35, 96, 3, 1), (288, 35, 384, 3, 2), (192, 17, 320, 3, 2), (448, 8, 384, 3, 1), (768, 17, 192, 1, 1), (1280, 8, 320, 1, 1),
          (128, 56, 32, 3, 1), (128, 28, 32, 3, 1), (128, 14, 32, 3, 1), (128, 7, 32, 3, 1), (96, 28, 128, 3, 1), (16, 28, 32, 5, 1), (32, 28, 96, 5, 1), (24, 56, 144, 1, 1), (144, 28, 32, 1, 1), (96, 56, 192, 2, 2),
          (384, 14, 768, 2, 2), (32, 149, 32, 3, 1), (80, 73, 192, 3, 1), (160, 7, 960, 1, 1), (320, 7, 1280, 1, 1)]


def draw():
    """One shape with its kind and dtype, or None where it does not fit."""
    r = RND
    real = r.flip(.6)
    kind = r.choices(["grp", "dw", "fft", "big", "stem", "std", "pw", "dil", "rect", "gan"], [20, 15, 11, 8, 6, 20, 10, 3, 4, 3])[0]
    dt = r.pick("bf16", "bf16", "fp16", "tf32", "fp32")
    b = r.pick(1, 2, 4, 8, 16, 32, 64, 128, 256) if real else r.logi(1, 256)
    hw = r.choice(SIZES) if real else r.logi(5, 256)
    ci, co = (r.choice(WIDTHS), r.choice(WIDTHS)) if real else (r.logi(4, 2048), r.logi(4, 2048))
    k, st, dil, g, pad = r.pick(3, 3, 3, 5), r.pick(1, 1, 1, 2), 1, 1, None
    kh = kw = k
    if kind in ("std", "pw") and r.flip():
        ci, hw, co, k, st = r.choice(LAYERS)
        kh = kw = k
        kind = "pw" if k == 1 else "std"
        pad = (0, 0) if k == 2 else None
    elif kind == "pw":
        kh = kw = 1
    if kind == "grp":
        if real:  # resnext and regnet blocks
            g, ci, hw, st = r.pick((32, 128, 56, 1), (32, 256, 28, 1), (32, 512, 14, 1), (32, 1024, 7, 1), (32, 256, 56, 2), (32, 512, 28, 2), (32, 1024, 14, 2), (32, 256, 56, 1), (64, 256, 56, 1), (64, 512, 28, 1), (64, 1024, 14, 1),
                                   (6, 48, 56, 1), (13, 104, 28, 1), (26, 208, 14, 1), (55, 440, 7, 1), (3, 72, 56, 1), (9, 216, 28, 1), (24, 576, 14, 1), (2, 96, 27, 1), (2, 192, 13, 1), (8, 192, 28, 1))
            co, kh, kw = ci, 3, 3
        else:
            g = r.pick(2, 3, 4, 8, 16, 32, 64)
            width = r.pick(1, 2, 4, 4, 8, 8, 16, 24, 32, 64, r.logi(1, 128))
            ci = width * g
            co = ci if r.flip(.7) else max(g, r.logi(8, 1024) // g * g)
            kh = kw = r.pick(3, 3, 3, 1, 5)
            hw = min(hw, 128)
    if kind == "dw":
        dt = r.pick("bf16", "bf16", "fp16", "fp16", "bf16", "tf32", "fp32")
        ci = r.pick(16, 32, 64, 72, 96, 120, 144, 192, 240, 288, 384, 480, 576, 672, 768, 960, 1152) if r.flip(.7) else r.logi(8, 1536)
        hw = r.pick(112, 56, 28, 14, 7, 150, 75, 38, 19, 10, r.logi(5, 160))
        g, co, kh, st = ci, ci, r.pick(3, 3, 5, 7), r.pick(1, 1, 2)
        kw = kh
        if r.flip(.06):
            co = 2 * ci
    if kind == "fft":  # fp32, wide kernels, stride 1: cuDNN turns to FFT for some of these
        dt, st, kh = r.pick("fp32", "fp32", "fp32", "tf32"), 1, r.pick(3, 5, 5, 7, 7)
        kw, kind = kh, "big"
    elif kind == "big":
        dt, kh = r.pick("bf16", "bf16", "fp16"), r.pick(7, 7, 7, 9, 11, 5)
        kw = kh
    if kind == "stem":
        ci, co = r.pick(1, 3, 3, 3, 4), r.pick(16, 24, 32, 64, 64, 96, 128, 768)
        kh = r.pick(3, 3, 7, 7, 11, 4, 16)
        kw, st, hw = kh, {11: 4, 4: 4, 16: 16, 3: r.pick(1, 2)}.get(kh, 2), r.pick(224, 224, 224, 227, 299, 384, 512, 160, 128, 32)
        pad = (0, 0) if kh in (4, 16) else (2, 2) if kh == 11 else (r.pick(1, 0),) * 2 if kh == 3 else None
    if kind == "dil":
        dil, kh, kw, st = r.pick(2, 4, 6, 12), 3, 3, 1
    if kind == "rect":
        (kh, kw), st = r.pick((1, 7), (7, 1), (1, 3), (3, 1), (1, 5), (5, 1)), 1
    if kind == "gan":
        kh, kw, st, pad = 4, 4, 2, (1, 1)
    p = (kh // 2 * dil, kw // 2 * dil) if pad is None else pad
    w = hw if r.flip(.9) else max(5, int(hw * r.pick(.5, .75, 1.5)))
    oh, ow = (hw + 2 * p[0] - dil * (kh - 1) - 1) // st + 1, (w + 2 * p[1] - dil * (kw - 1) - 1) // st + 1
    if oh < 1 or ow < 1 or ci % g or co % g:
        return None
    flop = 2 * b * oh * ow * co * (ci // g) * kh * kw
    if flop > (4e11 if dt == "fp32" else 1e12) or b * ci * hw * w > 2e8 or b * co * oh * ow > 2e8:
        return None
    phase = r.pick("fwd", "dgrad", "wgrad")
    if kind == "stem" and phase == "dgrad" and r.flip(.7):
        phase = r.pick("fwd", "wgrad")
    cl = dt in ("bf16", "fp16") and r.flip(.55)
    shape = dict(b=b, ci=ci, h=hw, w=w, co=co, r=kh, s=kw, stride=st, pad=list(p), dilation=dil, groups=g, channels_last=cl)
    return kind, phase, dt, shape


def maker(phase, dt, s, new=rand):
    """make() for time_calls; `new` makes the tensors."""
    mf = torch.channels_last if s["channels_last"] else torch.contiguous_format
    st, p, dil, g = s["stride"], s["pad"], s["dilation"], s["groups"]
    oh, ow = ((s[a] + 2 * p[i] - dil * (s[k] - 1) - 1) // st + 1 for i, (a, k) in enumerate((("h", "r"), ("w", "s"))))

    def make():
        x = new(s["b"], s["ci"], s["h"], s["w"], dt=dt).contiguous(memory_format=mf)
        k = new(s["co"], s["ci"] // g, s["r"], s["s"], dt=dt).contiguous(memory_format=mf)
        if phase == "fwd":
            return (lambda: F.conv2d(x, k, None, st, p, dil, g)), nbytes(x, k)
        y = new(s["b"], s["co"], oh, ow, dt=dt).contiguous(memory_format=mf)
        mask = [phase == "dgrad", phase == "wgrad", False]
        return (lambda: torch.ops.aten.convolution_backward(y, x, k, None, [st, st], p, [dil, dil], False, [0, 0], g, mask)), nbytes(x, k, y)

    return make


def listed(path):
    """Shapes of conv_shapes.py in the order of the file."""
    with open(path) as f:
        for line in f:
            phase, dt, b, ci, h, w, co, r, s, st, p0, p1, dil, g, cl = map(int, line.split()[:15])
            shape = dict(b=b, ci=ci, h=h, w=w, co=co, r=r, s=s, stride=st, pad=[p0, p1], dilation=dil, groups=g, channels_last=bool(cl))
            yield "listed", ("fwd", "dgrad", "wgrad")[phase], ("fp32", "tf32", "fp16", "bf16")[dt], shape


def times(a):
    RND.seed("preflop-conv-" + a.seed)
    clock, out, bad, turn = Clock(a.seconds), Table(a.out, COLUMNS), 0, 0
    shapes = listed(a.shapes) if a.shapes else iter(draw, 0)
    for drawn in shapes:
        if clock.over() or (a.selftest and turn >= 40):
            break
        if drawn is None:
            continue
        kind, phase, dt, shape = drawn
        allow_tf32(dt == "tf32")
        turn += 1
        try:
            us, copies = time_calls(maker(phase, dt, shape), span_ms=1.5, most=48, replays=5, long_ms=1.5)
            out.row(["conv2d", phase, dt, shape, f"{us:.3f}", copies, kind])
        except Exception as e:
            bad += 1
            recover(e, kind, phase, dt, shape)
        if GPU and turn % 50 == 0:
            torch.cuda.empty_cache()
        clock.progress(out.rows, "rows, at", kind, phase, dt)
    print("measured", out.rows, "skipped", bad, flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--seed", default="0")
    ap.add_argument("--shapes", help="a file of conv_shapes.py instead of own draws")
    ap.add_argument("--selftest", action="store_true")
    a = ap.parse_args()
    torch.manual_seed(20261115)
    times(a)


if __name__ == "__main__":
    sys.exit(main())
