"""Recorded runs of torchvision's and transformers' own models agree with the zoo: FLOPs within 1 %, time within 2 %.

Differences that remain, and why:

- `swin_t`: the zoo takes one copy more for each shifted window (`roll` forth and back are two copies of the whole map;
  PyTorch skips them where a stage is a single window): 1.6 % of inference.
- `googlenet` (and less so `inception_v3`): the zoo's host time counts the parameters of the auxiliary heads, which the loss
  does not use; the recorded optimizer finds no gradient there and passes them over: 2.4 % of a host-bound iteration.
- `llama`: a few host operators (slices of the input, position tables) are counted that the zoo leaves
  out: below 1 % of the host's time.
- ONNX and configurations: see test_imports.py.
"""

from __future__ import annotations

import pytest

import preflop
from preflop._program import answer
from reference_models import step

CASES = [
    ("resnet50", 64, 0, "fp32", "train"),
    ("resnet50", 64, 0, "amp", "train"),
    ("resnet50", 16, 0, "amp", "infer"),
    ("inception_v3", 16, 0, "tf32", "train"),
    ("alexnet", 128, 0, "fp32", "train"),
    ("vgg16", 32, 0, "tf32", "train"),
    ("googlenet", 32, 0, "amp", "train"),
    ("densenet121", 32, 0, "fp32", "train"),
    ("mobilenet_v2", 64, 0, "amp", "train"),
    ("efficientnet_b0", 64, 0, "tf32", "infer"),
    ("resnext50_32x4d", 32, 0, "amp", "train"),
    ("convnext_tiny", 32, 0, "fp32", "infer"),
    ("swin_t", 32, 0, "fp32", "infer"),
    ("vit_b_16", 32, 0, "amp", "train"),
    ("transformer", 64, 0, "fp32", "train"),
    ("gnmt-wide", 64, 0, "fp32", "train"),
    ("dcgan", 128, 0, "fp32", "train"),
    ("bert-base", 16, 128, "amp", "train"),
    ("bert-large", 16, 512, "amp", "train"),
    ("gpt2", 4, 1024, "amp", "train"),
    ("gpt2-large", 4, 1024, "tf32", "infer"),
    ("llama-1b", 2, 2048, "tf32", "train"),
    ("llama-1b", 2, 2048, "amp", "infer"),
]

#: Larger differences in time; why, stands above.
EXPLAINED = {"googlenet": 0.03}


@pytest.mark.parametrize(("name", "batch", "seq", "precision", "mode"), CASES)
def test_agreement(name: str, batch: int, seq: int, precision: str, mode: str) -> None:
    recorded = preflop.capture(step(name, batch, seq, precision, mode), name=name).predict("h200")
    sizes = ["--batch", str(batch), *(["--seq", str(seq)] if seq else [])]
    # The recorded step takes `Adam(fused=False)`, which is one tensor at a time.
    adam = answer("models", "show", name)["optimizer"] == "adam"
    how = ["--optimizer", "adam:single"] if adam and mode == "train" else []
    zoo = answer("predict", name, "--gpu", "h200", "--precision", precision, "--mode", mode, *sizes, *how)
    flops, time = recorded.flops / zoo["flops"], recorded.iteration_ms / zoo["iteration_ms"]
    print(f"{name} {precision} {mode}: FLOPs {flops:.4f}, time {time:.4f}, memory {recorded.memory_mib / zoo['memory_mib']:.4f}")
    assert recorded.precision == precision and recorded.mode == mode
    assert recorded.parameters == zoo["parameters"]
    assert flops == pytest.approx(1, abs=0.01)
    assert time == pytest.approx(1, abs=EXPLAINED.get(name, 0.02))
    assert not recorded.unmodelled
