"""Compiled functions and CUDA graphs are recorded as they would be launched."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import preflop

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PREFLOP_CACHE", str(tmp_path))


def fused(graph: preflop.Graph) -> list[str]:
    return [op["fused"]["form"] for op in graph.document["ops"] if "fused" in op]


def test_a_compiled_model_becomes_fused_kernels_forward_and_backward() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    compiled = torch.compile(model)
    with preflop.record(strict=True) as graph:
        compiled(torch.randn(32, 64)).sum().backward()
    names = graph.operator_counts()
    # Four products and the bias gradients; gelu and its gradient are fused, not operators of their own.
    assert names["aten::addmm"] == 2 and names["aten::mm"] == 3
    assert not any("gelu" in n and n.startswith("aten") for n in names)
    phases = {op["phase"] for op in graph.document["ops"] if "fused" in op}
    assert phases == {"forward", "backward"}
    assert graph.document["compile"]["graphs"] == 2
    assert graph.predict("h200").iteration_ms > 0
    # The model is as it was, and real.
    assert type(model[0].weight) is nn.Parameter and model(torch.randn(2, 64)).shape == (2, 64)


def test_a_listing_is_kept_and_found_again(tmp_path) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2 + 1

    for _ in range(2):
        graph = preflop.capture(torch.compile(step), torch.randn(1 << 16), strict=True)
        assert fused(graph) == ["pointwise"]
    assert len(list((tmp_path / "compiled").iterdir())) == 1


def test_what_cannot_be_compiled_is_recorded_eagerly_and_said() -> None:
    @torch.compile(fullgraph=True)
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x * 2

    graph = preflop.capture(broken, torch.randn(64))
    assert not fused(graph)
    assert "broken" in graph.document["compile"]["eager"][0]
    with pytest.raises(preflop.CaptureError, match="cannot compile"):
        preflop.capture(broken, torch.randn(64), strict=True)


def test_a_captured_graph_counts_when_it_is_replayed_and_not_before() -> None:
    model = nn.Linear(64, 64)
    x = torch.randn(8, 64)
    with preflop.record() as graph, torch.no_grad():
        model(x)
        cuda_graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(cuda_graph):
            assert torch.cuda.is_current_stream_capturing()
            model(x)
        graph.step()
        cuda_graph.replay()
        cuda_graph.replay()
        graph.step()
    assert graph.operator_counts()["aten::addmm"] == 2
    assert graph.document["replayed"]
    once = preflop.capture(lambda: model(x))
    # Two replays on the GPU, no launches on the host.
    assert graph.predict("h200").host_ms < once.predict("h200").host_ms


def test_graphed_callables_are_replayed_in_both_directions() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    with preflop.record() as graph:
        model.to("cuda")
        x = torch.randn(8, 64, device="cuda")
        graphed = torch.cuda.make_graphed_callables(model, (x,))
        assert graphed is model
        graphed(x).sum().backward()
        model.eval()
        model(x)
    ops = graph.document["ops"]
    replayed = [op["op"] for op in ops if op.get("replayed")]
    # Two layers forward, two in backward less the gradient of the first one's input; the call in another mode is eager.
    assert replayed.count("aten::addmm") == 2 and replayed.count("aten::mm") == 3
    assert sum(op["op"] == "aten::addmm" for op in ops) == 4


def test_a_broken_graph_is_said() -> None:
    first, second = nn.Linear(64, 64), nn.Linear(64, 8)

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = first(x)
        torch._dynamo.graph_break()
        return second(y)

    with preflop.record() as graph, torch.no_grad():
        torch.compile(broken)(torch.randn(8, 64, device="cuda"))
    compiled = graph.document["compile"]
    assert compiled["graphs"] == 2 and compiled["torch"] == torch.__version__
    assert any("graph_break" in why for why in compiled["breaks"])
    assert any("broke the graph" in note for note in graph.predict("h200").notes)
