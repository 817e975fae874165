"""The first list of networks of ``fresh.py``."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from fresh_parts import AMP, BOTH, from_transformers, language, from_torchvision, images, labels, network

for _name, _batch, _precisions in [
    ("regnet_x_3_2gf", 48, BOTH), ("densenet201", 24, AMP), ("resnext101_32x8d", 24, BOTH), ("efficientnet_b3", 40, AMP), ("mobilenet_v3_small", 192, AMP),
    ("convnext_base", 24, AMP), ("swin_v2_t", 40, AMP), ("maxvit_t", 24, AMP), ("vgg13_bn", 40, BOTH), ("wide_resnet101_2", 24, AMP), ("shufflenet_v2_x2_0", 96, AMP),
]:
    from_torchvision(_name, _batch, precisions=_precisions)


@network(*BOTH)
def deeplabv3_resnet50() -> tuple:
    import torchvision

    x, y = images(8, 384), labels(21, 8, 384, 384)
    return torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21), lambda m: F.cross_entropy(m(x)["out"].float(), y)


@network(*BOTH)
def r3d_18() -> tuple:
    import torchvision

    x, y = torch.randn(8, 3, 16, 112, 112), labels(400, 8)
    return torchvision.models.video.r3d_18(weights=None), lambda m: F.cross_entropy(m(x).float(), y)


@network()
def r2plus1d_18() -> tuple:
    import torchvision

    x, y = torch.randn(6, 3, 16, 112, 112), labels(400, 6)
    return torchvision.models.video.r2plus1d_18(weights=None), lambda m: F.cross_entropy(m(x).float(), y)


language("roberta-base", from_transformers("RobertaForMaskedLM", "RobertaConfig", vocab_size=50265, max_position_embeddings=514), 24, 256, 50000)
language("electra-base", from_transformers("ElectraForMaskedLM", "ElectraConfig", hidden_size=768, embedding_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072), 24, 192, 30000)
language("albert-base", from_transformers("AlbertForMaskedLM", "AlbertConfig", hidden_size=768, num_attention_heads=12, intermediate_size=3072), 24, 192, 30000)
language("pythia-410m", from_transformers("GPTNeoXForCausalLM", "GPTNeoXConfig", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, vocab_size=50304), 4, 768, 50000)
language("bloom-560m", from_transformers("BloomForCausalLM", "BloomConfig", hidden_size=1024, n_layer=24, n_head=16, vocab_size=250880), 2, 512, 250000)
language("gemma-like-0.6b", from_transformers("GemmaForCausalLM", "GemmaConfig", hidden_size=1024, intermediate_size=4096, num_hidden_layers=18, num_attention_heads=8, num_key_value_heads=1, head_dim=128, vocab_size=256000), 2, 1024, 250000)
language("qwen3-0.6b", from_transformers("Qwen3ForCausalLM", "Qwen3Config", hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=151936), 2, 768, 150000)
language("phi-small", from_transformers("PhiForCausalLM", "PhiConfig", hidden_size=1024, intermediate_size=4096, num_hidden_layers=16, num_attention_heads=16, vocab_size=51200), 4, 512, 50000)


@network()
def bart_base() -> tuple:
    import transformers as hf

    config = hf.BartConfig(d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072)
    x, y = labels(50000, 16, 256), labels(50000, 16, 128)
    return hf.BartForConditionalGeneration(config), lambda m: F.cross_entropy(m(input_ids=x, decoder_input_ids=y).logits.float().flatten(0, 1), y.flatten())


@network()
def whisper_small() -> tuple:
    import transformers as hf

    config = hf.WhisperConfig(d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072)
    x, y = torch.randn(4, 80, 3000), labels(50000, 4, 96)
    return hf.WhisperForConditionalGeneration(config), lambda m: F.cross_entropy(m(input_features=x, decoder_input_ids=y).logits.float().flatten(0, 1), y.flatten())


@network()
def wav2vec2_base() -> tuple:
    import transformers as hf

    x = torch.randn(6, 64000)
    return hf.Wav2Vec2Model(hf.Wav2Vec2Config(apply_spec_augment=False)), lambda m: m(x).last_hidden_state.float().pow(2).mean()


@network()
def segformer_b1() -> tuple:
    import transformers as hf

    config = hf.SegformerConfig(depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 320, 512], num_labels=150)
    x, y = images(8, 384), labels(150, 8, 96, 96)
    return hf.SegformerForSemanticSegmentation(config), lambda m: F.cross_entropy(m(x).logits.float(), y)


@network()
def dinov2_small() -> tuple:
    import transformers as hf

    x = images(32)
    config = hf.Dinov2Config(hidden_size=384, num_hidden_layers=12, num_attention_heads=6)
    return hf.Dinov2Model(config), lambda m: m(x).last_hidden_state.float().pow(2).mean()


class Residual(nn.Module):
    def __init__(self, i: int, o: int, time: int = 512) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(32, i), nn.SiLU(), nn.Conv2d(i, o, 3, padding=1))
        self.time = nn.Linear(time, o)
        self.second = nn.Sequential(nn.GroupNorm(32, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1))
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.first(x) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.second(h)


class Attend(nn.Module):
    def __init__(self, c: int, heads: int = 8) -> None:
        super().__init__()
        self.norm, self.qkv, self.out, self.heads = nn.GroupNorm(32, c), nn.Conv1d(c, 3 * c, 1), nn.Conv1d(c, c, 1), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).flatten(2)).reshape(b, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, h * w)).reshape(b, c, h, w)


class Diffusion(nn.Module):
    """A U-Net of latent diffusion: three resolutions, attention at the lower two."""

    def __init__(self, c: int = 192) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(c, 512), nn.SiLU(), nn.Linear(512, 512))
        self.inside, self.c = nn.Conv2d(4, c, 3, padding=1), c
        self.down = nn.ModuleList([Residual(c, c), Residual(c, 2 * c), Residual(2 * c, 4 * c)])
        self.shrink = nn.ModuleList([nn.Conv2d(c, c, 3, 2, 1), nn.Conv2d(2 * c, 2 * c, 3, 2, 1)])
        self.attend = nn.ModuleList([Attend(2 * c), Attend(4 * c), Attend(4 * c), Attend(2 * c)])
        self.middle = nn.ModuleList([Residual(4 * c, 4 * c), Residual(4 * c, 4 * c)])
        self.up = nn.ModuleList([Residual(8 * c, 2 * c), Residual(4 * c, c), Residual(2 * c, c)])
        self.out = nn.Sequential(nn.GroupNorm(32, c), nn.SiLU(), nn.Conv2d(c, 4, 3, padding=1))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        angles = t[:, None] * torch.exp(-torch.arange(self.c // 2, device=t.device) / 16)
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        a = self.down[0](self.inside(x), t)
        b = self.attend[0](self.down[1](self.shrink[0](a), t))
        c = self.attend[1](self.down[2](self.shrink[1](b), t))
        x = self.middle[1](self.attend[2](self.middle[0](c, t)), t)
        x = F.interpolate(self.up[0](torch.cat([x, c], 1), t), scale_factor=2.0)
        x = F.interpolate(self.attend[3](torch.cat([self.up[1](torch.cat([x, b], 1), t)] * 2, 1)), scale_factor=2.0)
        return self.out(self.up[2](torch.cat([x[:, : self.c], a], 1), t))


@network(*BOTH)
def diffusion_unet() -> tuple:
    x, t = torch.randn(8, 4, 64, 64), torch.rand(8) * 1000
    return Diffusion(), lambda m: F.mse_loss(m(x, t).float(), x)


class Recommender(nn.Module):
    """26 tables, two towers, dots of all pairs."""

    def __init__(self, rows: int = 200_000, dim: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(rows, dim) for _ in range(26)])
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, dim), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(dim + 351, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        each = torch.stack([x, *(t(sparse[:, i]) for i, t in enumerate(self.tables))], 1)
        dots = torch.bmm(each, each.transpose(1, 2))
        i, j = torch.tril_indices(27, 27, -1, device=x.device)
        return self.top(torch.cat([x, dots[:, i, j]], 1)).squeeze(1)


@network(*BOTH)
def recommender() -> tuple:
    dense, sparse, y = torch.randn(4096, 13), labels(200_000, 4096, 26), torch.rand(4096)
    return Recommender(), lambda m: F.binary_cross_entropy_with_logits(m(dense, sparse).float(), y)


class GraphNetwork(nn.Module):
    def __init__(self, i: int = 256, h: int = 256) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(i, h), nn.Linear(h, h), nn.Linear(h, 64)])

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            h = layer(x)
            x = F.relu(torch.zeros_like(h).index_add_(0, target, h[source]))
        return x


@network("default")
def graph_network() -> tuple:
    x, source, target, y = torch.randn(60_000, 256), labels(60_000, 600_000), labels(60_000, 600_000), labels(64, 60_000)
    return GraphNetwork(), lambda m: F.cross_entropy(m(x, source, target).float(), y)


class Speech(nn.Module):
    """Convolutions over a spectrogram, bidirectional GRUs, a score for each step."""

    def __init__(self, hidden: int = 640) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20), nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20))
        self.recurrent, self.out = nn.GRU(32 * 40, hidden, 3, bidirectional=True), nn.Linear(2 * hidden, 29)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.recurrent(self.front(x).flatten(1, 2).permute(2, 0, 1))[0])


@network("default")
def speech_gru() -> tuple:
    x, y = torch.randn(16, 1, 160, 300), labels(29, 150 * 16)
    return Speech(), lambda m: F.cross_entropy(m(x).float().flatten(0, 1), y)


class Mixer(nn.Module):
    def __init__(self, d: int = 512, tokens: int = 196, layers: int = 8) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, d, 16, 16)
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(2 * layers)])
        self.tokens = nn.ModuleList([nn.Sequential(nn.Linear(tokens, 256), nn.GELU(), nn.Linear(256, tokens)) for _ in range(layers)])
        self.channels = nn.ModuleList([nn.Sequential(nn.Linear(d, 2048), nn.GELU(), nn.Linear(2048, d)) for _ in range(layers)])
        self.head = nn.Linear(d, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        for i, (tokens, channels) in enumerate(zip(self.tokens, self.channels)):
            x = x + tokens(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


@network(*BOTH)
def mlp_mixer() -> tuple:
    x, y = images(64), labels(1000, 64)
    return Mixer(), lambda m: F.cross_entropy(m(x).float(), y)


class WaveNet(nn.Module):
    def __init__(self, c: int = 128, layers: int = 20) -> None:
        super().__init__()
        self.inside = nn.Conv1d(1, c, 1)
        self.gates = nn.ModuleList([nn.Conv1d(c, 2 * c, 3, padding=2 ** (i % 10), dilation=2 ** (i % 10)) for i in range(layers)])
        self.mixes = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(layers)])
        self.out = nn.Conv1d(c, 256, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inside(x)
        for gate, mix in zip(self.gates, self.mixes):
            a, b = gate(x).chunk(2, 1)
            x = x + mix(a.tanh() * b.sigmoid())
        return self.out(x)


@network(*BOTH)
def wavenet() -> tuple:
    x, y = torch.randn(8, 1, 16000), labels(256, 8, 16000)
    return WaveNet(), lambda m: F.cross_entropy(m(x).float(), y)


class SuperResolution(nn.Module):
    def __init__(self, c: int = 64, blocks: int = 16) -> None:
        super().__init__()
        self.inside = nn.Conv2d(3, c, 3, padding=1)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.PReLU(), nn.Conv2d(c, c, 3, padding=1)) for _ in range(blocks)])
        self.out = nn.Sequential(nn.Conv2d(c, 4 * c, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inside(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


@network(*BOTH)
def super_resolution() -> tuple:
    x, y = images(8, 128), images(8, 256)
    return SuperResolution(), lambda m: F.l1_loss(m(x).float(), y)


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [3, 64, 128, 1024]
        self.each = nn.Sequential(*(part for i, o in zip(sizes, sizes[1:]) for part in (nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU())))
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 40))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.each(x).amax(2))


@network(*BOTH)
def pointnet() -> tuple:
    x, y = torch.randn(64, 3, 2048), labels(40, 64)
    return PointNet(), lambda m: F.cross_entropy(m(x).float(), y)


class Generator(nn.Module):
    """Upsampling, convolution, instance norm: image to image."""

    def __init__(self, c: int = 64) -> None:
        super().__init__()

        def down(i: int, o: int) -> list[nn.Module]:
            return [nn.Conv2d(i, o, 3, 2, 1), nn.InstanceNorm2d(o), nn.ReLU(True)]

        def up(i: int, o: int) -> list[nn.Module]:
            return [nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(i, o, 3, 1, 1), nn.InstanceNorm2d(o), nn.ReLU(True)]

        self.ends = nn.ModuleList([nn.Sequential(nn.ReflectionPad2d(3), nn.Conv2d(3, c, 7), nn.InstanceNorm2d(c), nn.ReLU(True), *down(c, 2 * c), *down(2 * c, 4 * c)), nn.Sequential(*up(4 * c, 2 * c), *up(2 * c, c), nn.ReflectionPad2d(3), nn.Conv2d(c, 3, 7), nn.Tanh())])
        self.blocks = nn.ModuleList([nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(4 * c, 4 * c, 3), nn.InstanceNorm2d(4 * c), nn.ReLU(True), nn.ReflectionPad2d(1), nn.Conv2d(4 * c, 4 * c, 3), nn.InstanceNorm2d(4 * c)) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.ends[0](x)
        for block in self.blocks:
            x = x + block(x)
        return self.ends[1](x)


@network(*BOTH)
def image_to_image() -> tuple:
    x = images(4, 256)
    return Generator(), lambda m: F.l1_loss(m(x).float(), x)


class TextClassifier(nn.Module):
    def __init__(self, h: int = 512) -> None:
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(40_000, 300), nn.LSTM(300, h, 2, batch_first=True, bidirectional=True), nn.Linear(2 * h, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.words(x))[0].amax(1))


@network("default")
def lstm_classifier() -> tuple:
    x, y = labels(40_000, 64, 200), labels(5, 64)
    return TextClassifier(), lambda m: F.cross_entropy(m(x).float(), y)
