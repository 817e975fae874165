"""Training steps of all kinds are recorded, and what they used is left as it was."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.checkpoint import checkpoint

import preflop
from preflop import _capture


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer | None = None):
    def step(x: torch.Tensor) -> None:
        model(x).float().mean().backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()

    return step


def test_models_and_optimizers_are_left_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    optimizer = torch.optim.Adam(model.parameters())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    preflop.capture(step_of(model, optimizer), torch.randn(4, 8))
    assert all(type(p) is nn.Parameter and p.device.type == "cpu" and p.grad is None for p in model.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert optimizer.param_groups[0]["params"][0] is model[0].weight
    assert not optimizer.state
    # PyTorch itself works on: real tensors, real gradients.
    step_of(model, optimizer)(torch.randn(4, 8))
    assert len(optimizer.state) == 4


def test_backward_knows_the_layers_it_belongs_to() -> None:
    graph = preflop.trace(torchvision.models.resnet18(), torch.empty(2, 3, 64, 64))
    backward = [op for op in graph.document["ops"] if op["op"] == "aten::convolution_backward"]
    forward = [op for op in graph.document["ops"] if op["op"] == "aten::convolution"]
    assert [op["module"] for op in backward] == [op["module"] for op in reversed(forward)]
    assert backward[-1]["module"] == "conv1"


def test_autocast_casts_as_cuda_does() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64))
    graph = preflop.trace(model, torch.empty(4, 64), precision="amp", loss=lambda o: o.mean())
    tensors = graph.document["tensors"]
    product = next(op for op in graph.document["ops"] if op["op"] == "aten::addmm")
    norm = next(op for op in graph.document["ops"] if op["op"] == "aten::native_layer_norm")
    assert tensors[product["in"][1]["t"]][0] == "bf16"
    assert tensors[norm["in"][0]["t"]][0] == "fp32"
    assert graph.predict("h100").precision == "amp"


def test_channels_last_stays() -> None:
    model = torchvision.models.resnet18().to(memory_format=torch.channels_last)
    images = torch.empty(2, 3, 64, 64).to(memory_format=torch.channels_last)
    graph = preflop.trace(model, images, precision="amp")
    tensors = graph.document["tensors"]
    for op in graph.document["ops"]:
        if op["op"] == "aten::convolution":
            assert tensors[op["out"][0]][2][1] == 1, "channels lie innermost"
    names = {o.op for o in graph.predict("h200").ops}
    assert not names & {"transpose", "permute_copy"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_runs_the_forward_twice_and_keeps_less(reentrant: bool) -> None:
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(8)])

    def step(x: torch.Tensor, saving: bool) -> None:
        x = x.clone().requires_grad_()
        y = x
        for block in blocks:
            y = checkpoint(block, y, use_reentrant=reentrant) if saving else block(y)
        y.sum().backward()
        blocks.zero_grad()

    x = torch.empty(4096, 256)
    plain, saving = (preflop.capture(step, x, s) for s in (False, True))
    assert saving.operator_counts()["aten::gelu"] == 2 * plain.operator_counts()["aten::gelu"]
    assert saving.memory().activations_mib < 0.5 * plain.memory().activations_mib


@pytest.mark.parametrize(
    ("make", "operator"),
    [
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), "sgd_foreach"),
        (lambda p: torch.optim.SGD(p, 0.1), "sgd_plain"),
        (lambda p: torch.optim.Adam(p), "adam_foreach"),
        (lambda p: torch.optim.Adam(p, foreach=False), "adam_single"),
        (lambda p: torch.optim.AdamW(p, fused=True), "adam"),
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True), "sgd_fused"),
    ],
)
def test_optimizers_are_recognised(make, operator: str) -> None:
    model = nn.Linear(64, 64)
    prediction = preflop.predict(model, torch.empty(4, 64), "a100", optimizer=make, loss=lambda o: o.mean())
    steps = [o for o in prediction.ops if o.phase == "optimizer"]
    assert [o.op for o in steps if o.op.startswith(operator.split("_")[0])][0] == operator
    assert not prediction.unmodelled


def test_attention_runs_in_a_fused_kernel() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Linear(64, 192)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.w(x).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    for precision, operator in (("fp32", "efficient"), ("amp", "cudnn")):
        graph = preflop.trace(Attention(), torch.empty(2, 16, 64), precision=precision, loss=lambda o: o.mean())
        counts = graph.operator_counts()
        assert counts[f"aten::_scaled_dot_product_{operator}_attention"] == 1
        assert counts[f"aten::_scaled_dot_product_{operator}_attention_backward"] == 1


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_one_call(kind: type[nn.RNNBase]) -> None:
    model = kind(32, 64, 2, bidirectional=True, batch_first=True)
    graph = preflop.trace(model, torch.empty(3, 10, 32), loss=lambda o: o[0].mean())
    counts = graph.operator_counts()
    assert counts["aten::_cudnn_rnn"] == counts["aten::_cudnn_rnn_backward"] == 1
    assert graph.predict("v100").flops > 0


def test_custom_autograd_functions() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 3 * x * x * gradient

    layer = nn.Linear(16, 16)
    graph = preflop.capture(lambda x: Cube.apply(layer(x)).sum().backward(), torch.empty(4, 16))
    assert graph.operator_counts("forward")["aten::mul"] == 2
    assert graph.operator_counts("backward")["aten::mul"] == 3


def test_compiled_functions_run_as_they_were_written() -> None:
    model = torch.compile(nn.Sequential(nn.Linear(16, 16), nn.ReLU()))
    graph = preflop.capture(step_of(model), torch.empty(4, 16))
    assert graph.operator_counts()["aten::relu"] == 1


def test_gradient_scaler_and_loop_in_a_block() -> None:
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with preflop.record() as graph:
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(3):
            with torch.autocast("cuda", torch.float16):
                loss = F.cross_entropy(model(torch.randn(32, 64)), torch.zeros(32, dtype=torch.long))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            graph.step()
    counts = graph.operator_counts()
    assert counts["aten::_amp_foreach_non_finite_check_and_unscale_"] == 1
    assert counts["aten::addmm"] == 1, "one iteration, not three"


def test_moving_a_model_to_the_gpu_moves_its_optimizer_too() -> None:
    model = nn.Linear(64, 10)
    optimizer = torch.optim.AdamW(model.parameters())
    with preflop.record() as graph:
        model.to("cuda")
        images = torch.randn(32, 64, device="cuda")
        F.cross_entropy(model(images), torch.zeros(32, dtype=torch.long, device="cuda")).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert graph.operator_counts("optimizer")["aten::_foreach_addcdiv_"] == 1
    assert model.weight.device.type == "cpu"


def test_unknown_operators_are_listed_with_their_bytes() -> None:
    @torch.library.custom_op("preflop_tests::mix", mutates_args=())
    def mix(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @mix.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    layer = nn.Linear(1024, 1024)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prediction = preflop.capture(lambda x: mix(layer(x)), torch.empty(1024, 1024)).predict("a100")
    assert [u.op for u in prediction.unmodelled] == ["preflop_tests::mix"]
    assert prediction.unmodelled[0].share > 0


def test_mistakes_are_exceptions() -> None:
    model = nn.Linear(8, 8)
    with pytest.raises(preflop.PreflopError, match="nonsense"):
        preflop.predict(model, torch.empty(2, 8), "nonsense")
    with pytest.raises(preflop.CaptureError, match="no operator"):
        with preflop.record():
            pass
    with pytest.raises(RuntimeError, match="reduction dim"):
        preflop.capture(model, torch.empty(2, 9))
    with pytest.raises(preflop.PreflopError, match="precision"):
        preflop.predict(model, torch.empty(2, 8), "a100", precision="fp7")
    with pytest.raises(preflop.PreflopError, match="optimizer"):
        preflop.predict(model, torch.empty(2, 8), "a100", optimizer="sgdd")
    # After a failure everything works on.
    assert preflop.predict(model, torch.empty(2, 8), "a100").iteration_ms > 0
    model(torch.randn(2, 8)).sum().backward()
    assert model.weight.grad is not None


def test_checkpointed_blocks_are_computed_twice_and_left_as_they_were() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(self.layer(x))

    model = nn.Sequential(*(Block() for _ in range(3)))
    counts = [_capture.trace(model, torch.zeros(8, 64), checkpoint=how).operator_counts() for how in ("none", "full")]
    assert counts[0]["aten::addmm"] == 3 and counts[1]["aten::addmm"] == 6
    assert all("forward" not in block.__dict__ for block in model.modules())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checkpoint": "full"}, "no list of blocks"),
        ({"checkpoint": "every=2"}, "unknown checkpoint"),
        ({"checkpoint": "full", "mode": "infer"}, "mode train"),
    ],
)
def test_checkpoints_that_cannot_be_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(preflop.PreflopError, match=said):
        preflop.predict(nn.Linear(4, 4), torch.zeros(2, 4), "h200", **options)
