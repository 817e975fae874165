"""A small recording for the documentation: two training steps of a small network, as PyTorch's profiler writes them.

    python tools/measure/example_trace.py step.json.gz
"""

import gzip
import pathlib
import sys
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile, schedule

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 64, 7, stride=2, padding=3), torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.Conv2d(64, 128, 3, padding=1),
    torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 1000),
).cuda()
optimizer = torch.optim.AdamW(model.parameters())
images, labels = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(1000, (32,), device="cuda")


def step() -> None:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, schedule=schedule(wait=5, warmup=3, active=2)) as recorded:
    for _ in range(10):
        step()
        recorded.step()
torch.cuda.synchronize()
with tempfile.TemporaryDirectory() as folder:
    plain = pathlib.Path(folder) / "step.json"
    recorded.export_chrome_trace(str(plain))
    pathlib.Path(sys.argv[1]).write_bytes(gzip.compress(plain.read_bytes(), 9))
