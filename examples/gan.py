"""A GAN: two networks, two optimizers, two backward passes in one iteration."""

import torch
import torch.nn.functional as F
from torch import nn

import preflop


def generator(width: int = 64) -> nn.Module:
    def up(i: int, o: int, stride: int, pad: int) -> list[nn.Module]:
        return [nn.ConvTranspose2d(i, o, 4, stride, pad, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]

    return nn.Sequential(
        *up(100, 8 * width, 1, 0), *up(8 * width, 4 * width, 2, 1), *up(4 * width, 2 * width, 2, 1),
        *up(2 * width, width, 2, 1), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
    )


def discriminator(width: int = 64) -> nn.Module:
    def down(i: int, o: int) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True)]

    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2, True), *down(width, 2 * width), *down(2 * width, 4 * width),
        *down(4 * width, 8 * width), nn.Conv2d(8 * width, 1, 4), nn.Flatten(0),
    )


g, d = generator(), discriminator()
g_optimizer = torch.optim.Adam(g.parameters(), 2e-4, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(d.parameters(), 2e-4, betas=(0.5, 0.999))


def step(real: torch.Tensor, noise: torch.Tensor) -> None:
    ones, zeros = torch.ones(len(real)), torch.zeros(len(real))
    fake = g(noise)
    d_optimizer.zero_grad()
    loss = F.binary_cross_entropy_with_logits(d(real), ones) + F.binary_cross_entropy_with_logits(d(fake.detach()), zeros)
    loss.backward()
    d_optimizer.step()
    g_optimizer.zero_grad()
    F.binary_cross_entropy_with_logits(d(fake), ones).backward()
    g_optimizer.step()


graph = preflop.capture(step, torch.empty(128, 3, 64, 64), torch.empty(128, 100, 1, 1), name="gan", samples=128)
print(graph)
print(graph.predict("v100"))
print(graph.roofline("v100"))
