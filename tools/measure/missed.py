#!/usr/bin/env python3
"""Times the kinds of operators that the model missed by much: grouped convolutions of wide groups, strided and dilated lines, volumes,
recurrent layers in inference, adding by index, tables of recommenders, resizing, sampling. Then names their kernels.

usage: missed.py OUT_FOLDER [--seconds S] [--seed TEXT] [--only FAMILY[,FAMILY...]] [--list N] [--ask N] [--selftest]

Writes OUT_FOLDER/missed.csv and missed_held.csv: op, phase, dtype, shape (json, the keys of the operator tables), gpu_us, copies, kernels, then family, net
(the network whose layer it is, empty for a drawn shape), geometry (what the keys leave out: sides, strides, filters of volumes), kernel_us and grids, in
the order of kernels. The second file holds what no fit may see: every third network and every third drawn shape, by a hash of the name or of
sizes and geometry, so that all formats, passes and layouts of one layer are on one side.

All families fill at the same pace. Three quarters of the time are for timing, the rest for names: processes draw the same calls again, since no profiler may
run where calls are timed. Operators that wait for the GPU are not timed but have the sum of their kernels there. Times alone are in
OUT_FOLDER/timed.csv as they come. --list prints the first N calls by family and measures nothing; --ask writes N drawn convolutions as cudnn_choice
reads them to OUT_FOLDER/ask.txt and those of timed.csv to ask_measured.txt; --selftest runs one call of each case.
"""
import argparse
import collections
import csv
import itertools
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
import zlib

import torch
import torch.nn.functional as F

import common
import names
import operators
import ops_extra
from common import DEV, GPU, Clock, Table, allow_tf32, nbytes, rand, recover, time_calls
from operators import LOOPED, back, by_index, layer
from ops_extra import ALL, FLOATS, HALF, RND, ints, layout, schedule

REST = list(ops_extra.CASES)
BOTH = ("bf16", "fp32")
PASSES = ("fwd", "dgrad", "wgrad")
COLUMNS = ["op", "phase", "dtype", "shape", "gpu_us", "copies", "family", "net", "geometry"]
CASES = []  # (family, phase, dtype, wanted rows, generator); a generator returns a Call, or None to draw again
Call = collections.namedtuple("Call", "op shape net geometry make")
REAL = .55  # share of layers of networks
CHUNK = 40


def add(family, phase, dtypes, rows, gen):
    for dt in dtypes:
        CASES.append((family, phase, dt, rows, lambda dt=dt: gen(dt)))


def simple(family, op, phase, dtypes, rows, draw, make):
    """draw() gives (net, shape); make(dt, **shape) gives (callable, bytes)."""
    def gen(dt):
        drawn = draw()
        if drawn is None:
            return None
        net, shape = drawn
        return Call(op, shape, net, None, lambda: make(dt, **shape))
    add(family, phase, dtypes, rows, gen)


# --- convolutions ---

def convolution(dims, phase, draw):
    """draw() gives (net, layer as in operators.py)."""
    def gen(dt):
        net, c = draw()
        if c is None:
            return None
        places = math.prod(c["size"]) / (1 if c["transposed"] else math.prod(c["stride"]))
        macs = c["b"] * c["ci"] * c["co"] // c["groups"] * math.prod(c["k"]) * places
        # Direct kernels of grouped and odd layers reach a hundredth of the peak.
        if macs > (2e10 if dt == "fp32" else 4e10 if c["groups"] > 1 else 1e11):
            return None
        made = operators.convolution(dims, phase, lambda: c)(dt)
        if made is None:
            return None
        shape, make = made
        if dims < 3:
            return Call("conv_transpose2d" if c["transposed"] else "conv2d", shape, net, None, make)
        last = shape.pop("channels_last")
        if c["transposed"] and last:
            return None  # the table has no such kind
        out = [((n - 1) * st - 2 * p + dl * (k - 1) + 1) if c["transposed"] else (n + 2 * p - dl * (k - 1) - 1) // st + 1 for n, k, st, p, dl in zip(*(c[x] for x in ("size", "k", "stride", "pad", "dilation")))]
        geometry = {x: c[x] for x in ("size", "k", "stride", "pad", "dilation")}
        keys = dict(b=c["b"], ci=c["ci"], co=c["co"], area=math.prod(c["size"]), n=math.prod(out), k=math.prod(c["k"]), groups=c["groups"])
        return Call("conv_transpose3d" if c["transposed"] else "conv3d_last" if last else "conv3d", keys, net, geometry, make)
    return gen


def of_nets(dims, nets, drawn, batches):
    """Layers (ci, co, size, k, stride, pad, dilation, groups, transposed) of networks, or drawn ones."""
    def draw():
        if not RND.flip(REAL):
            return "", drawn()
        net = RND.choice(sorted(nets))
        ci, co, size, k, *rest = RND.choice(nets[net])
        options = dict(zip(("stride", "pad", "dilation", "groups", "transposed"), rest))
        return net, layer(dims, 1 if net in BY_SAMPLE else RND.choice(batches), ci, co, size, k, **options)
    return draw


def modulated(c_by_size, k=3):
    """Layers whose filters each sample scales: as many groups as samples, in one image."""
    return [(b * c, b * c, hw, k, 1, None, 1, b) for hw, c in c_by_size for b in (4, 8, 16, 32)]


BY_SAMPLE = ("stylegan2", "stylegan2_rgb", "stylegan2_up", "swagan", "gigagan", "condconv", "dynamic_conv")
STYLE = ((4, 512), (8, 512), (16, 512), (32, 512), (64, 256), (64, 512), (128, 128), (128, 256))
# Grouped layers over maps.
GROUPED = {
    "stylegan2": modulated(STYLE), "stylegan2_rgb": [(b * c, b * 3, hw, 1, 1, 0, 1, b) for hw, c in STYLE for b in (4, 8, 16)],
    "stylegan2_up": [(b * c, b * c // 2, hw, 3, 2, 0, 1, b, True) for hw, c in ((32, 512), (64, 256), (8, 1024)) for b in (4, 8, 16)],
    "swagan": modulated(((8, 512), (16, 512), (32, 512), (64, 256), (128, 128))), "gigagan": modulated(((16, 768), (32, 384), (64, 192))), "condconv": modulated(((56, 64), (28, 128), (14, 256), (7, 512))),
    "dynamic_conv": [(b * ci, b * co, hw, 1, 1, 0, 1, b) for ci, co, hw in ((96, 576, 14), (160, 960, 7), (320, 1280, 7), (64, 384, 14)) for b in (16, 32, 64)],
    "resnest50": [(64, 128, 56, 3, 1, None, 1, 2), (128, 256, 28, 3, 1, None, 1, 2), (256, 512, 14, 3, 1, None, 1, 2), (512, 1024, 7, 3, 1, None, 1, 2), (64, 32, 1, 1, 1, 0)],
    "resnext101_32x16d": [(512, 512, 56, 3, 1, None, 1, 32), (1024, 1024, 28, 3, 1, None, 1, 32), (2048, 2048, 14, 3, 1, None, 1, 32), (4096, 4096, 7, 3, 1, None, 1, 32), (1024, 1024, 56, 3, 2, None, 1, 32)],
    "sknet": [(128, 128, 56, 3, 1, 2, 2, 32), (256, 256, 28, 3, 1, 2, 2, 32), (512, 512, 14, 3, 1, 2, 2, 32)], "regnety_32gf": [(232, 232, 112, 3, 2, None, 1, 1), (464, 464, 56, 3, 2, None, 1, 2), (696, 696, 28, 3, 1, None, 1, 3), (696, 696, 56, 3, 2, None, 1, 3), (1392, 1392, 14, 3, 1, None, 1, 6), (3712, 3712, 7, 3, 1, None, 1, 16)],
    "regnety_128gf": [(1056, 1056, 28, 3, 1, None, 1, 4), (2904, 2904, 14, 3, 1, None, 1, 11), (7392, 7392, 7, 3, 1, None, 1, 28), (528, 528, 56, 3, 1, None, 1, 2)], "alexnet_groups": [(96, 256, 27, 5, 1, 2, 1, 2), (384, 384, 13, 3, 1, 1, 1, 2), (384, 256, 13, 3, 1, 1, 1, 2)],
    "shufflenet_v1": [(240, 60, 28, 1, 1, 0, 1, 3), (60, 240, 28, 1, 1, 0, 1, 3), (480, 120, 14, 1, 1, 0, 1, 3), (120, 480, 14, 1, 1, 0, 1, 3), (960, 240, 7, 1, 1, 0, 1, 3)], "condensenet": [(64, 32, 56, 3, 1, 1, 1, 4), (128, 32, 28, 3, 1, 1, 1, 4), (256, 64, 14, 3, 1, 1, 1, 4), (512, 128, 14, 1, 1, 0, 1, 4)],
    "cvt_heads": [(768, 768, 14, 3, 1, None, 1, 12), (512, 512, 16, 1, 1, 0, 1, 8), (256, 256, 32, 1, 1, 0, 1, 4), (1024, 1024, 8, 1, 1, 0, 1, 8)], "lightweight_openpose": [(256, 256, 32, 3, 1, None, 1, 8), (128, 128, 46, 7, 1, None, 1, 4), (512, 512, 46, 3, 1, None, 1, 16)],
    "msd_cqt": [(32, 32, 128, (3, 9), (1, 2), (1, 4), 1, 4), (128, 512, (64, 64), (5, 1), (3, 1), (2, 0), 1, 4)], "resnext3x": [(192, 192, 56, 3, 1, None, 1, 2), (384, 384, 28, 3, 2, None, 1, 3), (768, 768, 14, 3, 1, None, 1, 6)],
}
# Layers of one channel a group, wide, dilated and as strips.
DEPTHWISE = {
    "replknet31": [(128, 128, 56, 31, 1, None, 1, 128), (256, 256, 28, 29, 1, None, 1, 256), (512, 512, 14, 27, 1, None, 1, 512), (1024, 1024, 7, 13, 1, None, 1, 1024)],
    "van": [(c, c, hw, k, 1, None, d, c) for c, hw in ((64, 56), (128, 28), (320, 14), (512, 7)) for k, d in ((5, 1), (7, 3))],
    "segnext": [(c, c, hw, k, 1, None, 1, c) for c, hw in ((64, 128), (128, 64), (320, 32)) for k in ((1, 7), (7, 1), (1, 11), (11, 1), (1, 21), (21, 1))],
    "slak": [(124, 124, 56, (51, 5), 1, None, 1, 124), (248, 248, 28, (5, 49), 1, None, 1, 248), (496, 496, 14, (47, 5), 1, None, 1, 496)],
    "convmixer": [(768, 768, 32, 7, 1, None, 1, 768), (1536, 1536, 32, 9, 1, None, 1, 1536)], "mixnet": [(c, c, hw, k, 1, None, 1, c) for c, hw in ((60, 28), (90, 14), (200, 14)) for k in (3, 5, 7, 9, 11)],
    "deeplab_sep": [(256, 256, 65, 3, 1, None, d, 256) for d in (6, 12, 18)] + [(728, 728, 33, 3, 1, None, 2, 728)], "focalnet": [(c, c, hw, k, 1, None, 1, c) for c, hw in ((96, 56), (192, 28), (384, 14)) for k in (3, 5, 7)],
    "moganet": [(c, c, hw, k, 1, None, d, c) for c, hw in ((64, 56), (128, 28), (320, 14)) for k, d in ((5, 1), (5, 2), (7, 3))], "edgenext": [(c, c, hw, k, 1, None, 1, c) for c, hw, k in ((48, 64, 3), (96, 32, 5), (160, 16, 7), (304, 8, 9))],
}
WIDE_BATCHES = (1, 1, 1, 2, 4, 8, 16, 32, 64)


def grouped():
    r = RND
    k = r.pick(1, 3, 3, 3, 5)
    if r.flip(.45):  # a group for each sample
        g, ci = r.logi(2, 64), r.pick(16, 32, 64, 96, 128, 192, 256, 320, 384, 512, r.logi(8, 768))
        co = ci if r.flip(.7) else r.pick(3, 16, 64, 128, 256, r.logi(8, 768))
        return layer(2, 1, g * ci, g * co, r.pick(4, 8, 16, 32, 64, 128, r.logi(4, 160)), k, 1, groups=g)
    g, ci = r.pick(2, 2, 3, 4, 4, 6, 8, 16, 32, r.logi(2, 48)), r.pick(32, 48, 64, 96, 128, 232, 256, r.logi(24, 512))
    co = ci if r.flip(.7) else r.logi(16, 512)
    return layer(2, r.pick(1, 2, 4, 8, 16, 32, 64, 128), g * ci, g * co, r.pick(7, 14, 28, 56, r.logi(4, 128)), k, r.pick(1, 1, 1, 2), None, r.pick(1, 1, 1, 1, 2), g)


def single():
    r = RND
    c, dil = r.logi(8, 1536, r.pick(1, 8)), r.pick(1, 1, 1, 2, 3, 6)
    k = r.pick(3, 5, 7, 9, 11, 13, 21, 31, (1, 7), (7, 1), (1, 11), (11, 1))
    return layer(2, r.pick(1, 2, 8, 16, 32, 64, 128), c, c, r.pick(7, 14, 28, 56, r.logi(5, 128)), k, r.pick(1, 1, 1, 2), None, dil, c)


for phase, rows in (("fwd", 50), ("dgrad", 60), ("wgrad", 120)):
    add("grouped", phase, ALL, rows, convolution(2, phase, of_nets(2, GROUPED, grouped, WIDE_BATCHES)))
    add("depthwise", phase, ALL, 40, convolution(2, phase, of_nets(2, DEPTHWISE, single, (1, 2, 8, 16, 32, 64, 128))))


def stacked(c, n, k, dilations):
    return [(c, 2 * c, n, k, 1, None, d) for d in dilations]


def periods(n):
    """The period discriminator of HiFi-GAN: lines folded into columns, filters and strides along one side."""
    widths = (1, 32, 128, 512, 1024)
    return [(ci, co, (max(5, n // p // 3 ** i), p), (5, 1), (3, 1), (2, 0)) for i, (ci, co) in enumerate(zip(widths, widths[1:])) for p in (2, 3, 5, 7, 11)]


SCALE = ((1, 128, 8192, 15, 1, 7), (128, 128, 8192, 41, 2, 20, 1, 4), (128, 256, 4096, 41, 2, 20, 1, 16), (256, 512, 2048, 41, 4, 20, 1, 16), (512, 1024, 512, 41, 4, 20, 1, 16), (1024, 1024, 128, 41, 1, 20, 1, 16), (1024, 1024, 128, 5, 1, 2))
LINES = {
    "hifigan_scales": list(SCALE), "melgan_discriminator": [(1, 16, 16384, 15, 1, 7), (16, 64, 16384, 41, 4, 20, 1, 4), (64, 256, 4096, 41, 4, 20, 1, 16), (256, 1024, 1024, 41, 4, 20, 1, 64), (1024, 1024, 256, 41, 4, 20, 1, 256), (1024, 1024, 64, 5, 1, 2)],
    "hifigan": [(c, c, n, k, 1, None, d) for c, n in ((256, 256), (128, 2048), (64, 4096), (32, 8192)) for k in (3, 7, 11) for d in (1, 3, 5)], "hifigan_up": [(512, 256, 32, 16, 8, 4, 1, 1, True), (256, 128, 256, 16, 8, 4, 1, 1, True), (128, 64, 2048, 4, 2, 1, 1, 1, True), (64, 32, 4096, 4, 2, 1, 1, 1, True)],
    "wavenet_wide": stacked(64, 16000, 3, (1, 2, 8, 32, 128, 512)) + stacked(128, 8000, 2, (1, 4, 16, 64, 256)), "parallel_wavegan": stacked(64, 25600, 3, (1, 2, 4, 8, 16, 64, 256, 512)), "tcn": [(c, c, n, k, 1, None, d) for c, n, k in ((25, 784, 7), (64, 1000, 3), (150, 400, 5)) for d in (1, 2, 4, 8, 16, 64)],
    "conv_tasnet": [(512, 512, 3999, 3, 1, None, d, 512) for d in (1, 4, 16, 128)] + [(1, 512, 32000, 16, 8, 0), (128, 512, 3999, 1), (512, 1, 3999, 16, 8, 0, 1, 1, True)], "encodec": [(1, 32, 24000, 7), (32, 64, 24000, 4, 2, 1), (64, 128, 12000, 8, 4, 2), (128, 256, 3000, 10, 5, 3), (256, 512, 600, 16, 8, 4), (512, 128, 75, 7), (512, 256, 75, 16, 8, 4, 1, 1, True), (256, 128, 600, 10, 5, 2, 1, 1, True)],
    "dac": [(64, 64, 44100, 7, 1, None, d) for d in (1, 3, 9)] + [(64, 128, 44100, 4, 2, 1), (128, 256, 22050, 8, 4, 2), (256, 512, 5512, 16, 8, 4), (1536, 768, 86, 16, 8, 4, 1, 1, True)], "demucs": [(2, 64, 44100, 8, 4, 2), (64, 128, 11025, 8, 4, 2), (128, 256, 2756, 8, 4, 2), (256, 512, 689, 8, 4, 2), (512, 1024, 172, 8, 4, 2), (64, 128, 11025, 1, 1, 0), (128, 64, 11025, 8, 4, 2, 1, 1, True)],
    "quartznet": [(256, 256, 1000, 33, 1, None, 1, 256), (256, 256, 1000, 39, 1, None, 1, 256), (512, 512, 1000, 51, 1, None, 1, 512), (512, 512, 1000, 75, 1, None, 1, 512), (512, 512, 1000, 87, 1, None, 2, 512), (64, 256, 2000, 33, 2, None)], "jasper": [(64, 256, 2000, 11, 2, 5), (256, 256, 1000, 11), (384, 384, 1000, 13), (512, 512, 1000, 17), (640, 640, 1000, 21), (768, 768, 1000, 25), (768, 896, 1000, 29, 1, None, 2)],
    "wav2letter": [(250, 250, 800, 7), (250, 2000, 800, 32), (2000, 2000, 800, 1)], "hubert_position": [(1024, 1024, 499, 128, 1, 64, 1, 16), (768, 768, 999, 95, 1, 47, 1, 16), (1024, 1024, 749, 19, 1, 9, 1, 16)], "ecg_resnet": [(12, 64, 5000, 15, 2, 7), (64, 64, 1250, 7), (64, 128, 1250, 7, 2, 3), (128, 256, 625, 7, 2, 3), (256, 512, 313, 7, 2, 3), (64, 128, 1250, 1, 2, 0)],
    "resnext1d": [(c, c, n, 16, st, 8, 1, c // 16) for c, n, st in ((64, 2500, 1), (128, 1250, 2), (256, 625, 1), (512, 312, 2), (1024, 156, 1))], "sashimi": [(128, 128, 16000, 4, 4, 0), (256, 256, 4000, 4, 4, 0)], "basenji": [(4, 288, 131072, 15), (288, 339, 65536, 5), (768, 768, 1024, 3, 1, None, 2), (768, 384, 1024, 3, 1, None, 16), (768, 384, 1024, 3, 1, None, 64)],
    "enformer_stem": [(4, 768, 49152, 15), (768, 768, 24576, 1), (768, 896, 12288, 5), (896, 1024, 6144, 5)], "hyena": [(c, c, n, 3, 1, 2, 1, c) for c, n in ((768, 1024), (2304, 1024), (3072, 2048), (384, 8192))], "mamba_wide": [(c, c, n, 4, 1, 3, 1, c) for c, n in ((1536, 2048), (5120, 1024), (2048, 4096), (8192, 512))],
    "xvector": [(24, 512, 300, 5), (512, 512, 300, 3, 1, None, 2), (512, 512, 300, 3, 1, None, 3), (512, 1500, 300, 1)], "ecapa": [(80, 1024, 300, 5), (128, 128, 300, 3, 1, None, 2), (128, 128, 300, 3, 1, None, 4), (1024, 1024, 300, 1), (3072, 1536, 300, 1)],
}
FOLDED = {"hifigan_periods": periods(8192), "univnet_resolutions": [(1, 32, (513, 100), (3, 9), 1, (1, 4)), (32, 32, (513, 100), (3, 9), (1, 2), (1, 4)), (32, 32, (513, 50), (3, 9), (1, 2), (1, 4)), (32, 32, (513, 25), 3)], "encodec_discriminator": [(2, 32, (100, 513), (3, 9), 1, (1, 4))] + [(32, 32, (100, 513), (3, 9), (1, 2), (d, 4), (d, 1)) for d in (1, 2, 4)],
          "dac_periods": periods(44100), "timesnet_folded": [(64, 64, (n, p), k) for n, p in ((16, 6), (4, 24), (8, 12)) for k in (1, 3, 5, 7, 9, 11)], "deepspeech_front": [(1, 32, (161, 400), (41, 11), (2, 2), (20, 5)), (32, 32, (81, 400), (21, 11), (2, 1), (10, 5)), (32, 96, (41, 400), (21, 11), (2, 1), (10, 5))], "crnn": [(256, 256, (8, 100), 3), (512, 512, (2, 101), 2, 1, 0), (64, 128, (16, 200), 3)]}
LINE_BATCHES = (1, 2, 4, 8, 16, 32, 64)


def line():
    r = RND
    b, n = r.choice(LINE_BATCHES), r.pick(r.logi(32, 65536), r.logi(256, 16384))
    kind = r.pick("strided", "dilated", "grouped", "depthwise", "transposed")
    ci, co = (r.pick(32, 64, 128, 256, 512, 768, 1024, r.logi(1, 1024), r.logi(8, 1024, 8)) for _ in range(2))
    if kind == "strided":
        st = r.pick(2, 2, 3, 4, 5, 8, 10, r.logi(2, 32))
        k = r.pick(st, 2 * st, 3, 5, 7, 15, 41)
        return layer(1, b, ci, co, n, k, st, r.pick(None, 0))
    if kind == "dilated":
        k, d = r.pick(2, 3, 3, 5, 7, 11), 1 << r.randint(1, 9)
        return layer(1, b, ci, r.pick(ci, co), n, k, 1, None, d)
    if kind == "grouped":
        g, st, dil = r.pick(2, 4, 8, 16, 16, 32, 64), r.pick(1, 1, 2, 4), 1
        ci, co = (g * r.pick(4, 8, 16, 24, 32, 48, 64, r.logi(2, 96)) for _ in range(2))
        if st == 1 and r.flip(.3):
            dil = r.pick(2, 4, 16)
        return layer(1, b, ci, r.pick(ci, ci, co), n, r.pick(3, 5, 7, 15, 16, 31, 41, 64, 95, 128), st, None, dil, g)
    if kind == "depthwise":
        return layer(1, b, ci, ci, n, r.pick(3, 4, 7, 15, 31, 33, 63, 75), r.pick(1, 1, 1, 2), None, r.pick(1, 1, 2, 8, 32), ci)
    st = r.pick(2, 4, 5, 8, 10)
    return layer(1, b, ci, co, r.logi(16, 8192), 2 * st, st, st // 2, transposed=True)


def folded():
    r = RND
    sides = (r.logi(4, 600), r.logi(2, 512))
    return layer(2, r.pick(1, 2, 4, 8, 16, 32, 64), r.pick(1, 2, 32, 64, r.logi(1, 512)), r.pick(32, 64, 128, 512, r.logi(4, 1024)), sides, r.pick((5, 1), (1, 5), (3, 9), (9, 3), (7, 3), (21, 11), (41, 11), 3), r.pick((3, 1), (1, 2), (2, 1), (4, 1), (2, 2), 1), None, 1)


for phase, rows in (("fwd", 60), ("dgrad", 70), ("wgrad", 100)):
    add("lines", phase, ALL, rows, convolution(1, phase, of_nets(1, LINES, line, LINE_BATCHES)))
    add("folded", phase, ALL, 24, convolution(2, phase, of_nets(2, FOLDED, folded, (2, 4, 8, 16, 32))))


def cube(t, hw):
    return t, hw, hw


def halves(widths, sizes):
    """Both convolutions of every level of a U-net over volumes, the step down and the step up."""
    out = []
    for i, (c, s) in enumerate(zip(widths, sizes)):
        out += [(c, c, s, 3), (widths[i - 1] if i else 1, c, s, 3)]
        if i:
            out += [(widths[i - 1], c, sizes[i - 1], 3, 2), (c, widths[i - 1], s, 2, 2, 0, 1, 1, True), (2 * widths[i - 1], widths[i - 1], sizes[i - 1], 3)]
    return out


VOLUMES = {
    "c3d": [(3, 64, cube(16, 112), 3), (64, 128, cube(16, 56), 3), (128, 256, cube(8, 28), 3), (256, 256, cube(8, 28), 3), (256, 512, cube(4, 14), 3), (512, 512, cube(2, 7), 3)],
    "i3d": [(3, 64, cube(32, 112), 7, 2), (64, 192, cube(16, 56), 3), (96, 128, cube(16, 28), 3), (16, 32, cube(16, 28), 3), (160, 320, cube(8, 14), 3), (480, 192, cube(8, 14), 1), (832, 384, cube(4, 7), 1), (192, 384, cube(4, 7), 3)],
    "slowfast": [(3, 64, cube(4, 224), (1, 7, 7), (1, 2, 2)), (3, 8, cube(32, 224), (5, 7, 7), (1, 2, 2)), (64, 64, cube(4, 56), (1, 3, 3)), (8, 8, cube(32, 56), (1, 3, 3)), (32, 8, cube(32, 56), (3, 1, 1)), (8, 16, cube(32, 56), (7, 1, 1), (4, 1, 1), (3, 0, 0)), (320, 128, cube(4, 28), 1), (1024, 256, cube(4, 14), (3, 1, 1)), (256, 256, cube(4, 14), (1, 3, 3)), (512, 512, cube(4, 7), (1, 3, 3))],
    "r2plus1d": [(3, 45, cube(16, 112), (1, 7, 7), (1, 2, 2)), (45, 64, cube(16, 56), (3, 1, 1)), (64, 144, cube(16, 56), (1, 3, 3)), (144, 64, cube(16, 56), (3, 1, 1)), (64, 230, cube(16, 56), (1, 3, 3), (1, 2, 2)), (230, 128, cube(16, 28), (3, 1, 1), (2, 1, 1)), (128, 288, cube(8, 28), (1, 3, 3)), (576, 256, cube(4, 14), (3, 1, 1)), (512, 1152, cube(2, 7), (1, 3, 3))],
    "mc3": [(64, 64, cube(16, 56), 3), (64, 128, cube(16, 56), (1, 3, 3), (1, 2, 2)), (128, 128, cube(16, 28), (1, 3, 3)), (256, 256, cube(16, 14), (1, 3, 3))], "x3d": [(3, 24, cube(13, 160), (1, 3, 3), (1, 2, 2)), (24, 24, cube(13, 80), (5, 1, 1), 1, (2, 0, 0), 1, 24)] + [(c, c, cube(13, hw), 3, 1, None, 1, c) for c, hw in ((54, 40), (108, 20), (216, 10), (432, 5))] + [(24, 54, cube(13, 40), 1), (216, 96, cube(13, 10), 1)],
    "ir_csn": [(c, c, cube(8, hw), 3, 1, None, 1, c) for c, hw in ((64, 56), (128, 28), (256, 14), (512, 7))] + [(256, 64, cube(8, 56), 1), (1024, 256, cube(8, 14), 1)], "s3d": [(64, 192, cube(32, 56), (1, 3, 3)), (192, 192, cube(32, 56), (3, 1, 1)), (96, 208, cube(16, 14), (1, 3, 3)), (208, 208, cube(16, 14), (3, 1, 1)), (480, 192, cube(16, 14), 1)],
    "mvit": [(3, 96, cube(16, 224), (3, 7, 7), (2, 4, 4))] + [(96, 96, cube(8, hw), 3, (1, st, st), None, 1, 96) for hw, st in ((56, 1), (56, 8), (28, 4), (14, 2))], "video_patches": [(3, 128, cube(32, 224), (2, 4, 4), (2, 4, 4), 0), (3, 1024, cube(16, 224), (2, 16, 16), (2, 16, 16), 0), (16, 1152, cube(8, 64), (1, 2, 2), (1, 2, 2), 0), (16, 3072, cube(13, 60), (1, 2, 2), (1, 2, 2), 0)],
    "unet3d": halves((32, 64, 128, 256), (cube(64, 64), cube(32, 32), cube(16, 16), cube(8, 8))), "nnunet": halves((32, 64, 128, 256, 320), (cube(96, 96), cube(48, 48), cube(24, 24), cube(12, 12), cube(6, 6))), "vnet": [(16, 16, cube(64, 64), 5), (32, 32, cube(32, 32), 5), (64, 64, cube(16, 16), 5), (128, 128, cube(8, 8), 5), (16, 32, cube(64, 64), 2, 2, 0), (64, 128, cube(16, 16), 2, 2, 0), (128, 64, cube(8, 8), 2, 2, 0, 1, 1, True)],
    "segresnet": [(16, 16, cube(96, 112), 3), (32, 32, cube(48, 56), 3), (64, 64, cube(24, 28), 3), (128, 128, cube(12, 14), 3), (4, 16, cube(96, 112), 3), (16, 32, cube(96, 112), 3, 2), (32, 16, cube(48, 56), 1)], "densenet3d": [(c, 128, cube(t, hw), 1) for c, t, hw in ((64, 16, 28), (224, 8, 14), (512, 4, 7))] + [(128, 32, cube(t, hw), 3) for t, hw in ((16, 28), (8, 14), (4, 7))] + [(1, 64, cube(64, 112), 7, 2)],
    "wan_vae": [(96, 96, cube(5, 120), 3, 1, (0, 1, 1)), (192, 192, cube(5, 60), 3, 1, (0, 1, 1)), (384, 384, cube(4, 30), 3, 1, (0, 1, 1)), (3, 96, cube(5, 120), 3, 1, (0, 1, 1)), (384, 384, cube(6, 60), (3, 1, 1), (2, 1, 1), 0)], "cogvideo_vae": [(128, 128, cube(4, 128), 3, 1, (0, 1, 1)), (256, 256, cube(4, 64), 3, 1, (0, 1, 1)), (512, 512, cube(4, 32), 3, 1, (0, 1, 1)), (512, 512, cube(4, 32), 1)],
    "gan3d": [(200, 512, (1, 1, 1), 4, 1, 0, 1, 1, True), (512, 256, cube(4, 4), 4, 2, 1, 1, 1, True), (256, 128, cube(8, 8), 4, 2, 1, 1, 1, True), (128, 64, cube(16, 16), 4, 2, 1, 1, 1, True), (64, 1, cube(32, 32), 4, 2, 1, 1, 1, True), (1, 64, cube(64, 64), 4, 2, 1), (64, 128, cube(32, 32), 4, 2, 1)], "voxelnet": [(128, 64, (10, 400, 352), 3, (2, 1, 1), (1, 1, 1)), (64, 64, (5, 200, 176), 3, 1, (0, 1, 1))],
    "stereo_psm": [(64, 32, (48, 64, 128), 3), (32, 32, (48, 64, 128), 3), (32, 64, (48, 64, 128), 3, 2), (64, 64, (24, 32, 64), 3), (32, 1, (48, 64, 128), 3), (64, 32, (24, 32, 64), 2, 2, 0, 1, 1, True)], "deform_reg": [(2, 16, (80, 96, 112), 3, 2), (16, 32, (40, 48, 56), 3, 2), (32, 32, (20, 24, 28), 3), (48, 32, (40, 48, 56), 3), (16, 3, (80, 96, 112), 3)], "slice_net": [(1, 32, (20, 256, 256), (1, 3, 3)), (32, 32, (20, 256, 256), (1, 3, 3)), (64, 128, (20, 64, 64), 3, (1, 2, 2)), (256, 256, (10, 16, 16), 3), (128, 64, (20, 32, 32), (1, 2, 2), (1, 2, 2), 0, 1, 1, True)],
}


def volume():
    r = RND
    size = (r.pick(4, 8, 16, 32, r.logi(2, 96)), *[r.pick(7, 14, 16, 28, 32, 56, 64, r.logi(4, 160))] * 2)
    wide = r.flip(.75)  # multiples of 8 reach tensor cores, others hardly
    ci, co = (r.logi(8, 640, r.pick(8, 16, 32)) if wide else r.logi(1, 320) for _ in range(2))
    k, b = r.pick(3, 3, 3, 3, 1, 2, 5, (1, 3, 3), (3, 1, 1), (1, 5, 5), (5, 1, 1)), r.pick(1, 1, 2, 4, 8, 16)
    if r.flip(.15):
        k = r.pick(2, 2, 4, (1, 2, 2))
        return layer(3, b, ci, co, size, k, k if k != 4 else 2, 0 if k != 4 else 1, transposed=True)
    if r.flip(.12):
        return layer(3, b, ci, ci, size, r.pick(3, 3, 5, 7, (1, 3, 3)), r.pick(1, 1, 2), groups=ci)
    if r.flip(.1):
        g = r.pick(2, 4, 8, 16)
        ci, co = (-(-c // g) * g for c in (ci, co))
        return layer(3, b, ci, co, size, k, r.pick(1, 2), groups=g)
    return layer(3, b, r.pick(ci, ci, ci, 1, 3), co, size, k, r.pick(1, 1, 1, 2, (1, 2, 2), (2, 1, 1)), None, r.pick(1, 1, 1, 1, 1, 2))


for phase in PASSES:
    add("volumes", phase, ("bf16",), 140, convolution(3, phase, of_nets(3, VOLUMES, volume, (1, 1, 2, 4, 8, 16))))
    add("volumes", phase, ("fp16", "tf32", "fp32"), 70, convolution(3, phase, of_nets(3, VOLUMES, volume, (1, 1, 2, 4, 8, 16))))


# --- recurrent layers ---

# input, hidden, layers, two directions, batches, lengths
RECURRENT = {
    "imdb": (300, 256, 2, True, (32, 64, 128), (200, 256, 400)), "awd_lm": (400, 1150, 1, False, (20, 80), (70, 140)), "ptb_large": (1500, 1500, 2, False, (20, 64), (35,)), "crnn_reader": (512, 256, 2, True, (16, 64, 256), (25, 32, 100)), "bidaf": (200, 100, 1, True, (32, 60), (30, 300, 400)),
    "tacotron": (256, 128, 1, True, (32, 64), (150, 300)), "tacotron2": (512, 256, 1, True, (32, 64), (150,)), "las": (320, 256, 1, True, (16, 32), (200, 400, 800)), "deepspeech2": (1312, 800, 5, True, (8, 32), (150, 400)), "rnnt": (240, 1024, 2, False, (8, 32), (200, 400)), "sales": (10, 64, 2, False, (64, 256, 1024), (28, 90, 365)),
    "tagger": (100, 200, 1, True, (10, 32, 128), (25, 50)), "elmo": (512, 512, 2, False, (16, 128), (20, 50)), "sketch": (5, 512, 1, True, (100,), (250,)), "convolutional_sound": (640, 512, 2, True, (8, 32), (300, 500)), "trajectory": (2, 128, 1, False, (256, 1024), (8, 20)), "session": (50, 100, 1, False, (512, 2048), (10, 50)), "anomaly": (38, 38, 3, False, (64, 256), (100,)), "gpt_free": (1024, 2048, 1, False, (1, 32), (64, 128)),
}


def recurrent(kind, phase, train):
    def gen(dt):
        r, net = RND, ""
        if r.flip(REAL):
            net = r.choice(sorted(RECURRENT))
            i, h, layers, two, batches, lengths = RECURRENT[net]
            b, s = r.choice(batches), r.choice(lengths)
        else:
            b, s = r.pick(1, 8, 16, 32, 64, 128, 256, r.logi(1, 1024)), r.pick(r.logi(2, 64), r.logi(16, 512))
            i, h = (r.pick(64, 128, 256, 300, 512, 650, 768, 1024, r.logi(16, 2048), r.logi(16, 2048, 8)) for _ in range(2))
            layers, two = r.pick(1, 1, 2, 2, 3, 4), r.flip(.4)
        way = 2 if two else 1
        if b * s * h * layers * way > 3e7 or s * layers * way > 1200 or b * s * layers * way * h * (h + i) > (2e11 if dt in HALF else 3e10):
            return None
        shape, make = ops_extra.recurrent(dt, kind, phase, train, b, s, i, h, layers, two)
        return Call(kind, shape, net, None, make)
    return gen


for kind, rows in (("lstm", 60), ("gru", 24), ("rnn", 10)):
    add("recurrent", kind + " infer", ("bf16",), rows, recurrent(kind, "fwd", False))
    add("recurrent", kind + " infer", ("fp16", "tf32", "fp32"), rows // 2, recurrent(kind, "fwd", False))
    add("recurrent", kind + " train", HALF if kind == "rnn" else ALL, rows // 4, recurrent(kind, "fwd", True))
    add("recurrent", kind + " bwd", ALL, rows // 4, recurrent(kind, "bwd", True))


# --- adding and picking by index ---

# nodes, edges, widths of features (one for each head in scores of attention)
GRAPHS = {
    "gat_cora": (2708, 13264, (8, 64, 7)), "gat_pubmed": (19717, 108365, (8, 64, 3)), "gat_arxiv": (169343, 1335586, (3, 4, 250, 256)), "gat_ppi": (2245, 61318, (4, 6, 256, 1024)), "sage_flickr": (89250, 899756, (256, 500)), "sage_sampled": (30000, 250000, (100, 256)), "schnet_qm9": (2304, 41000, (64, 128)), "dimenet": (20000, 180000, (8, 64, 128)),
    "gin_molecules": (6500, 14000, (32, 64, 300)), "mace": (1536, 60000, (128, 512)), "meshgraphnet": (40000, 230000, (3, 128)), "graphcast": (40962, 327660, (256, 512)), "pointtransformer": (40960, 655360, (8, 32, 64)), "egnn": (3000, 87000, (1, 3, 64)), "lightgcn_yelp": (69716, 1561406, (64,)), "transformer_conv": (60000, 600000, (4, 8, 128, 256)),
    "edge_conv": (32768, 655360, (64, 128)), "gatv2": (60000, 480000, (1, 8, 16, 128)), "rgcn_mutag": (23644, 148454, (16, 32)), "graph_sums": (128, 6500, (64, 128, 300)), "cloud_sums": (512, 262144, (4, 64)),
}


def picked():
    r, net = RND, ""
    if r.flip(REAL):
        net = r.choice(sorted(GRAPHS))
        v, n, widths = GRAPHS[net]
        d = r.choice(widths)
    else:
        v, d, n = r.logi(16, 1 << 20), r.pick(1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, r.logi(1, 1024)), r.logi(256, 1 << 21)
    return (net, dict(v=v, d=d, n=n)) if max(v, n) * d < 1.7e8 and n / v < 3000 else None


simple("graphs", "scatter_add", "fwd", BOTH, 45, picked, by_index(lambda t, i, s: t.scatter_add_(0, i, s), True))
simple("graphs", "index_add", "fwd", BOTH, 50, picked, by_index(lambda t, i, s: t.index_add_(0, i, s)))
simple("graphs", "scatter_reduce", "fwd", BOTH, 25, picked, by_index(lambda t, i, s: t.scatter_reduce_(0, i, s, "amax"), True))
simple("graphs", "index_put_add", "fwd", BOTH, 40, picked, by_index(lambda t, i, s: t.index_put_((i,), s, accumulate=True)))
simple("graphs", "index_select", "fwd", BOTH, 25, picked, by_index(lambda t, i, s: torch.index_select(t, 0, i)))
simple("graphs", "index_select", "fwd", BOTH, 25, picked, by_index(lambda t, i, s: t[i]))
simple("graphs", "gather_dim", "fwd", BOTH, 20, picked, by_index(lambda t, i, s: torch.gather(t, 0, i), True))

# --- tables ---

# rows of the table, width, look-ups or bags, look-ups of a bag
TABLES = {
    "dlrm_kaggle": ((1460, 10131227 // 4, 305, 93145, 3194), (16,), (128, 2048, 8192), (1,)), "dlrm_terabyte": ((1543, 63, 39979, 2953546, 403346), (64, 128), (2048, 16384, 65536), (1, 1, 4)), "dlrm_multihot": ((3014529, 1572176, 36746, 17245, 7424), (128,), (1024, 4096), (3, 10, 27, 100)),
    "wide_deep": ((1000, 100000, 500000), (8, 32), (4096, 40960), (1,)), "deepfm": ((100, 10000, 1000000), (10, 16), (1024, 8192, 53248), (1,)), "ncf": ((138493, 26744), (8, 64), (2048, 65536), (1,)), "sasrec": ((12102, 57289, 200000), (50, 64, 256), (6400, 25600), (1,)), "din": ((63001, 801, 192403), (18, 64), (3200, 12800), (1, 50)),
    "youtube": ((1000000, 100000), (64, 256), (512, 4096), (20, 50)), "fasttext": ((2000000, 100000), (100, 300), (64, 512, 4096), (10, 30, 80)), "skipgram": ((71290, 253855, 1000000), (100, 128, 300), (1024, 16384), (1,)), "entities": ((14541, 40943, 1000000), (200, 400, 500), (512, 1024, 32768), (1,)), "hash_grid": ((524288, 16384, 4096), (2, 4), (262144, 1048576), (1,)), "bert4rec": ((3706, 26744), (64, 256), (12800, 51200), (1,)),
}


def look_ups(bag):
    def draw():
        r, net = RND, ""
        if r.flip(REAL):
            net = r.choice(sorted(TABLES))
            v, d, n, k = (r.choice(options) for options in TABLES[net])
        else:
            v, d = r.pick(r.logi(10, 1 << 22), r.logi(1000, 1 << 20)), r.pick(4, 8, 10, 16, 32, 64, 100, 128, 256, r.logi(2, 512))
            n, k = r.pick(512, 1024, 2048, 4096, 8192, 65536, r.logi(16, 1 << 18)), r.pick(1, 2, 4, 10, 20, 50, 100, r.logi(1, 200))
        if v * d > 4e8 or n * k * (d if bag else 1) > 4e8 or n * d > 1.5e8 or bag and n * k > 8e6:
            return None
        return net, dict(v=v, d=d, n=n, **(dict(k=k) if bag else {}))
    return draw


def embedding(dt, v, d, n):
    w, index = rand(v, d, dt=dt), ints(v, n)
    return (lambda: F.embedding(index, w)), nbytes(w)


def embedding_bwd(dt, v, d, n):
    g, index = rand(n, d, dt=dt), ints(v, n)
    return (lambda: torch.ops.aten.embedding_dense_backward(g, index, v, -1, False)), nbytes(g) + v * d * g.element_size()


simple("tables", "embedding", "fwd", BOTH, 40, look_ups(False), embedding)
simple("tables", "embedding", "bwd", BOTH, 60, look_ups(False), embedding_bwd)
simple("tables", "embedding_bag", "fwd", BOTH, 50, look_ups(True), operators.bags("fwd"))
simple("tables", "embedding_bag", "bwd", BOTH, 50, look_ups(True), operators.bags("bwd"))

# --- resizing ---

# channels, side, side of the result
RESIZED = {
    "vit_position": ((384, 768, 1024), 14, (16, 24, 27, 32, 37, 48, 64)), "vit_position_small": ((192, 1280), 7, (8, 12, 14, 16)), "super_resolution": ((3,), 64, (128, 192, 256)), "super_resolution_far": ((3, 1), 128, (256, 512)), "esrgan_up": ((64,), 64, (128, 256)), "unet_up": ((64, 128, 256, 512), 32, (64,)), "unet_up_deep": ((512, 1024), 16, (32,)),
    "diffusion_up": ((320, 640, 1280), 32, (64,)), "vae_up": ((128, 256, 512), 64, (128,)), "fpn_up": ((256,), 25, (50,)), "fpn_up_wide": ((256,), 50, (100,)), "yolo_up": ((128, 256, 512), 20, (40,)), "hrnet_fuse": ((18, 36, 48, 72), 14, (28, 56, 112)), "thumbnails": ((3,), 256, (32, 64, 128, 224)), "clip_input": ((3,), 512, (224, 336)), "dense_depth": ((64, 128, 256), 48, (96, 192)), "biggan_up": ((96, 192, 384, 768), 16, (32,)), "masks": ((1, 21, 80), 28, (56, 112, 224)), "segmentation_logits": ((19, 21, 150), 64, (256, 512)),
}


def resized(mode):
    def draw():
        r, net = RND, ""
        b = r.pick(1, 1, 2, 4, 8, 16, 32, 64)
        if r.flip(REAL):
            net = r.choice(sorted(RESIZED))
            channels, side, out = RESIZED[net]
            c, side, out = r.choice(channels), side, r.choice(out)
        else:
            c, side = r.pick(1, 3, 16, 21, 64, 128, 256, 512, r.logi(1, 1280)), r.pick(7, 8, 14, 16, 28, 32, 56, 64, 128, r.logi(3, 300))
            out = side * r.pick(2, 2, 2, 3, 4, 8) if r.flip(.6) else r.logi(4, 512)
        most = 6e6 if mode == "bicubic" else 8e7
        if b * c * max(out, side) ** 2 > most or side == out:
            return None
        return net, dict(b=b, c=c, hw=side, out=out, mode=mode)
    return draw


def resize(op, mode, phase, dtypes, rows):
    made = operators.resize(phase)

    def gen(dt):
        drawn = resized(mode)()
        if drawn is None:
            return None
        net, s = drawn
        keys = s if op == "interpolate" else dict(b=s["b"], c=s["c"], area=s["hw"] ** 2, n=s["out"] ** 2)
        return Call(op, keys, net, None, lambda: made(dt, **s, channels_last=False))
    add("resizing", f"{mode} {phase}", dtypes, rows, gen)


resize("interpolate_bicubic", "bicubic", "fwd", FLOATS, 40)
resize("interpolate_bicubic", "bicubic", "bwd", BOTH, 50)
resize("interpolate_nearest", "nearest", "bwd", FLOATS, 50)
resize("interpolate", "nearest", "fwd", BOTH, 20)
resize("interpolate", "bilinear", "fwd", BOTH, 12)
resize("interpolate_bilinear", "bilinear", "bwd", BOTH, 20)

# --- the worst of the other operators: more of the shapes of operators.py, with the keys of the table ---

TRANSLATED = {
    "argmax_inner": "max_inner", "cumsum_inner": "cumsum", "logcumsumexp": "cummax", "index": "index_select", "index_copy": "index_put",
}
WANTED = dict(multinomial=60, nonzero=8, masked_select=8, unique=14, bincount=14, randperm=8, cholesky=8, solve=14, inv=10, qr=10, eigh=14, svd=10, solve_triangular=16, ctc_loss=10, kthvalue=8, max_rows=14, max_inner=14, argmax_inner=10, sum_inner=14, softmax_inner=12, log_softmax_inner=12, cumsum=8, cumsum_inner=10, cummax=12, logcumsumexp=6,
              var_mean=16, gather_rows=14, fft_c2c=10, fft_r2c=12, fft_c2r=16, maxpool3d=16, avgpool3d=16, interpolate3d=12, cross_entropy2d=16, grid_sample=14, unfold=10, fold=10, topk=6)


def table_keys(op, s):
    """The op and keys of the operator tables for a shape of operators.py: areas and places instead of sides."""
    if op in ("maxpool3d", "avgpool3d"):
        out = lambda n: (n + 2 * s["pad"] - s["k"]) // s["stride"] + 1
        return op, dict(rows=s["b"] * s["c"], area=s["depth"] * s["hw"] ** 2, k=s["k"] ** 3, n=out(s["depth"]) * out(s["hw"]) ** 2)
    if op == "interpolate3d":
        area = s["depth"] * s["hw"] ** 2
        return op + ("_nearest" if s["mode"] == "nearest" else ""), dict(rows=s["b"] * s["c"], area=area, n=area * s["scale"] ** 3)
    if op == "cross_entropy2d":
        return op, dict(b=s["b"], v=s["v"], area=s["hw"] ** 2)
    if op == "grid_sample":
        return op + ("_nearest" if s["mode"] == "nearest" else ""), dict(b=s["b"], c=s["c"], area=s["hw"] ** 2, n=s["out"] ** 2)
    if op in ("unfold", "fold"):
        return op, dict(b=s["b"], c=s["c"], area=s["hw"] ** 2, k=s["k"] ** 2, n=((s["hw"] + 2 * s["pad"] - s["k"]) // s["stride"] + 1) ** 2)
    if op == "kthvalue":
        s = dict(rows=s["rows"], cols=s["cols"])
    if op in ("cholesky", "inv", "qr", "eigh", "svd"):
        s = dict(rows=s["rows"], n=s["n"])
    return TRANSLATED.get(op, op), {k: v for k, v in s.items() if k != "loop"}


def scores():
    """Probabilities that something is drawn from: words, moves, samples."""
    r, net = RND, ""
    if r.flip(REAL):
        net, (rows, cols) = r.choice(sorted({"words_gpt2": ((1, 4, 8, 32, 64), (50257,)), "words_llama": ((1, 8, 32, 256), (32000, 128256)), "words_qwen": ((1, 4, 64), (151936,)), "moves": ((16, 256, 4096), (4, 18, 361)), "centres": ((1,), (100000, 1000000)), "experts": ((4096, 32768), (8, 64)), "codes": ((8, 64, 1024), (1024, 8192)), "levels": ((4096, 65536), (256,))}.items()))
        rows, cols = r.choice(rows), r.choice(cols)
    else:
        rows, cols = r.logi(1, 65536), r.logi(2, 1 << 18)
    return (net, dict(rows=rows, cols=cols)) if 16 < rows * cols < 5e7 else None


for op, phase, dt, _, gen in REST:
    if op in WANTED and op != "multinomial":
        def again(dt, op=op, gen=gen):
            drawn = gen()
            if drawn is None:
                return None
            keys, geometry = table_keys(op, drawn[0]), {k: v for k, v in drawn[0].items() if k != "loop"}
            return Call(*keys, "", None if geometry == keys[1] else geometry, drawn[1])
        add("waiting" if op in LOOPED else "others", phase, (dt,), WANTED[op], again)
simple("waiting", "multinomial", "fwd", ("fp32",), WANTED["multinomial"], scores, lambda dt, rows, cols: (lambda x: ((lambda: torch.multinomial(x, 1)), 2 * nbytes(x)))(rand(rows, cols, dt=dt).abs()))


# --- drawing, timing, naming ---

def calls(cases, selftest):
    """All calls in their order, which depends on nothing but the seed."""
    for turn, at in enumerate(schedule(cases, selftest)):
        family, phase, dt, _, gen = cases[at]
        call = None
        while call is None:
            call = gen()
        yield turn, at, family, phase.split()[-1].replace("infer", "fwd").replace("train", "fwd"), dt, call


def held(call):
    """Is a call for judging alone? A whole network with all its layers, or a shape in all its formats, passes and layouts."""
    text = call.net or json.dumps([{k: v for k, v in call.shape.items() if k not in ("channels_last", "train")}, call.geometry], sort_keys=True)
    return zlib.crc32(text.encode()) % 3 == 0


def start(a):
    warnings.filterwarnings("ignore")
    RND.seed("preflop-missed-" + a.seed)
    torch.manual_seed(20261119)
    return [c for c in CASES if not a.only or c[0] in a.only.split(",")]


def listing(a):
    operators.GPU = True  # sizes as on a GPU
    counts, sides, nets = collections.Counter(), collections.Counter(), collections.defaultdict(set)
    examples = {}
    for _, _, family, phase, dt, call in itertools.islice(calls(start(a), False), a.list):
        counts[family, call.op, phase, dt] += 1
        sides[family, bool(call.net), held(call)] += 1
        nets[family, held(call)].add(call.net)
        examples[family, call.op, phase] = dt, json.dumps(call.shape), call.net
    for (family, op, phase), (dt, shape, net) in sorted(examples.items()):
        rows = {t: counts[family, op, phase, t] for t in ALL if counts[family, op, phase, t]}
        print(f"{family:10} {op:22} {phase:6} {sum(rows.values()):5}  {rows}  {net or 'drawn'} {dt} {shape}")
    for family in dict.fromkeys(f for f, *_ in CASES):
        n = {k: v for k, v in sides.items() if k[0] == family}
        total = sum(n.values())
        if total:
            print(f"{family:10} {total:5} rows, {100 * sum(v for k, v in n.items() if k[1]) // total} % of networks, {100 * sum(v for k, v in n.items() if k[2]) // total} % held; held: {', '.join(sorted(nets[family, True] - {''}))}; for the fit: {', '.join(sorted(nets[family, False] - {''}))}")


def question(phase, dt, s):
    """A convolution as cudnn_choice reads it, or None where it cannot be said or never reaches cuDNN."""
    lines = s["h"] == 1 and s["r"] == 1 and s["pad"][0] == 0  # nothing moves along the other side
    (sh, sw), (dh, dw) = s["stride"], s["dilation"]
    if s["groups"] > 1 and s["groups"] == s["ci"] or not lines and (sh != sw or dh != dw):
        return None
    return " ".join(str(int(x)) for x in (PASSES.index(phase), ("fp32", "tf32", "fp16", "bf16").index(dt), s["b"], s["ci"], s["h"], s["w"], s["co"], s["r"], s["s"], sw, *s["pad"], dw, s["groups"], s["channels_last"]))


def ask(a):
    """The questions of both files. Drawn ones have a seed of their own, and none that was measured is asked again."""
    operators.GPU = True
    a.only, a.seed = a.only or "grouped,lines,folded", a.seed + "-ask"
    path, measured, drawn = os.path.join(a.out, "timed.csv"), {}, {}
    if os.path.exists(path):
        with open(path, newline="") as f:
            measured = {question(r["phase"], r["dtype"], json.loads(r["shape"])): 1 for r in csv.DictReader(f) if r["op"] == "conv2d"}
    for _, _, _, phase, dt, call in calls(start(a), False):
        said = question(phase, dt, call.shape) if call.op == "conv2d" else None
        if said is not None and said not in measured:
            drawn[said] = 1
            if len(drawn) >= a.ask:
                break
    os.makedirs(a.out, exist_ok=True)
    for name, lines in (("ask_measured.txt", measured), ("ask.txt", drawn)):
        with open(os.path.join(a.out, name), "w") as f:
            f.writelines(line + "\n" for line in lines if line is not None)


def times(a, end):
    """Times what there is time for; returns how many calls were drawn."""
    out, failed, clock, turn = Table(os.path.join(a.out, "timed.csv"), ["turn"] + COLUMNS), collections.Counter(), Clock(end - time.time()), 0
    cases = start(a)
    for turn, at, family, phase, dt, call in calls(cases, a.selftest):
        if clock.over():
            break
        if failed[at] >= 4 and not a.selftest:
            continue
        us, copies = "", 1
        allow_tf32(dt == "tf32")
        try:
            if call.op not in LOOPED:
                us, copies = time_calls(call.make, span_ms=2.0, replays=5, long_ms=2.0, slow_ms=8.0)
                us = f"{us:.3f}"
            elif not GPU:
                call.make()[0]()
            out.row([turn, call.op, phase, dt, call.shape, us, copies, family, call.net, call.geometry or ""])
        except Exception as e:
            failed[at] += 1
            recover(e, family, call.op, phase, dt, call.shape, call.geometry or "")
        if GPU and turn % 50 == 49:
            torch.cuda.empty_cache()
        clock.progress(out.rows, "rows, at", family, call.op, phase, dt)
    else:
        turn += 1
    print("timed", out.rows, "of", turn, "failed", sum(failed.values()), {cases[k][:3]: n for k, n in failed.items()}, flush=True)
    return turn


def work(number, processes, a, turns, end, folder):
    """Names the calls of every `processes`-th chunk: first those that wait for the GPU, whose times come from here."""
    common.POOL_ELEMENTS = 1 << 26  # several processes share the memory
    mine = [(turn, call.op in LOOPED, (dt, call.make, call.op, phase, call.shape)) for turn, _, _, phase, dt, call in itertools.islice(calls(start(a), a.selftest), turns)]
    chunks = []
    for waiting in (True, False):
        some = [c for c in mine if c[1] == waiting]
        chunks += [(waiting, some[i:i + CHUNK]) for i in range(0, len(some), CHUNK)]
    with open(os.path.join(folder, f"{number}.json"), "w") as f:
        for waiting, chunk in chunks[number::processes]:
            if time.time() > end:
                break
            try:
                found = names.kernels_of([c[2] for c in chunk], ("kernel", "gpu_memcpy", "gpu_memset") if waiting else ("kernel",), waiting)
            except Exception as e:
                recover(e, "names of calls from", chunk[0][0])
                continue
            torch.cuda.empty_cache()
            for (turn, *_), kernels in zip(chunk, found):
                f.write(json.dumps([turn, kernels]) + "\n")
            f.flush()


def named(a, turns, end):
    """Kernels by turn: {turn: [(name, grid and block, us)]}."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=work, args=(n, a.processes, a, turns, end, folder)) for n in range(a.processes)]
        for w in workers:
            w.start()
        for w in workers:
            w.join(max(0.1, end + 12 - time.time()))
            if w.is_alive():
                w.terminate()
        for n in range(a.processes):
            path = os.path.join(folder, f"{n}.json")
            for line in open(path) if os.path.exists(path) else ():
                if line.endswith("\n"):
                    turn, kernels = json.loads(line)
                    found[turn] = kernels
    return found


def counted(kernels):
    """Names, microseconds and grids of kernels in the order of their first launch; equal ones once, with their number."""
    each = {}
    for name, grid, us in kernels:
        entry = each.setdefault(name[:160], [0, 0.0, grid])
        entry[0] += 1
        entry[1] += us
    return ["|".join(n if c == 1 else f"{n} x{c}" for n, (c, _, _) in each.items()), "|".join(f"{us:.2f}" for _, us, _ in each.values()), "|".join(g for *_, g in each.values())]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--seconds", type=float, default=60, help="in all, from the start of Python")
    ap.add_argument("--seed", default="0")
    ap.add_argument("--only", default="")
    ap.add_argument("--processes", type=int, default=10, help="that name kernels at a time")
    ap.add_argument("--list", type=int, default=0)
    ap.add_argument("--ask", type=int, default=0)
    ap.add_argument("--selftest", action="store_true")
    a = ap.parse_args()
    if a.list:
        return listing(a)
    if a.ask:
        return ask(a)
    os.makedirs(a.out, exist_ok=True)
    begin = time.time()
    turns = times(a, begin + a.seconds * .75)
    found = {}
    if GPU:
        common._pools.clear()
        torch.cuda.empty_cache()
        found = named(a, turns, begin + a.seconds - 15)
    columns = COLUMNS[:6] + ["kernels"] + COLUMNS[6:] + ["kernel_us", "grids"]
    files = {side: Table(os.path.join(a.out, name), columns) for side, name in ((False, "missed.csv"), (True, "missed_held.csv"))}
    with open(os.path.join(a.out, "timed.csv"), newline="") as f:
        for row in csv.DictReader(f):
            kernels = found.get(int(row["turn"]), [])
            if not row["gpu_us"]:
                if not kernels:
                    continue  # it waits for the GPU, and was not reached
                row["gpu_us"] = f"{sum(us for *_, us in kernels):.3f}"
            said, us, grids = counted(kernels)
            call = Call(row["op"], json.loads(row["shape"]), row["net"], json.loads(row["geometry"]) if row["geometry"] else None, None)
            files[held(call)].row([row[c] for c in COLUMNS[:6]] + [said] + [row[c] for c in COLUMNS[6:]] + [us, grids])
    print("for the fit", files[False].rows, "held", files[True].rows, "named", len(found), f"{time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
