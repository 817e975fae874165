#!/usr/bin/env python3
"""Shows that every kernel of a process takes longer once cuDNN has been used in it: usage: launch_gap.py

Prints the GPU time in us of a softmax, a product and an addition in a fresh process, and again after a convolution.
On an H200: 3.78, 2.87 and 1.04 us before, 3.98, 3.06 and 1.25 us after, and so it stays.
"""
import torch
import torch.nn.functional as F

from common import nbytes, rand, time_calls


def softmax():
    x = rand(32, 1024, dt="fp32")
    return (lambda: torch.softmax(x, -1)), 2 * nbytes(x)


def product():
    x, w = rand(64, 512), rand(512, 512)
    return (lambda: torch.mm(x, w)), nbytes(x, w)


def addition():
    x = rand(1 << 14, dt="fp32")
    return (lambda: x + 1.0), 2 * nbytes(x)


def times(when):
    print(when, *(f"{time_calls(make)[0]:.3f}" for make in (softmax, product, addition)), flush=True)


times("fresh")
times("fresh")
F.conv2d(rand(8, 64, 28, 28), rand(64, 64, 3, 3))
times("after a convolution")
times("after a convolution")
