"""Training loops of other people's libraries, and jobs on several GPUs."""

from __future__ import annotations

import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

from . import program
from .others import mlp


def _batches(count: int = 16) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader([(torch.randn(32), 1) for _ in range(count)], batch_size=4)


@program("none", needs=("transformers", "accelerate"))
def hugging_face_trainer(device: str) -> None:
    import transformers as hf

    config = hf.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=128, bos_token_id=1, eos_token_id=2)
    row = {"input_ids": torch.zeros(16, dtype=torch.long), "labels": torch.zeros(16, dtype=torch.long)}
    arguments = hf.TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=2, gradient_accumulation_steps=2, bf16=True,
        report_to=[], save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    hf.Trainer(hf.GPT2LMHeadModel(config), arguments, train_dataset=[row] * 32).train()


@program("none", needs=("accelerate",))
def accelerate_loop(device: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = mlp()
    model, optimizer, batches = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), _batches())
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(F.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()


@program("none", needs=("lightning",))
def lightning_trainer(device: str) -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = mlp()

        def training_step(self, batch: tuple, index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(accelerator="gpu", devices=1, max_steps=2, precision="bf16-mixed", **quiet).fit(Module(), _batches())


@program("none", needs=("timm",))
def timm_train_step(device: str) -> None:
    import timm
    import timm.data
    import timm.loss
    import timm.optim
    import timm.utils

    model = timm.create_model("resnet18", num_classes=10).to(device)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    average = timm.utils.ModelEmaV3(model, decay=0.99)
    x, y = timm.data.Mixup(mixup_alpha=0.8, num_classes=10)(
        torch.randn(4, 3, 64, 64, device=device), torch.zeros(4, dtype=torch.long, device=device)
    )
    with torch.autocast(device, torch.bfloat16):
        loss = timm.loss.SoftTargetCrossEntropy()(model(x), y)
    loss.backward()
    timm.utils.dispatch_clip_grad(model.parameters(), 1.0)
    optimizer.step()
    average.update(model)


def _group() -> None:
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29511", RANK="0", WORLD_SIZE="4", LOCAL_RANK="0")
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(0)


def _distributed_step(model: nn.Module, device: str) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 32, device=device)).sum().backward()
    optimizer.step()
    torch.distributed.destroy_process_group()


@program("none")
def data_parallel(device: str) -> None:
    _group()
    _distributed_step(nn.parallel.DistributedDataParallel(mlp().to(device), device_ids=[0]), device)


@program("none")
def fully_sharded_1(device: str) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    _group()
    _distributed_step(FullyShardedDataParallel(mlp().to(device), device_id=0), device)


@program("none", since=(2, 6))
def fully_sharded_2(device: str) -> None:
    from torch.distributed.fsdp import fully_shard

    _group()
    model = mlp().to(device)
    fully_shard(model[0])
    fully_shard(model)
    _distributed_step(model, device)


@program("products")
def gradient_scaler(device: str) -> None:
    model = mlp().to(device)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler(device, enabled=device == "cuda")
    with torch.autocast(device, torch.float16 if device == "cuda" else torch.bfloat16):
        loss = model(torch.randn(8, 32, device=device)).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


@program("none", needs=("torchao",))
def int8_weights(device: str) -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = mlp().eval()
    quantize_(model, Int8WeightOnlyConfig())
    with torch.no_grad():
        model.to(device)(torch.randn(8, 32, device=device))
