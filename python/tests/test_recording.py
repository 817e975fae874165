"""What programs see inside a recording, and what they leave behind."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import preflop
from preflop import _capture


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


def formats(graph: preflop.Graph, operator: str) -> set[str]:
    """Number formats of the first results of an operator."""
    tensors = graph.document["tensors"]
    return {tensors[op["out"][0]][0] for op in graph.document["ops"] if op["op"] == f"aten::{operator}"}


def test_a_program_that_looks_for_a_gpu_finds_one() -> None:
    model = mlp()
    with preflop.record() as graph:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model.to(device)
        with torch.autocast(device, torch.bfloat16):
            model(torch.randn(8, 32).to(device))
    assert formats(graph, "addmm") == {"bf16"}
    assert next(model.parameters()).device.type == "cpu"


def test_nothing_of_torch_cuda_needs_a_driver() -> None:
    with preflop.record() as graph:
        torch.cuda.set_device(0)
        x = torch.zeros(4, 4, device=0).to(0).cuda(non_blocking=True)
        assert x.is_cuda and x.device == torch.device("cuda", 0) and x.get_device() == 0
        torch.zeros(4).pin_memory().to("cuda", non_blocking=True)
        torch.cuda.Event(enable_timing=True).record(torch.cuda.current_stream())
        assert torch.cuda.get_device_capability() == (9, 0) and torch.cuda.get_device_properties(0).total_memory > 0
        assert torch.cuda.current_device() == 0 and "H100" in torch.cuda.get_device_name()
        generator = torch.Generator("cuda").manual_seed(1)
        assert generator.device.type == "cuda"
        torch.randn(4, device="cuda", generator=generator)
        (x @ x).sum()
    assert graph.operator_counts()["aten::mm"] == 1
    assert not isinstance(torch.cuda.is_available, type(lambda: 0)) or torch.cuda.is_available.__module__ == "torch.cuda"


def test_converting_a_model_keeps_one_copy() -> None:
    layer = nn.Linear(4096, 2048, bias=False)
    with preflop.record() as graph:
        layer.to("cuda").to(torch.bfloat16)
        layer(torch.zeros(8, 4096, device="cuda", dtype=torch.bfloat16))
    # 4096 x 2048 numbers of 2 bytes.
    assert graph.memory().weights_mib == 16
    assert graph.document["parameters"] == 4096 * 2048


def test_a_reset_peak_forgets_what_was_before() -> None:
    def peak(reset: bool) -> float:
        with preflop.record() as graph:
            torch.zeros(1024, 1024, 64, device="cuda").sum()
            if reset:
                torch.cuda.reset_peak_memory_stats()
            torch.zeros(1024, 1024, 16, device="cuda").sum()
            assert torch.cuda.memory_allocated() == 0
            assert torch.cuda.max_memory_allocated() >> 20 == (64 if reset else 256)
        return graph.memory().activations_mib

    # 2^26 and 2^24 numbers of 4 bytes, and their sums.
    assert 256 <= peak(False) < 257 and 64 <= peak(True) < 65


def test_a_stream_with_products_keeps_a_workspace() -> None:
    def workspace(*on_side: bool) -> float:
        with preflop.record() as graph:
            x = torch.zeros(64, 64, device="cuda")
            main = torch.cuda.current_stream()
            assert main == torch.cuda.default_stream()
            for product in on_side:
                side = torch.cuda.Stream()
                assert side != main
                with torch.cuda.stream(side):
                    assert torch.cuda.current_stream() == side
                    x @ x if product else x + x
            assert torch.cuda.current_stream() == main
        return graph.memory().workspace_mib

    plain = workspace()
    assert workspace(False) == plain
    assert workspace(True, False, True) == plain + 64


def test_the_pool_of_a_graph_ends_with_it() -> None:
    def peak(keep: bool) -> float:
        with preflop.record() as graph:
            x = torch.zeros(1024, 1024, device="cuda")
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                x + x
            captured.replay()
            if not keep:
                del captured
            torch.cuda.reset_peak_memory_stats()
            x.add_(1)
        return graph.memory().activations_mib

    assert (peak(True), peak(False)) == (8, 4)


def test_tracing_inside_a_recording_is_refused_in_one_line() -> None:
    traced = torch.jit.trace(mlp(), torch.zeros(2, 32))
    with pytest.raises(preflop.CaptureError, match="would trace the recorder") as error, preflop.record():
        torch.jit.trace(mlp(), torch.zeros(2, 32))
    assert "\n" not in str(error.value)
    with preflop.record() as graph:
        traced.to("cuda")(torch.zeros(2, 32, device="cuda"))
    assert graph.operator_counts()["aten::addmm"] == 2


def test_views_in_place_launch_nothing() -> None:
    with preflop.record() as graph:
        torch.zeros(4, 1, 4, device="cuda").squeeze_(1).t_().unsqueeze_(0).transpose_(0, 1)
    assert not graph.predict("h100").unmodelled


def test_the_kernels_that_a_program_allows_are_taken() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with preflop.record() as graph:
        q = torch.randn(2, 4, 16, 32, device="cuda", dtype=torch.bfloat16)
        for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
            with sdpa_kernel(kernel):
                F.scaled_dot_product_attention(q, q, q)
    counts = graph.operator_counts()
    assert counts["aten::_scaled_dot_product_flash_attention"] == 1
    assert counts["aten::_scaled_dot_product_efficient_attention"] == 1
    assert counts["aten::bmm"] == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_mask_that_gets_a_gradient_runs_the_memory_efficient_kernel(dtype: torch.dtype) -> None:
    with preflop.record() as graph:
        q = torch.randn(2, 4, 20, 32, device="cuda", dtype=dtype, requires_grad=True)
        mask = torch.randn(1, 4, 20, 20, device="cuda", dtype=dtype, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q, mask).sum().backward()
    counts = graph.operator_counts()
    assert counts["aten::_scaled_dot_product_efficient_attention"] == 1
    assert counts["aten::_scaled_dot_product_efficient_attention_backward"] == 1
    # Rows of 20 are padded to 24.
    assert counts["aten::constant_pad_nd"] >= 1 and "aten::bmm" not in counts
    assert not graph.predict("h200").unmodelled


def test_recurrent_layers_run_in_fp16_under_autocast() -> None:
    model = nn.LSTM(32, 128)
    with preflop.record() as graph:
        with torch.autocast("cuda", torch.bfloat16):
            out, _ = model.cuda()(torch.randn(8, 4, 32, device="cuda"))
        assert out.dtype == torch.float16
    said = graph.predict("h200").to_dict()
    assert [o["dtype"] for o in said["ops"] if o["op"] == "lstm"] == ["fp16"]


def test_products_of_experts_are_one_kernel_in_16_bit() -> None:
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this PyTorch has no grouped products")
    with preflop.record() as graph:
        x, w = torch.randn(512, 64, device="cuda", dtype=torch.bfloat16), torch.randn(4, 64, 128, device="cuda", dtype=torch.bfloat16)
        torch._grouped_mm(x, w, offs=torch.tensor([128, 256, 384, 512], device="cuda", dtype=torch.int32))
    said = graph.predict("h200").to_dict()
    assert [o["op"] for o in said["ops"] if o["op"].startswith("grouped")] == ["grouped_mm"]
    assert all("grouped" not in u["op"] for u in said["unmodelled"])


def test_optimizers_step_in_the_format_of_their_weights() -> None:
    model = nn.Linear(256, 256)
    with preflop.record() as graph:
        model = model.cuda().bfloat16()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.randn(4, 256, device="cuda", dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            graph.step()
    said = graph.predict("h200").to_dict()
    assert {o["dtype"] for o in said["ops"] if o["op"] == "adam_foreach"} == {"bf16"}


def test_heads_that_no_fused_kernel_takes_attend_by_plain_products() -> None:
    """Features that lie apart, and one key head that is broadcast: seen on an H200."""
    with preflop.record() as graph:
        whole = torch.randn(2, 8, 64, 32, device="cuda", dtype=torch.bfloat16)
        apart = torch.randn(2, 8, 32, 64, device="cuda", dtype=torch.bfloat16).transpose(-1, -2)
        for query, key in ((whole, whole), (apart, apart), (whole, whole[:, :1])):
            F.scaled_dot_product_attention(query, key, key)
    counts = graph.operator_counts()
    assert sum(n for name, n in counts.items() if name.startswith("aten::_scaled_dot_product")) == 1
    assert counts["aten::bmm"] == 4



def test_inner_steps_of_an_optimizer_count() -> None:
    model = mlp()
    optimizer, x = torch.optim.LBFGS(model.parameters(), max_iter=4), torch.randn(8, 32)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    with preflop.record() as graph:
        optimizer.step(closure)
    # Two layers in each of four evaluations.
    assert graph.operator_counts("forward")["aten::addmm"] == 8


def test_small_numbers_of_the_program_are_known_and_those_of_a_network_are_not() -> None:
    model = mlp()
    with preflop.record() as graph:
        mask = torch.arange(10, device="cuda") < 4
        assert mask.sum().item() == 4 and mask.any() and not mask.all()
        assert torch.nonzero(mask).shape == (4, 1)
        out = model(torch.randn(8, 32, device="cuda"))
        assert torch.isfinite(out).all()
        assert out[out > 0].numel() == 40, "half of 80"
        first, second = out.sum().item(), out.mean().item()
        assert first > 0 and second > 0
    assert [a.operator for a in graph.assumptions] == ["index by a mask"]


def test_assumptions_are_set_and_listed_with_their_effect() -> None:
    model, tail = mlp(), nn.Linear(10, 4096)
    with preflop.assume(nonzero=0.25), preflop.record() as graph:
        out = model(torch.randn(1024, 32, device="cuda"))
        tail(out[out[:, 0] > 0])
    (assumption,) = graph.predict("h100").assumptions
    assert assumption.size == 256 and "0.25 of 1,024" in assumption.assumed
    assert "test_recording.py" in assumption.line
    assert 0 < assumption.effect_ms < graph.predict("h100").gpu_busy_ms
    for bad in ({"nonzero": 2}, {"rounds": 0}, {"nms": "all"}, {"typo": 1}):
        with pytest.raises(preflop.PreflopError), preflop.assume(**bad):
            pass


def test_a_loop_that_waits_ends_and_names_its_line() -> None:
    model = mlp()
    with pytest.raises(preflop.CaptureError, match=r"test_recording\.py:\d+ asked 51 times"):
        with preflop.assume(rounds=50), preflop.record():
            x = model(torch.randn(8, 32, device="cuda"))
            while x.norm().item() < 100:
                x = x * 2


def test_iterations_are_told_apart_and_gathered_samples_counted() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    with preflop.record() as graph:
        for _ in range(3):
            for _ in range(2):
                model(torch.randn(8, 32, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert graph.operator_counts()["aten::addmm"] == 4, "two layers, two passes, one iteration"
    assert graph.document["samples"] == 16
    assert graph.document["parameter_tensors"] == 4


def test_saving_writes_no_file_and_graphs_can_be_pickled(tmp_path: Path) -> None:
    model = mlp()
    with preflop.record() as graph:
        model.cuda()(torch.randn(8, 32, device="cuda")).sum().backward()
        torch.save(model.state_dict(), tmp_path / "model.pt")
    assert not (tmp_path / "model.pt").exists()
    assert [a.operator for a in graph.assumptions] == ["torch.save"]
    assert pickle.loads(pickle.dumps(graph)).document == graph.document


def test_recorded_tensors_are_of_no_use_afterwards() -> None:
    with preflop.record():
        x = torch.randn(4, device="cuda").sum()
    with pytest.raises(preflop.CaptureError, match="no numbers"):
        x + 1
    assert "recorded tensor" in repr(x)


def test_autocast_of_the_cpu_is_named() -> None:
    model = torch.nn.Linear(8, 8)
    with preflop.record() as graph, torch.autocast("cpu", torch.bfloat16):
        model(torch.zeros(4, 8))
    assert any("autocast of the CPU" in note and "test_recording.py:" in note for note in graph.document["notes"])
    assert graph.predict("h100").notes == tuple(graph.document["notes"])


def test_products_that_stay_on_the_cpu_are_named() -> None:
    class Split(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.on_gpu = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            beside = torch.ones(8, 8) @ torch.ones(8, 8)
            return self.on_gpu(x) + beside.sum()

    with preflop.record() as graph:
        Split()(torch.zeros(4, 8))
    assert any("ran on the CPU" in note and "Split" in note for note in graph.document["notes"])
    with preflop.record() as graph:
        torch.nn.Linear(8, 8)(torch.zeros(4, 8))
    assert "notes" not in graph.document


def test_module_calls_of_recomputation_count() -> None:
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))

    def calls(again: bool) -> int:
        with preflop.record() as graph:
            x = torch.zeros(4, 8, requires_grad=True)
            (checkpoint(model, x, use_reentrant=False) if again else model(x)).sum().backward()
        return graph.document["module_calls"]

    assert calls(True) == 2 * calls(False) == 6


def test_versions_that_are_too_old_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_capture, "_OLDEST", (99, 0))
    with pytest.raises(preflop.CaptureError, match="too old to record"), preflop.record():
        raise AssertionError("the block is not reached")


def test_gradients_of_a_parallel_job_are_reduced_in_buckets() -> None:
    with preflop.record() as graph:
        torch.distributed.init_process_group("nccl", world_size=8, rank=0)
        model = nn.parallel.DistributedDataParallel(nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(10))).cuda())
        model(torch.randn(4, 1024, device="cuda")).sum().backward()
    sent = [op for op in graph.document["ops"] if op["op"] == "c10d::allreduce_"]
    sizes = [graph.document["tensors"][op["in"][0][0]["t"]][1][0] * 4 for op in sent]
    assert sum(sizes) == 10 * (1024 * 1024 + 1024) * 4
    assert len(sizes) == 3 and all(op["in"][1] == 8 for op in sent), "1 MiB first, then 25 MiB each"
    assert not torch.distributed.is_initialized()


def test_charts(tmp_path: Path) -> None:
    graph = preflop.trace(mlp(), torch.empty(64, 32))
    prediction = graph.predict("a100")
    prediction.plot(str(tmp_path / "time.svg"))
    assert (tmp_path / "time.svg").read_text().startswith("<svg")
    assert "<svg" in graph._repr_html_() and "memory over the operators" in graph._repr_html_()
    assert prediction.needed_mib > prediction.memory_mib
    with pytest.raises(preflop.PreflopError, match="svg"):
        prediction.plot(str(tmp_path / "time.bmp"))
