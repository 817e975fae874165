"""The third list of networks of ``fresh.py``: chosen and measured after what the first two showed was mended."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from fresh_parts import AMP, BOTH, from_transformers, classifier, language, from_torchvision, images, labels, network

for _name, _batch, _precisions in [
    ("regnet_y_8gf", 32, BOTH), ("resnext101_64x4d", 16, BOTH), ("efficientnet_v2_m", 24, AMP), ("mnasnet1_3", 96, AMP), ("shufflenet_v2_x0_5", 256, AMP),
    ("swin_v2_s", 24, AMP), ("convnext_large", 12, AMP), ("efficientnet_b5", 16, AMP), ("vgg16_bn", 32, AMP),
]:
    from_torchvision(_name, _batch, precisions=_precisions)


@network("default")
def fcn_resnet101() -> tuple:
    import torchvision

    x, y = images(6, 320), labels(21, 6, 320, 320)
    return torchvision.models.segmentation.fcn_resnet101(weights=None, weights_backbone=None, num_classes=21), lambda m: F.cross_entropy(m(x)["out"].float(), y)


@network()
def deeplabv3_mobilenet() -> tuple:
    import torchvision

    x, y = images(12, 384), labels(21, 12, 384, 384)
    return torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21), lambda m: F.cross_entropy(m(x)["out"].float(), y)


@network()
def s3d() -> tuple:
    import torchvision

    x, y = torch.randn(6, 3, 16, 224, 224), labels(400, 6)
    return torchvision.models.video.s3d(weights=None), lambda m: F.cross_entropy(m(x).float(), y)


language("starcoder2-like-0.4b", from_transformers("Starcoder2ForCausalLM", "Starcoder2Config", hidden_size=1024, intermediate_size=4096, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=2, vocab_size=49152), 4, 768, 49000)
language("stablelm-like-0.4b", from_transformers("StableLmForCausalLM", "StableLmConfig", hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16, vocab_size=50304), 4, 640, 50000)
language("olmo-like-0.4b", from_transformers("OlmoForCausalLM", "OlmoConfig", hidden_size=1024, intermediate_size=4096, num_hidden_layers=16, num_attention_heads=16, vocab_size=50304), 3, 1024, 50000)
language("gpt-neo-125m", from_transformers("GPTNeoForCausalLM", "GPTNeoConfig", hidden_size=768, num_layers=12, attention_types=[[["global", "local"], 6]], num_heads=12), 8, 384, 50000)
language("mpnet-base", from_transformers("MPNetForMaskedLM", "MPNetConfig"), 16, 256, 30000)
language("mobilebert", from_transformers("MobileBertForMaskedLM", "MobileBertConfig"), 16, 128, 30000)
language("squeezebert", from_transformers("SqueezeBertForMaskedLM", "SqueezeBertConfig"), 16, 256, 30000)


classifier("deit-base", "DeiTForImageClassification", "DeiTConfig", 32)
classifier("convnextv2-tiny", "ConvNextV2ForImageClassification", "ConvNextV2Config", 32)
classifier("poolformer-s24", "PoolFormerForImageClassification", "PoolFormerConfig", 48, depths=[4, 4, 12, 4])
classifier("mobilevit-small", "MobileViTForImageClassification", "MobileViTConfig", 48)


@network()
def data2vec_audio() -> tuple:
    import transformers as hf

    x = torch.randn(6, 48000)
    return hf.Data2VecAudioModel(hf.Data2VecAudioConfig(mask_time_prob=0.0)), lambda m: m(x).last_hidden_state.float().pow(2).mean()


@network()
def videomae_base() -> tuple:
    import transformers as hf

    x, y = torch.randn(3, 16, 3, 224, 224), labels(400, 3)
    return hf.VideoMAEForVideoClassification(hf.VideoMAEConfig(num_labels=400)), lambda m: F.cross_entropy(m(x).logits.float(), y)


@network()
def marian_translation() -> tuple:
    import transformers as hf

    config = hf.MarianConfig(vocab_size=32000, d_model=512, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=2048, decoder_ffn_dim=2048, encoder_attention_heads=8, decoder_attention_heads=8, pad_token_id=0, decoder_start_token_id=0)
    x, y = labels(32000, 24, 128), labels(32000, 24, 112)
    return hf.MarianMTModel(config), lambda m: F.cross_entropy(m(input_ids=x, decoder_input_ids=y).logits.float().flatten(0, 1), y.flatten())


class Vocoder(nn.Module):
    """Frames of sound to samples: transposed convolutions, each with dilated residual layers."""

    def __init__(self, c: int = 256) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(80, c, 7, padding=3), nn.Conv1d(c // 16, 1, 7, padding=3)
        self.up = nn.ModuleList([nn.ConvTranspose1d(c >> i, c >> (i + 1), 2 * s, s, s // 2) for i, s in enumerate((8, 8, 2, 2))])
        self.residual = nn.ModuleList([nn.ModuleList([nn.Conv1d(c >> (i + 1), c >> (i + 1), k, padding=k // 2 * d, dilation=d) for k in (3, 7, 11) for d in (1, 3, 5)]) for i in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for up, layers in zip(self.up, self.residual):
            x = up(F.leaky_relu(x, 0.1))
            for layer in layers:
                x = x + layer(F.leaky_relu(x, 0.1))
        return torch.tanh(self.last(F.leaky_relu(x)))


@network(*BOTH)
def vocoder() -> tuple:
    x, y = torch.randn(8, 80, 64), torch.randn(8, 1, 64 * 256)
    return Vocoder(), lambda m: F.l1_loss(m(x).float(), y)


class Listener(nn.Module):
    """A discriminator of sound: strided grouped convolutions with wide filters."""

    def __init__(self) -> None:
        super().__init__()
        layers = [(1, 128, 15, 1, 1), (128, 128, 41, 2, 4), (128, 256, 41, 2, 16), (256, 512, 41, 4, 16), (512, 1024, 41, 4, 16), (1024, 1024, 41, 1, 16), (1024, 1024, 5, 1, 1)]
        self.layers = nn.ModuleList([nn.Conv1d(i, o, k, s, k // 2, groups=g) for i, o, k, s, g in layers])
        self.out = nn.Conv1d(1024, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
        return self.out(x)


@network(*BOTH)
def sound_discriminator() -> tuple:
    x = torch.randn(16, 1, 16384)
    return Listener(), lambda m: (1 - m(x).float()).pow(2).mean()


class Field(nn.Module):
    """Colours and densities of points in space."""

    def __init__(self, h: int = 256) -> None:
        super().__init__()
        self.first = nn.ModuleList([nn.Linear(63, h)] + [nn.Linear(h, h) for _ in range(4)])
        self.second = nn.ModuleList([nn.Linear(h + 63, h)] + [nn.Linear(h, h) for _ in range(2)])
        self.colour, self.density = nn.Sequential(nn.Linear(h, h // 2), nn.ReLU(), nn.Linear(h // 2, 3)), nn.Linear(h, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = torch.cat([x] + [f(x * 2.0**i) for i in range(10) for f in (torch.sin, torch.cos)], -1)
        h = waves
        for layer in self.first:
            h = F.relu(layer(h))
        h = torch.cat([h, waves], -1)
        for layer in self.second:
            h = F.relu(layer(h))
        colour, alpha = torch.sigmoid(self.colour(h)), 1 - torch.exp(-F.relu(self.density(h)))
        seen = torch.cumprod(1 - alpha + 1e-6, 1) * alpha
        return (seen * colour).sum(1)


@network(*BOTH)
def radiance_field() -> tuple:
    x, y = torch.randn(2048, 96, 3), torch.rand(2048, 3)
    return Field(), lambda m: F.mse_loss(m(x).float(), y)


class Residual(nn.Module):
    """Residual blocks with group norm on small images, as in reinforcement learning."""

    def __init__(self, c: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv2d(12, c, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(8, c) for _ in range(16)])
        self.layers = nn.ModuleList([nn.Conv2d(c, c, 3, padding=1) for _ in range(16)])
        self.policy, self.value = nn.Linear(c * 121, 64), nn.Linear(c * 121, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.first(x)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(F.relu(norm(x)))
        x = F.relu(x).flatten(1)
        return self.policy(x), self.value(x)


@network(*BOTH)
def policy_network() -> tuple:
    x, y, z = torch.randn(512, 12, 11, 11), labels(64, 512), torch.randn(512, 1)

    def loss(m: nn.Module) -> torch.Tensor:
        p, v = m(x)
        return F.cross_entropy(p.float(), y) + F.mse_loss(v.float(), z)

    return Residual(), loss
