"""What the lists of networks of ``fresh.py`` are made of: their register, inputs, and makers of whole families."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

NETWORKS: dict[str, tuple[Callable[[], tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]], tuple[str, ...]]] = {}
BOTH, AMP = ("amp", "default"), ("amp",)


def network(*precisions: str, name: str | None = None) -> Callable:
    """A function that makes a model and what computes its loss, under its name."""

    def add(make: Callable) -> Callable:
        NETWORKS[name or make.__name__] = (make, precisions or AMP)
        return make

    return add


def images(batch: int, size: int = 224, channels: int = 3) -> torch.Tensor:
    return torch.randn(batch, channels, size, size)


def labels(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


def from_torchvision(name: str, batch: int, size: int = 224, precisions: tuple[str, ...] = AMP) -> None:
    @network(*precisions, name=name)
    def make() -> tuple:
        import torchvision

        x, y = images(batch, size), labels(1000, batch)
        return torchvision.models.get_model(name, weights=None), lambda m: F.cross_entropy(m(x).float(), y)


def language(name: str, make_model: Callable, batch: int, seq: int, vocabulary: int) -> None:
    @network(name=name)
    def make() -> tuple:
        x = labels(vocabulary, batch, seq)

        def loss(m: nn.Module) -> torch.Tensor:
            return F.cross_entropy(m(input_ids=x).logits.float().flatten(0, 1), x.flatten())

        return make_model(), loss


def from_transformers(kind: str, config: str, **options: object) -> Callable:
    def make() -> nn.Module:
        import transformers as hf

        return getattr(hf, kind)(getattr(hf, config)(**options))

    return make


def classifier(name: str, model: str, config: str, batch: int, **keys: object) -> None:
    @network(name=name)
    def make() -> tuple:
        import transformers as hf

        x, y = images(batch), labels(1000, batch)
        return getattr(hf, model)(getattr(hf, config)(num_labels=1000, **keys)), lambda m: F.cross_entropy(m(x).logits.float(), y)
