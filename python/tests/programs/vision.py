"""Networks for images and video: classification, detection, segmentation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from . import program


def _trained(model: nn.Module, images: torch.Tensor, device: str) -> None:
    model = model.to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    out = model(images.to(device))
    out = out["out"] if isinstance(out, dict) else out[0] if isinstance(out, tuple) else out
    target = torch.zeros(out.shape[:1] + out.shape[2:], dtype=torch.long, device=device)
    F.cross_entropy(out, target).backward()
    optimizer.step()
    optimizer.zero_grad()


def _torchvision(name: str, size: int = 64, batch: int = 2, **options: object) -> None:
    @program(needs=("torchvision",), name=f"torchvision-{name}")
    def run(device: str) -> None:
        import torchvision

        _trained(torchvision.models.get_model(name, weights=None, **options), torch.randn(batch, 3, size, size), device)


for _name in (
    "resnet18", "resnext50_32x4d", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "densenet121",
    "squeezenet1_1", "shufflenet_v2_x0_5", "regnet_y_400mf", "mnasnet0_5", "swin_t",
):  # fmt: skip
    _torchvision(_name)
_torchvision("googlenet", init_weights=False, aux_logits=False)
_torchvision("vit_b_32", size=224, batch=1)


def _timm(name: str, size: int = 64) -> None:
    @program(needs=("timm",), name=f"timm-{name}")
    def run(device: str) -> None:
        import timm

        model = timm.create_model(name, num_classes=10, **({} if "mixer" in name or "conv" in name else {"img_size": size}))
        _trained(model, torch.randn(2, 3, 224 if "mixer" in name else size, 224 if "mixer" in name else size), device)


for _name in ("vit_tiny_patch16_224", "convmixer_768_32", "mixer_s32_224", "deit_tiny_patch16_224"):
    _timm(_name)


def _segmentation(name: str) -> None:
    @program(needs=("torchvision",), name=f"torchvision-{name}")
    def run(device: str) -> None:
        import torchvision

        model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=5)
        _trained(model, torch.randn(2, 3, 64, 64), device)


for _name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
    _segmentation(_name)


@program(needs=("torchvision",))
def video_r3d_18(device: str) -> None:
    import torchvision

    _trained(torchvision.models.video.r3d_18(weights=None), torch.randn(1, 3, 4, 32, 32), device)


def _detector(name: str, training: bool) -> None:
    @program("products", needs=("torchvision",), name=f"torchvision-{name}-{'train' if training else 'infer'}")
    def run(device: str) -> None:
        import torchvision

        model = torchvision.models.get_model(name, weights=None, weights_backbone=None).to(device).train(training)
        images = [torch.rand(3, 96, 128, device=device) for _ in range(2)]
        if not training:
            with torch.no_grad():
                model(images)
            return
        boxes = torch.tensor([[10.0, 10, 60, 60], [20, 20, 90, 70]], device=device)
        target = {"boxes": boxes, "labels": torch.tensor([1, 2], device=device)}
        if name.startswith("mask"):
            target["masks"] = torch.ones(2, 96, 128, dtype=torch.uint8, device=device)
        sum(model(images, [target, target]).values()).backward()


_detector("fasterrcnn_mobilenet_v3_large_320_fpn", training=True)
_detector("fasterrcnn_mobilenet_v3_large_320_fpn", training=False)
_detector("maskrcnn_resnet50_fpn", training=True)
_detector("retinanet_resnet50_fpn", training=True)
_detector("ssdlite320_mobilenet_v3_large", training=False)


@program()
def unet_with_group_norm(device: str) -> None:
    class Block(nn.Sequential):
        def __init__(self, i: int, o: int) -> None:
            super().__init__(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU())

    down, middle, up, head = Block(3, 8), Block(8, 16), nn.ConvTranspose2d(16, 8, 2, 2), Block(16, 4)
    model = nn.ModuleList([down, middle, up, head]).to(device)
    x = torch.randn(2, 3, 32, 32, device=device)
    skip = down(x)
    y = up(middle(F.max_pool2d(skip, 2)))
    loss = F.mse_loss(head(torch.cat([skip, y], 1)), torch.zeros(2, 4, 32, 32, device=device))
    loss.backward()
    torch.optim.AdamW(model.parameters()).step()


@program()
def spatial_transformer(device: str) -> None:
    locate = nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 6)).to(device)
    x = torch.randn(2, 1, 28, 28, device=device)
    grid = F.affine_grid(locate(x).view(-1, 2, 3), list(x.shape), align_corners=False)
    F.grid_sample(x, grid, align_corners=False).sum().backward()


@program()
def warped_by_flow(device: str) -> None:
    """cuDNN's sampler: aligned corners, zeros around."""
    move = nn.Conv2d(2, 2, 3, padding=1).to(device)
    x = torch.randn(2, 3, 24, 24, device=device)
    grid = torch.tanh(move(torch.randn(2, 2, 24, 24, device=device))).permute(0, 2, 3, 1)
    F.grid_sample(x, grid, align_corners=True).sum().backward()


@program("products")
def gan_of_two_optimizers(device: str) -> None:
    g = nn.Sequential(nn.ConvTranspose2d(8, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())
    d = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4))
    g, d = g.to(device), d.to(device)
    og, od = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
    real, fake = torch.randn(4, 3, 8, 8, device=device), g(torch.randn(4, 8, 1, 1, device=device))
    ones, zeros = torch.ones(4, 1, 1, 1, device=device), torch.zeros(4, 1, 1, 1, device=device)
    loss = F.binary_cross_entropy_with_logits(d(real), ones) + F.binary_cross_entropy_with_logits(d(fake.detach()), zeros)
    od.zero_grad()
    loss.backward()
    od.step()
    og.zero_grad()
    F.binary_cross_entropy_with_logits(d(fake), ones).backward()
    og.step()
