"""The models of the reference measurements, built as their authors' libraries build them, and one step of each."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn


class DCGAN(nn.Module):
    """Generator and discriminator of DCGAN in one chain, 64 x 64 images."""

    def __init__(self, noise: int = 100, width: int = 64) -> None:
        super().__init__()

        def up(i: int, o: int, stride: int, pad: int) -> list[nn.Module]:
            return [nn.ConvTranspose2d(i, o, 4, stride, pad, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]

        def down(i: int, o: int) -> list[nn.Module]:
            return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True)]

        self.g = nn.Sequential(
            *up(noise, width * 8, 1, 0),
            *up(width * 8, width * 4, 2, 1),
            *up(width * 4, width * 2, 2, 1),
            *up(width * 2, width, 2, 1),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )
        self.d = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, True),
            *down(width, width * 2),
            *down(width * 2, width * 4),
            *down(width * 4, width * 8),
            nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.d(self.g(z)).view(-1)


class GNMT(nn.Module):
    """Encoder and decoder of LSTM layers with attention: the zoo's gnmt-wide, measured as gnmt."""

    def __init__(self, words: int = 32317, width: int = 1024) -> None:
        super().__init__()
        self.e = nn.Embedding(words, width)
        self.bi = nn.LSTM(width, width, 1, bidirectional=True)
        self.enc = nn.LSTM(2 * width, width, 3)
        self.dec = nn.LSTM(width, width, 4)
        self.q = nn.Linear(width, width, bias=False)
        self.o = nn.Linear(2 * width, words)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x, _ = self.bi(self.e(source))
        x, _ = self.enc(x)
        y, _ = self.dec(self.e(target))
        weights = torch.bmm(self.q(y).transpose(0, 1), x.permute(1, 2, 0)).softmax(-1)
        context = torch.bmm(weights, x.transpose(0, 1)).transpose(0, 1)
        return self.o(torch.cat([y, context], -1))


class Translation(nn.Module):
    """`nn.Transformer` between an embedding and a projection."""

    def __init__(self, words: int = 32000, width: int = 512, heads: int = 8, inner: int = 2048) -> None:
        super().__init__()
        self.e = nn.Embedding(words, width)
        self.t = nn.Transformer(width, heads, 6, 6, inner, batch_first=True)
        self.o = nn.Linear(width, words)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.o(self.t(self.e(source), self.e(target)))


def language_model(name: str) -> nn.Module:
    """A Hugging Face model, on the meta device: its sizes without its weights."""
    import transformers as hf

    configurations: dict[str, Callable[[], Any]] = {
        "bert-base": lambda: hf.BertConfig(),
        "bert-large": lambda: hf.BertConfig(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
        ),
        "gpt2": lambda: hf.GPT2Config(),
        "gpt2-large": lambda: hf.GPT2Config(n_embd=1280, n_layer=36, n_head=20),
        "llama-1b": lambda: hf.LlamaConfig(
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=16,
            num_attention_heads=32,
            num_key_value_heads=8,
            vocab_size=128256,
        ),
        "llama-7b": lambda: hf.LlamaConfig(),
    }
    families = {"bert": hf.BertForMaskedLM, "gpt2": hf.GPT2LMHeadModel, "llama": hf.LlamaForCausalLM}
    with torch.device("meta"):
        return families[name.split("-")[0]](configurations[name]())


@contextlib.contextmanager
def no_initialisation() -> Iterator[None]:
    """Models are built without drawing their weights, which takes most of the time and changes nothing here."""
    names = [n for n in dir(nn.init) if n.endswith("_") and not n.startswith("_")]
    before = {n: getattr(nn.init, n) for n in names}
    for n in names:
        setattr(nn.init, n, lambda tensor, *args, **kwargs: tensor)
    try:
        yield
    finally:
        for n, function in before.items():
            setattr(nn.init, n, function)


def build(name: str, batch: int, seq: int) -> tuple[nn.Module, tuple[torch.Tensor, ...], Callable[[Any], torch.Tensor]]:
    """Model, inputs and loss."""
    with no_initialisation():
        if name == "dcgan":
            target = torch.ones(batch)
            return DCGAN(), (torch.empty(batch, 100, 1, 1),), lambda o: F.binary_cross_entropy(o.float(), target)
        if name in ("gnmt", "gnmt-wide"):
            source, words = (torch.zeros(50, batch, dtype=torch.long) for _ in range(2))
            return GNMT(), (source, words), lambda o: F.cross_entropy(o.float().flatten(0, 1), words.flatten())
        if name.startswith("transformer"):
            model = Translation(width=1024, heads=16, inner=4096) if name.endswith("big") else Translation()
            source, words = (torch.zeros(batch, 50, dtype=torch.long) for _ in range(2))
            return model, (source, words), lambda o: F.cross_entropy(o.float().flatten(0, 1), words.flatten())
        if name.startswith(("bert", "gpt2", "llama")):
            tokens = torch.zeros(batch, seq, dtype=torch.long)
            loss = lambda o: F.cross_entropy(o.logits.float().flatten(0, 1), tokens.flatten())  # noqa: E731
            return language_model(name), (tokens,), loss
        import torchvision

        images = torch.empty(batch, 3, *(2 * [299 if name == "inception_v3" else 224]))
        labels = torch.zeros(batch, dtype=torch.long)
        options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
        model = torchvision.models.get_model(name, weights=None, **options)
        return model, (images,), lambda o: F.cross_entropy((o[0] if isinstance(o, tuple) else o).float(), labels)


def step(name: str, batch: int, seq: int, precision: str, mode: str) -> Callable[[], None]:
    """One iteration as it was measured: SGD with momentum for CNNs, single-tensor Adam for the rest."""
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    model, inputs, loss = build(name, batch, seq)
    training = mode == "train"
    model.train(training)
    adam = name.startswith(("bert", "gpt", "llama", "transformer", "gnmt", "dcgan", "vit", "swin"))
    if adam:
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), fused=False)
    else:
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def run() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp"):
            if not training:
                with torch.no_grad():
                    model(*inputs)
                return
            value = loss(model(*inputs))
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run
