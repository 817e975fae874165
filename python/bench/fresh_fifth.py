"""The fifth list of networks of ``fresh.py``: kinds that the first four do not have, chosen and measured after what those showed was mended."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from fresh_parts import BOTH, NETWORKS, classifier, from_transformers, images, labels, language, network

LANGUAGE = {
    "xlnet-base": ("XLNetLMHeadModel", "XLNetConfig", {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}, 8, 256, 32000),
    "fnet-base": ("FNetForMaskedLM", "FNetConfig", {}, 16, 256, 32000),
    "longformer-base": ("LongformerForMaskedLM", "LongformerConfig", {"attention_window": [256] * 12, "max_position_embeddings": 1026, "num_hidden_layers": 12}, 4, 1024, 30000),
    "nystromformer-base": ("NystromformerForMaskedLM", "NystromformerConfig", {"segment_means_seq_len": 512, "max_position_embeddings": 1022}, 8, 512, 30000),
    "gpt-bigcode-like-0.3b": ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", {"n_embd": 1024, "n_layer": 20, "n_head": 16, "n_positions": 1024}, 6, 512, 50000),
    "cohere-like-0.4b": ("CohereForCausalLM", "CohereConfig", {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 64000}, 4, 512, 63000),
    "nemotron-like-0.5b": ("NemotronForCausalLM", "NemotronConfig", {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 16, "num_attention_heads": 20, "num_key_value_heads": 4, "vocab_size": 64000}, 4, 640, 63000),
    "glm-like-0.5b": ("GlmForCausalLM", "GlmConfig", {"hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 18, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 60000, "pad_token_id": 0}, 4, 512, 59000),
    "mixture-like-0.5b": ("MixtralForCausalLM", "MixtralConfig", {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 12, "num_key_value_heads": 4, "num_local_experts": 8, "vocab_size": 32000}, 4, 512, 32000),
    "pegasus-like": ("PegasusForCausalLM", "PegasusConfig", {"d_model": 1024, "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16}, 8, 256, 50000),
}
for _name, (_model, _config, _keys, _batch, _seq, _words) in LANGUAGE.items():
    language(_name, from_transformers(_model, _config, **_keys), _batch, _seq, _words)

classifier("mobilevitv2-1.0", "MobileViTV2ForImageClassification", "MobileViTV2Config", 48)
classifier("cvt-13", "CvtForImageClassification", "CvtConfig", 32)
classifier("swiftformer-xs", "SwiftFormerForImageClassification", "SwiftFormerConfig", 64)
classifier("hiera-tiny", "HieraForImageClassification", "HieraConfig", 48)
classifier("bit-50", "BitForImageClassification", "BitConfig", 24)
classifier("mobilenet_v1", "MobileNetV1ForImageClassification", "MobileNetV1Config", 128)


@network()
def masked_autoencoder() -> tuple:
    import transformers as hf

    x = images(32)
    return hf.ViTMAEForPreTraining(hf.ViTMAEConfig()), lambda m: m(pixel_values=x).loss.float()


@network(*BOTH)
def depth_estimation() -> tuple:
    import transformers as hf

    x = images(6, 384)
    return hf.DPTForDepthEstimation(hf.DPTConfig(image_size=384)), lambda m: m(pixel_values=x).predicted_depth.float().pow(2).mean()


@network(*BOTH)
def real_time_detector() -> tuple:
    import transformers as hf

    x = images(6, 640)

    def loss(m: nn.Module) -> torch.Tensor:
        out = m(pixel_values=x)
        return out.logits.float().pow(2).mean() + out.pred_boxes.float().pow(2).mean()

    return hf.RTDetrForObjectDetection(hf.RTDetrConfig(num_denoising=0)), loss


@network()
def segment_anything_encoder() -> tuple:
    import transformers as hf

    x = images(1, 1024)
    return hf.SamVisionModel(hf.SamVisionConfig()), lambda m: m(pixel_values=x).last_hidden_state.float().pow(2).mean()


@network()
def video_timesformer() -> tuple:
    import transformers as hf

    x, y = torch.randn(4, 8, 3, 224, 224), labels(400, 4)
    return hf.TimesformerForVideoClassification(hf.TimesformerConfig(num_labels=400)), lambda m: F.cross_entropy(m(pixel_values=x).logits.float(), y)


@network()
def wavlm_base() -> tuple:
    import transformers as hf

    x = torch.randn(6, 80_000)
    return hf.WavLMModel(hf.WavLMConfig(apply_spec_augment=False)), lambda m: m(x).last_hidden_state.float().pow(2).mean()


@network(*BOTH)
def neural_codec() -> tuple:
    import transformers as hf

    x = torch.randn(8, 1, 32_000)
    return hf.DacModel(hf.DacConfig()), lambda m: F.l1_loss(m(x).audio_values.float().flatten(1)[:, :30_000], x[:, 0, :30_000])


@network()
def caption_generator() -> tuple:
    import transformers as hf

    x, t = images(12, 224), labels(30000, 12, 32)
    config = hf.BlipConfig(vision_config={"image_size": 224})
    return hf.BlipForConditionalGeneration(config), lambda m: m(pixel_values=x, input_ids=t).logits.float().pow(2).mean()


@network()
def series_patches() -> tuple:
    import transformers as hf

    x, y = torch.randn(64, 512, 21), torch.randn(64, 96, 21)
    config = hf.PatchTSTConfig(num_input_channels=21, context_length=512, patch_length=16, patch_stride=8, prediction_length=96, d_model=128, num_attention_heads=16, num_hidden_layers=3)
    return hf.PatchTSTForPrediction(config), lambda m: F.mse_loss(m(past_values=x).prediction_outputs.float(), y)


def unit(i: int, o: int, k: int, s: int = 1, groups: int = 1, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o), act())


class Separable(nn.Module):
    """Separable convolutions, each pair with a norm, in residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(unit(3, 32, 3, 2), unit(32, 64, 3))
        self.blocks, self.skips = nn.ModuleList(), nn.ModuleList()
        widths = [(64, 128, 2), (128, 256, 2), (256, 728, 2), *[(728, 728, 1)] * 8, (728, 1024, 2)]
        for i, o, s in widths:
            layers: list[nn.Module] = []
            for a, b in ((i, o), (o, o), (o, o)) if s == 1 else ((i, o), (o, o)):
                layers += [nn.ReLU(), nn.Conv2d(a, a, 3, padding=1, groups=a, bias=False), nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b)]
            self.blocks.append(nn.Sequential(*layers, *([nn.MaxPool2d(3, 2, 1)] if s == 2 else [])))
            self.skips.append(nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if s == 2 else nn.Identity())
        self.out = nn.Linear(1024, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.front(x)
        for block, skip in zip(self.blocks, self.skips):
            x = block(x) + skip(x)
        return self.out(x.mean((2, 3)))


@network(*BOTH)
def separable_classifier() -> tuple:
    x, y = images(24, 299), labels(1000, 24)
    return Separable(), lambda m: F.cross_entropy(m(x).float(), y)


class Restoration(nn.Module):
    """Image restoration without activations: depthwise 3x3, gates, channel attention, norms over channels."""

    class Block(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(c), nn.LayerNorm(c)])
            self.wide, self.deep, self.back = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(2 * c, 2 * c, 3, padding=1, groups=2 * c), nn.Conv2d(c, c, 1)
            self.attend, self.up, self.down = nn.Conv2d(c, c, 1), nn.Conv2d(c, 2 * c, 1), nn.Conv2d(c, c, 1)
            self.beta, self.gamma = nn.Parameter(torch.zeros(1, c, 1, 1)), nn.Parameter(torch.zeros(1, c, 1, 1))

        def normed(self, i: int, x: torch.Tensor) -> torch.Tensor:
            return self.norms[i](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = self.deep(self.wide(self.normed(0, x))).chunk(2, 1)
            h = a * b
            x = x + self.back(h * self.attend(h.mean((2, 3), keepdim=True))) * self.beta
            a, b = self.up(self.normed(1, x)).chunk(2, 1)
            return x + self.down(a * b) * self.gamma

    def __init__(self, c: int = 32) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)
        widths = [c, 2 * c, 4 * c, 8 * c]
        self.down = nn.ModuleList([nn.Sequential(*[self.Block(w) for _ in range(n)]) for w, n in zip(widths, (2, 2, 4, 6))])
        self.shrink = nn.ModuleList([nn.Conv2d(w, 2 * w, 2, 2) for w in widths[:-1]])
        self.grow = nn.ModuleList([nn.Sequential(nn.Conv2d(2 * w, 4 * w, 1, bias=False), nn.PixelShuffle(2)) for w in reversed(widths[:-1])])
        self.up = nn.ModuleList([nn.Sequential(*[self.Block(w) for _ in range(2)]) for w in reversed(widths[:-1])])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start, kept = x, []
        x = self.first(x)
        for i, stage in enumerate(self.down):
            x = stage(x)
            if i < len(self.shrink):
                kept.append(x)
                x = self.shrink[i](x)
        for grow, stage in zip(self.grow, self.up):
            x = stage(grow(x) + kept.pop())
        return start + self.last(x)


@network(*BOTH)
def image_restoration() -> tuple:
    x, y = images(8, 256), images(8, 256)
    return Restoration(), lambda m: F.l1_loss(m(x).float(), y)


class Branches(nn.Module):
    """Three resolutions side by side that exchange what they found."""

    def __init__(self, c: int = 32, stages: int = 4) -> None:
        super().__init__()
        self.front, self.widths = nn.Sequential(unit(3, 64, 3, 2), unit(64, c, 3, 2)), [c, 2 * c, 4 * c]
        self.split = nn.ModuleList([unit(c, 2 * c, 3, 2), unit(2 * c, 4 * c, 3, 2)])
        self.work = nn.ModuleList([nn.ModuleList([nn.Sequential(*[unit(w, w, 3) for _ in range(4)]) for w in self.widths]) for _ in range(stages)])
        self.up = nn.ModuleList([nn.ModuleList([unit(2 * c, c, 1), unit(4 * c, c, 1), unit(4 * c, 2 * c, 1)]) for _ in range(stages)])
        self.down = nn.ModuleList([nn.ModuleList([unit(c, 2 * c, 3, 2), unit(2 * c, 4 * c, 3, 2)]) for _ in range(stages)])
        self.out = nn.Conv2d(7 * c, 17, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.front(x)
        b = self.split[0](a)
        c = self.split[1](b)
        for work, up, down in zip(self.work, self.up, self.down):
            a, b, c = work[0](a), work[1](b), work[2](c)
            lift = lambda t, n: F.interpolate(t, scale_factor=float(n))  # noqa: E731
            a, b, c = F.relu(a + lift(up[0](b), 2) + lift(up[1](c), 4)), F.relu(b + down[0](a) + lift(up[2](c), 2)), F.relu(c + down[1](b))
        return self.out(torch.cat([a, F.interpolate(b, scale_factor=2.0, mode="bilinear"), F.interpolate(c, scale_factor=4.0, mode="bilinear")], 1))


@network(*BOTH)
def pose_resolutions() -> tuple:
    x, y = images(16, 256), torch.rand(16, 17, 64, 64)
    return Branches(), lambda m: F.mse_loss(m(x).float(), y)


class Dense(nn.Module):
    """Super resolution by dense blocks within residuals."""

    def __init__(self, c: int = 64, grow: int = 32, blocks: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)
        self.blocks = nn.ModuleList([nn.ModuleList([nn.Conv2d(c + i * grow, grow if i < 4 else c, 3, padding=1) for i in range(5)]) for _ in range(blocks)])
        self.up = nn.ModuleList([nn.Conv2d(c, c, 3, padding=1) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            parts = [x]
            for conv in block[:4]:
                parts.append(F.leaky_relu(conv(torch.cat(parts, 1)), 0.2))
            x = x + 0.2 * block[4](torch.cat(parts, 1))
        for up in self.up:
            x = F.leaky_relu(up(F.interpolate(x, scale_factor=2.0)), 0.2)
        return self.last(x)


@network(*BOTH)
def dense_super_resolution() -> tuple:
    x, y = images(8, 64), images(8, 256)
    return Dense(), lambda m: F.l1_loss(m(x).float(), y)


class Memory(nn.Module):
    """Frames to come by convolutional LSTM cells."""

    def __init__(self, c: int = 64) -> None:
        super().__init__()
        self.inside, self.cells, self.out = nn.Conv2d(1, c, 3, 2, 1), nn.ModuleList([nn.Conv2d(2 * c, 4 * c, 5, padding=2) for _ in range(2)]), nn.ConvTranspose2d(c, 1, 4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t = x.shape[:2]
        state: list = [None] * len(self.cells)
        frames = []
        for i in range(t):
            h = self.inside(x[:, i])
            for j, cell in enumerate(self.cells):
                last, kept = state[j] or (torch.zeros_like(h), torch.zeros_like(h))
                gates = cell(torch.cat([h, last], 1)).chunk(4, 1)
                kept = torch.sigmoid(gates[0]) * kept + torch.sigmoid(gates[1]) * torch.tanh(gates[2])
                h = torch.sigmoid(gates[3]) * torch.tanh(kept)
                state[j] = (h, kept)
            frames.append(self.out(h))
        return torch.stack(frames, 1)


@network(*BOTH)
def frame_prediction() -> tuple:
    x, y = torch.randn(16, 10, 1, 64, 64), torch.randn(16, 10, 1, 64, 64)
    return Memory(), lambda m: F.mse_loss(m(x).float(), y)


class Narrator(nn.Module):
    """Speech from letters: an encoder of convolutions and an LSTM, a decoder of cells that attends at every frame."""

    def __init__(self, h: int = 512, frames: int = 60) -> None:
        super().__init__()
        self.letters, self.frames = nn.Embedding(80, h), frames
        self.convs = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Conv1d(h, h, 5, padding=2), nn.BatchNorm1d(h), nn.ReLU())])
        self.encoder, self.query, self.score = nn.LSTM(h, h // 2, batch_first=True, bidirectional=True), nn.Linear(1024, 128), nn.Linear(128, 1)
        self.keys, self.first, self.second, self.out = nn.Linear(h, 128), nn.LSTMCell(80 + h, 1024), nn.LSTMCell(1024 + h, 1024), nn.Linear(1024 + h, 80)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory, _ = self.encoder(self.convs(self.letters(x).transpose(1, 2)).transpose(1, 2))
        keys, b = self.keys(memory), x.size(0)
        zero = memory.new_zeros(b, 1024)
        one, two, seen, frame, frames = (zero, zero), (zero, zero), memory.new_zeros(b, 512), memory.new_zeros(b, 80), []
        for _ in range(self.frames):
            one = self.first(torch.cat([frame, seen], 1), one)
            weights = torch.softmax(self.score(torch.tanh(self.query(one[0])[:, None] + keys)).squeeze(2), 1)
            seen = torch.bmm(weights[:, None].to(memory.dtype), memory).squeeze(1)
            two = self.second(torch.cat([one[0], seen], 1), two)
            frame = self.out(torch.cat([two[0], seen], 1))
            frames.append(frame)
        return torch.stack(frames, 1)


@network(*BOTH)
def speech_from_letters() -> tuple:
    x, y = labels(80, 32, 96), torch.randn(32, 60, 80)
    return Narrator(), lambda m: F.mse_loss(m(x).float(), y)


class Video(nn.Module):
    """Depthwise volumes between 1x1x1 convolutions, with squeeze and excitation."""

    class Block(nn.Module):
        def __init__(self, i: int, o: int, s: int) -> None:
            super().__init__()
            m = 2 * o
            self.wide = nn.Sequential(nn.Conv3d(i, m, 1, bias=False), nn.BatchNorm3d(m), nn.ReLU(True))
            self.deep = nn.Sequential(nn.Conv3d(m, m, 3, (1, s, s), 1, groups=m, bias=False), nn.BatchNorm3d(m))
            self.squeeze = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Conv3d(m, m // 16, 1), nn.ReLU(True), nn.Conv3d(m // 16, m, 1), nn.Sigmoid())
            self.back = nn.Sequential(nn.SiLU(), nn.Conv3d(m, o, 1, bias=False), nn.BatchNorm3d(o))
            self.same = i == o and s == 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.deep(self.wide(x))
            h = self.back(h * self.squeeze(h))
            return F.relu(x + h) if self.same else h

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Conv3d(3, 24, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False), nn.Conv3d(24, 24, (5, 1, 1), padding=(2, 0, 0), groups=24, bias=False), nn.BatchNorm3d(24), nn.ReLU(True))
        widths = [(24, 24, 2), (24, 24, 1), (24, 48, 2), (48, 48, 1), (48, 48, 1), (48, 96, 2), *[(96, 96, 1)] * 5, (96, 192, 2), *[(192, 192, 1)] * 3]
        self.blocks, self.out = nn.Sequential(*[self.Block(*w) for w in widths]), nn.Linear(192, 400)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.blocks(self.front(x)).mean((2, 3, 4)))


@network(*BOTH)
def video_depthwise() -> tuple:
    x, y = torch.randn(8, 3, 13, 160, 160), labels(400, 8)
    return Video(), lambda m: F.cross_entropy(m(x).float(), y)


class Player(nn.Module):
    """A policy with a memory: frames through convolutions, an LSTM over time, two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.eye = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU())
        self.memory, self.policy, self.value = nn.LSTM(512, 256), nn.Linear(256, 18), nn.Linear(256, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t, b = x.shape[:2]
        h, _ = self.memory(self.eye(x.flatten(0, 1).float() / 255).view(t, b, -1))
        return self.policy(h), self.value(h)


@network(*BOTH)
def policy_with_memory() -> tuple:
    x, a, g = torch.randint(0, 255, (64, 32, 4, 84, 84), dtype=torch.uint8), labels(18, 64, 32), torch.randn(64, 32)

    def loss(m: nn.Module) -> torch.Tensor:
        policy, value = m(x)
        chosen = F.log_softmax(policy.float(), -1).gather(-1, a[..., None]).squeeze(-1)
        return -(chosen * g).mean() + F.mse_loss(value.float().squeeze(-1), g)

    return Player(), loss


class Distilled(nn.Module):
    """A small network that learns from a large one's answers."""

    def __init__(self) -> None:
        import torchvision

        super().__init__()
        self.teacher, self.student = torchvision.models.resnet50(weights=None).eval(), torchvision.models.mobilenet_v2(weights=None)
        self.teacher.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            aim = F.softmax(self.teacher(x).float() / 4, -1)
        return F.kl_div(F.log_softmax(self.student(x).float() / 4, -1), aim, reduction="batchmean")


@network(*BOTH)
def distillation() -> tuple:
    x = images(48)
    return Distilled(), lambda m: m(x)


class Sites(nn.Module):
    """Molecules: messages along edges by their lengths, summed by node."""

    def __init__(self, h: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.kinds, self.filters = nn.Embedding(100, h), nn.ModuleList([nn.Sequential(nn.Linear(50, h), nn.Softplus(), nn.Linear(h, h)) for _ in range(layers)])
        self.inside, self.after = nn.ModuleList([nn.Linear(h, h, bias=False) for _ in range(layers)]), nn.ModuleList([nn.Sequential(nn.Linear(h, h), nn.Softplus(), nn.Linear(h, h)) for _ in range(layers)])
        self.out = nn.Linear(h, 1)

    def forward(self, z: torch.Tensor, far: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.kinds(z)
        shells = torch.exp(-10 * (far[:, None] - torch.linspace(0, 5, 50, device=far.device)).pow(2))
        for filters, inside, after in zip(self.filters, self.inside, self.after):
            message = inside(x)[source] * filters(shells)
            x = x + after(torch.zeros_like(x).index_add_(0, target, message.to(x.dtype)))
        return self.out(x)


@network("default")
def molecules() -> tuple:
    z, far, source, target = labels(100, 20_000), torch.rand(400_000) * 5, labels(20_000, 400_000), labels(20_000, 400_000)
    return Sites(), lambda m: m(z, far, source, target).float().pow(2).mean()


class Towers(nn.Module):
    """Retrieval: bags of words of two kinds of things, and the similarities of all pairs of a batch."""

    def __init__(self, words: int = 500_000, h: int = 128) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(words, h, mode="mean") for _ in range(2)])
        self.towers = nn.ModuleList([nn.Sequential(nn.Linear(h, 512), nn.ReLU(), nn.BatchNorm1d(512), nn.Linear(512, 256)) for _ in range(2)])

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = (F.normalize(tower(bag(t)).float(), dim=-1) for bag, tower, t in zip(self.bags, self.towers, (x, y)))
        return a @ b.t() * 20


@network(*BOTH)
def retrieval_towers() -> tuple:
    x, y, own = labels(500_000, 4096, 24), labels(500_000, 4096, 40), torch.arange(4096)
    return Towers(), lambda m: F.cross_entropy(m(x, y), own)


# Language models as they are served: all weights in 16 bit.
for _name in ("cohere-like-0.4b", "nemotron-like-0.5b", "glm-like-0.5b", "gpt-bigcode-like-0.3b"):
    NETWORKS[_name] = (NETWORKS[_name][0], ("amp", "bf16"))
