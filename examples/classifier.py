"""A torchvision classifier in one call: time, memory and the best GPU for it, on a machine without any."""

import torch
import torchvision

import preflop

model = torchvision.models.resnet50()
images = torch.empty(64, 3, 224, 224)

print(preflop.predict(model, images, gpu="a100", precision="amp", optimizer="sgd"))

graph = preflop.trace(model, images, precision="amp", optimizer="sgd", name="resnet50")
print(graph.compare(["t4", "v100", "rtx-4090", "a100", "h100"], rank="time"))
print(graph.memory())
