#!/usr/bin/env python3
"""Draws convolution shapes for cudnn_choice, with no GPU and no PyTorch: usage: conv_shapes.py COUNT SEED [fp32-nhwc|lines|groups] > shapes.txt

Half look like layers of networks, half are random; grouped, dilated, rectangular and large filters are drawn more
often than networks have them, since the choice of engine is least regular there. Depthwise layers in fp32, tf32 and
bf16 NCHW never reach cuDNN and are left out. With `fp32-nhwc` all are fp32 or tf32 in channels-last layout (as ConvNeXt
has them), two fifths of them depthwise. With `lines` they are those of one dimension, as networks for sound and sequences have them: long, dilated,
with wide filters and in groups. With `groups` they are grouped ones as networks have them: RegNet and ResNeXt, shuffled 1x1 layers, discriminators of sound and
positions of speech models.
"""
import math
import random
import sys

R = random.Random(f"preflop-choice-{sys.argv[2]}")
SIZES = (224, 112, 56, 28, 14, 7, 299, 149, 147, 73, 71, 35, 17, 8, 384, 192, 96, 48, 24, 12, 128, 64, 32, 16, 160, 80, 40, 20)
WIDTHS = (3, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 448, 480, 512, 576, 640, 672, 768, 832, 960, 1024, 1152, 1280, 1536, 2048, 19, 21, 255)
FP32_NHWC = "fp32-nhwc" in sys.argv[3:]
PHASES, FORMATS = {"fwd": 0, "dgrad": 1, "wgrad": 2}, {"fp32": 0, "tf32": 1, "fp16": 2, "bf16": 3}


def log_uniform(a, b):
    return max(1, round(math.exp(R.uniform(math.log(a), math.log(b)))))


def line():
    """A convolution over one dimension, which PyTorch runs as one over two of height 1."""
    b = R.choice((1, 2, 4, 8, 16, 32)) if R.random() < .6 else log_uniform(1, 128)
    w = R.choice((200, 400, 800, 1500, 3000, 8000, 16000, 64000)) if R.random() < .4 else log_uniform(8, 64000)
    ci, co = (R.choice(WIDTHS), R.choice(WIDTHS)) if R.random() < .5 else (log_uniform(1, 1536), log_uniform(1, 1536))
    s = R.choice((1, 2, 3, 3, 3, 4, 5, 7, 8, 9, 10, 11, 15, 16, 20, 25, 31, 32, 41, 63, 64, 128)) if R.random() < .85 else log_uniform(2, 256)
    stride, dilation, groups = R.choice((1, 1, 1, 1, 2, 2, 4, 5, s)), 1, 1
    if stride == 1 and 1 < s < 12 and R.random() < .35:
        dilation = R.choice((2, 4, 8, 16, 32, 64, 128, 256, 512))
    if R.random() < .3:
        groups = R.choice((2, 4, 8, 16, 16, 32))
        ci, co = (groups * (log_uniform(1, 96) if R.random() < .5 else R.choice((8, 16, 24, 32, 48, 64))) for _ in range(2))
        co = ci if R.random() < .7 else co
    pad = R.choice((s // 2 * dilation, s // 2 * dilation, 0))
    out = (w + 2 * pad - dilation * (s - 1) - 1) // stride + 1
    if out < 1 or 2 * b * out * co * (ci // groups) * s > 4e11 or b * max(ci * w, co * out) > 1.5e8:
        return None
    dtype = R.choice(("bf16", "bf16", "fp16", "tf32", "fp32"))
    return PHASES[R.choice(("fwd", "fwd", "dgrad", "wgrad"))], FORMATS[dtype], b, ci, 1, w, co, 1, s, stride, 0, pad, dilation, groups, 0


def group():
    """A grouped layer as networks have them, some with other sizes."""
    kind = R.choices(["net", "pointwise", "sound", "speech", "odd"], [52, 14, 10, 12, 12])[0]
    b = R.choice((1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)) if R.random() < .8 else log_uniform(1, 256)
    h, r, stride, dilation = R.choice((112, 56, 56, 28, 28, 14, 14, 7, 7, 100, 75, 50, 38, 25, 19, 128, 96, 64, 48, 32, 24, 16, 12, 8)), 3, R.choice((1, 1, 1, 2)), 1
    width = R.choice((4, 8, 8, 16, 16, 16, 24, 24, 32, 32, 40, 48, 48, 56, 64, 64, 112, 120, 128, 168, 232, 264, 328))
    groups = R.choice((2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 20, 24, 28, 32, 32, 32, 64))
    ci = co = width * groups
    w, ph = h, 1
    if kind == "pointwise":
        groups = R.choice((2, 2, 3, 4, 4, 8))
        r, ph, stride = 1, 0, 1
        ci, co = (groups * R.choice((12, 15, 16, 24, 30, 34, 48, 60, 64, 96, 120, 192, 256, 768)) for _ in range(2))
        w = h
        if R.random() < .3:
            h, w = 1, R.choice((64, 128, 256, 384, 512))
    elif kind in ("sound", "speech"):
        h, r, ph = 1, 1, 0
        if kind == "speech":
            ci = co = R.choice((512, 768, 768, 1024, 1280))
            groups, s, stride, w = R.choice((4, 8, 16, 16, 16, 32)), R.choice((128, 128, 95, 64, 31, 19, 15)), 1, R.choice((49, 99, 149, 199, 249, 299, 374, 499, 749, 999, 1499))
        else:
            groups, s, stride, w = R.choice((4, 16, 16, 64, 256)), R.choice((41, 41, 21, 15, 5)), R.choice((1, 2, 2, 4)), log_uniform(64, 16000)
            ci = R.choice((128, 256, 512, 1024))
            co = R.choice((ci, 2 * ci))
            if groups >= ci:
                return None
        pw = s // 2
    elif kind == "odd":
        ci, co = (groups * log_uniform(1, 256) for _ in range(2))
        r = R.choice((1, 3, 3, 5, 7))
        ph, h = r // 2, log_uniform(4, 160)
        w, dilation = h, R.choice((1, 1, 1, 2)) if r > 1 else 1
        ph *= dilation
    if kind not in ("sound", "speech"):
        s, pw = r, ph
    oh, ow = (h + 2 * ph - dilation * (r - 1) - 1) // stride + 1, (w + 2 * pw - dilation * (s - 1) - 1) // stride + 1
    if ci == groups or oh < 1 or ow < 1 or 2 * b * oh * ow * co * (ci // groups) * r * s > 4e11 or max(b * ci * h * w, b * co * oh * ow) > 1.5e8:
        return None
    dtype = R.choice(("bf16", "bf16", "bf16", "fp16", "tf32", "tf32", "fp32"))
    nhwc = kind not in ("sound", "speech") and dtype in ("bf16", "fp16") and R.random() < .35
    return PHASES[R.choice(("fwd", "fwd", "dgrad", "wgrad"))], FORMATS[dtype], b, ci, h, w, co, r, s, stride, ph, pw, dilation, groups, int(nhwc)


def draw():
    real = R.random() < .5
    kind = R.choices(["std", "pw", "dw", "grp", "stem", "dil", "rect", "gan"], [20, 8, 40, 10, 6, 5, 6, 5] if FP32_NHWC else [40, 16, 6, 16, 6, 5, 6, 5])[0]
    b = R.choice((1, 2, 4, 8, 16, 32, 64, 128, 256)) if real else log_uniform(1, 256)
    h = R.choice(SIZES) if real else log_uniform(4, 256)
    ci, co = (R.choice(WIDTHS), R.choice(WIDTHS)) if real else (log_uniform(2, 2048), log_uniform(2, 2048))
    r = s = R.choice((3, 3, 3, 3, 5, 5, 7, 2))
    stride, dilation, groups, pad = R.choice((1, 1, 1, 2)), 1, 1, None
    dtype = R.choice(("bf16", "bf16", "fp16", "tf32", "fp32", "fp32"))
    if kind == "pw":
        r = s = 1
    elif kind == "dw":
        dtype = R.choice(("bf16", "fp16"))
        groups, r = ci, R.choice((3, 3, 5, 7))
        co, s = ci * (2 if R.random() < .1 else 1), r
    elif kind == "grp":
        groups = R.choice((2, 3, 4, 8, 16, 32, 64))
        if R.random() < .5:
            ci = co = groups * R.choice((1, 2, 4, 8, 16, 24, 32, 64))
        ci, co = -(-ci // groups) * groups, -(-co // groups) * groups
        r = s = R.choice((3, 3, 3, 1, 5))
    elif kind == "stem":
        ci, co = R.choice((1, 3, 3, 4)), R.choice((16, 32, 64, 64, 96, 128, 768))
        r = s = R.choice((3, 7, 7, 11, 4, 16))
        stride, h = {11: 4, 4: 4, 16: 16}.get(r, R.choice((1, 2, 2))), R.choice((224, 227, 299, 384, 512, 128, 64, 32))
        pad = (0, 0) if r in (4, 16) else None
    elif kind == "dil":
        dilation, r, s, stride = R.choice((2, 4, 6, 12, 18)), 3, 3, 1
    elif kind == "rect":
        r, s = R.choice(((1, 7), (7, 1), (1, 3), (3, 1), (1, 5), (5, 1)))
        stride = 1
    elif kind == "gan":
        r = s = 4
        stride, pad = 2, (1, 1)
    ph, pw = pad or R.choice(((r // 2 * dilation, s // 2 * dilation),) * 9 + ((0, 0),))
    w = h if R.random() < .85 else max(4, int(h * R.choice((.5, .75, 1.5))))
    oh, ow = (h + 2 * ph - dilation * (r - 1) - 1) // stride + 1, (w + 2 * pw - dilation * (s - 1) - 1) // stride + 1
    if oh < 1 or ow < 1 or 2 * b * oh * ow * co * (ci // groups) * r * s > 1.5e12 or max(b * ci * h * w, b * co * oh * ow) > 3e8:
        return None
    phase = R.choice(("fwd", "fwd", "dgrad", "wgrad"))
    if FP32_NHWC:
        return PHASES[phase], R.choice((0, 1)), b, ci, h, w, co, r, s, stride, ph, pw, dilation, groups, 1
    nhwc = dtype in ("bf16", "fp16") and R.random() < .65
    if kind == "dw" and dtype == "bf16" and not nhwc:
        return None
    return PHASES[phase], FORMATS[dtype], b, ci, h, w, co, r, s, stride, ph, pw, dilation, groups, int(nhwc)


def main():
    left = int(sys.argv[1])
    drawn = line if "lines" in sys.argv[3:] else group if "groups" in sys.argv[3:] else draw
    while left > 0:
        c = drawn()
        if c is not None:
            print(*c)
            left -= 1


main()
