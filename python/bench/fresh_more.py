"""The second list of networks of ``fresh.py``: chosen and measured after what the first one showed was mended."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from fresh_parts import AMP, BOTH, from_transformers, language, from_torchvision, images, labels, network

for _name, _batch, _precisions in [
    ("regnet_y_1_6gf", 48, AMP), ("densenet161", 16, BOTH), ("efficientnet_b1", 64, AMP), ("squeezenet1_1", 128, AMP), ("swin_b", 24, AMP), ("vit_l_32", 48, AMP),
    ("mnasnet0_75", 128, AMP), ("regnet_x_800mf", 96, BOTH), ("shufflenet_v2_x1_5", 96, AMP),
]:
    from_torchvision(_name, _batch, precisions=_precisions)


@network(*BOTH)
def fcn_resnet50() -> tuple:
    import torchvision

    x, y = images(6, 320), labels(21, 6, 320, 320)
    return torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=21), lambda m: F.cross_entropy(m(x)["out"].float(), y)


@network()
def lraspp_mobilenet() -> tuple:
    import torchvision

    x, y = images(12, 320), labels(21, 12, 320, 320)
    return torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21), lambda m: F.cross_entropy(m(x)["out"].float(), y)


@network(*BOTH)
def mc3_18() -> tuple:
    import torchvision

    x, y = torch.randn(6, 3, 16, 112, 112), labels(400, 6)
    return torchvision.models.video.mc3_18(weights=None), lambda m: F.cross_entropy(m(x).float(), y)


language("opt-350m-like", from_transformers("OPTForCausalLM", "OPTConfig", hidden_size=1024, ffn_dim=4096, num_hidden_layers=16, num_attention_heads=16, vocab_size=50272, word_embed_proj_dim=1024), 4, 640, 50000)
language("mistral-like-0.5b", from_transformers("MistralForCausalLM", "MistralConfig", hidden_size=1024, intermediate_size=3584, num_hidden_layers=20, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000), 4, 896, 31000)
language("falcon-like-0.5b", from_transformers("FalconForCausalLM", "FalconConfig", hidden_size=1024, num_hidden_layers=16, num_attention_heads=16, vocab_size=65024), 4, 512, 65000)
language("xlm-roberta-base", from_transformers("XLMRobertaForMaskedLM", "XLMRobertaConfig", vocab_size=250002, max_position_embeddings=514), 8, 256, 250000)


@network()
def t5_base() -> tuple:
    import transformers as hf

    config = hf.T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)
    x, y = labels(32000, 8, 320), labels(32000, 8, 96)
    return hf.T5ForConditionalGeneration(config), lambda m: F.cross_entropy(m(input_ids=x, decoder_input_ids=y).logits.float().flatten(0, 1), y.flatten())


@network()
def clip_base() -> tuple:
    import transformers as hf

    config = hf.CLIPConfig(projection_dim=512)
    x, t = images(24), labels(49000, 24, 77)

    def loss(m: nn.Module) -> torch.Tensor:
        out = m(input_ids=t, pixel_values=x)
        target = torch.arange(24, device=x.device)
        return F.cross_entropy(out.logits_per_image.float(), target) + F.cross_entropy(out.logits_per_text.float(), target)

    return hf.CLIPModel(config), loss


@network()
def hubert_base() -> tuple:
    import transformers as hf

    x = torch.randn(4, 48000)
    return hf.HubertModel(hf.HubertConfig(apply_spec_augment=False)), lambda m: m(x).last_hidden_state.float().pow(2).mean()


@network()
def beit_base() -> tuple:
    import transformers as hf

    x, y = images(32), labels(1000, 32)
    return hf.BeitForImageClassification(hf.BeitConfig(num_labels=1000)), lambda m: F.cross_entropy(m(x).logits.float(), y)


class Temporal(nn.Module):
    """Dilated causal convolutions with residual sums."""

    def __init__(self, c: int = 256, layers: int = 8) -> None:
        super().__init__()
        self.inside = nn.Conv1d(32, c, 1)
        self.first = nn.ModuleList([nn.Conv1d(c, c, 5, padding=4 * 2**i, dilation=2**i) for i in range(layers)])
        self.second = nn.ModuleList([nn.Conv1d(c, c, 5, padding=4 * 2**i, dilation=2**i) for i in range(layers)])
        self.out = nn.Conv1d(c, 20, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, x = x.size(2), self.inside(x)
        for first, second in zip(self.first, self.second):
            h = F.dropout(F.relu(first(x)[..., :n]), 0.2, self.training)
            x = F.relu(x + F.dropout(F.relu(second(h)[..., :n]), 0.2, self.training))
        return self.out(x)


@network(*BOTH)
def temporal_convolutions() -> tuple:
    x, y = torch.randn(16, 32, 2048), labels(20, 16, 2048)
    return Temporal(), lambda m: F.cross_entropy(m(x).float(), y)


class Volumes(nn.Module):
    """A U-Net over volumes, as for medical images."""

    def __init__(self, c: int = 32) -> None:
        super().__init__()

        def two(i: int, o: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o), nn.LeakyReLU(0.01), nn.Conv3d(o, o, 3, padding=1), nn.InstanceNorm3d(o), nn.LeakyReLU(0.01))

        self.down = nn.ModuleList([two(1, c), two(c, 2 * c), two(2 * c, 4 * c)])
        self.lift = nn.ModuleList([nn.ConvTranspose3d(4 * c, 2 * c, 2, 2), nn.ConvTranspose3d(2 * c, c, 2, 2)])
        self.up = nn.ModuleList([two(4 * c, 2 * c), two(2 * c, c)])
        self.out = nn.Conv3d(c, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down[0](x)
        b = self.down[1](F.max_pool3d(a, 2))
        c = self.down[2](F.max_pool3d(b, 2))
        x = self.up[0](torch.cat([self.lift[0](c), b], 1))
        return self.out(self.up[1](torch.cat([self.lift[1](x), a], 1)))


@network(*BOTH)
def volume_unet() -> tuple:
    x, y = torch.randn(2, 1, 64, 96, 96), labels(3, 2, 64, 96, 96)
    return Volumes(), lambda m: F.cross_entropy(m(x).float(), y)


class Translate(nn.Module):
    """GRUs with attention over all words of the source."""

    def __init__(self, h: int = 768) -> None:
        super().__init__()
        self.words, self.encoder, self.decoder = nn.Embedding(20_000, h), nn.GRU(h, h, 2, batch_first=True), nn.GRU(h, h, 2, batch_first=True)
        self.ask, self.out = nn.Linear(h, h, bias=False), nn.Linear(2 * h, 20_000)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = self.encoder(self.words(x))[0], self.decoder(self.words(y))[0]
        looked = torch.softmax(self.ask(b) @ a.transpose(1, 2), -1) @ a
        return self.out(torch.cat([b, looked], -1))


@network("default")
def gru_translation() -> tuple:
    x, y = labels(20_000, 48, 60), labels(20_000, 48, 50)
    return Translate(), lambda m: F.cross_entropy(m(x, y).float().flatten(0, 1), y.flatten())


class Autoencoder(nn.Module):
    def __init__(self, c: int = 64) -> None:
        super().__init__()

        def down(i: int, o: int) -> list[nn.Module]:
            return [nn.Conv2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.SiLU()]

        def up(i: int, o: int) -> list[nn.Module]:
            return [nn.ConvTranspose2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.SiLU()]

        self.encoder = nn.Sequential(*down(3, c), *down(c, 2 * c), *down(2 * c, 4 * c), *down(4 * c, 8 * c))
        self.mean, self.spread, self.back = nn.Linear(8 * c * 64, 256), nn.Linear(8 * c * 64, 256), nn.Linear(256, 8 * c * 64)
        self.decoder, self.c = nn.Sequential(*up(8 * c, 4 * c), *up(4 * c, 2 * c), *up(2 * c, c), nn.ConvTranspose2d(c, 3, 4, 2, 1)), c

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h = self.encoder(x).flatten(1)
        mean, spread = self.mean(h), self.spread(h)
        z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        return self.decoder(self.back(z).reshape(-1, 8 * self.c, 8, 8)), mean, spread


@network(*BOTH)
def variational_autoencoder() -> tuple:
    x = images(64, 128)

    def loss(m: nn.Module) -> torch.Tensor:
        y, mean, spread = m(x)
        return F.mse_loss(y.float(), x) - 0.5 * (1 + spread - mean.pow(2) - spread.exp()).float().mean()

    return Autoencoder(), loss


class Attending(nn.Module):
    """Graph attention: scores of edges, their softmax over each node's neighbours."""

    def __init__(self, i: int = 128, h: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(i, h * heads), nn.Linear(h * heads, h * heads)])
        self.scores = nn.ModuleList([nn.Linear(h, 2) for _ in range(2)])
        self.out, self.heads, self.h = nn.Linear(h * heads, 32), heads, h

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for layer, scores in zip(self.layers, self.scores):
            x = layer(x).reshape(-1, self.heads, self.h)
            s = scores(x)
            e = F.leaky_relu(s[source, :, 0] + s[target, :, 1], 0.2).exp()
            total = torch.zeros(x.size(0), self.heads, device=x.device, dtype=e.dtype).index_add_(0, target, e)
            weight = e / total[target]
            x = F.elu(torch.zeros_like(x).index_add_(0, target, (x[source] * weight[..., None]).to(x.dtype)).flatten(1))
        return self.out(x)


@network("default")
def graph_attention_network() -> tuple:
    x, source, target, y = torch.randn(40_000, 128), labels(40_000, 300_000), labels(40_000, 300_000), labels(32, 40_000)
    return Attending(), lambda m: F.cross_entropy(m(x, source, target).float(), y)
