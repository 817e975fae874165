"""Answers: objects, tables, dictionaries, files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import preflop


@pytest.fixture(scope="module")
def graph() -> preflop.Graph:
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 10))
    return preflop.trace(model, torch.empty(64, 512), name="perceptron")


def test_prediction(graph: preflop.Graph) -> None:
    p = graph.predict("a100")
    assert p.low_ms <= p.iteration_ms <= p.high_ms
    assert p.gpu == "a100-sxm-80gb" and p.batch == 64 and p.mode == "train" and p.fits
    assert "perceptron" in repr(p) and "ms" in repr(p)
    assert "<table>" in p._repr_html_()
    table = p.to_pandas()
    assert len(table) == len(p.ops) and table["time_us"].sum() > 0
    assert p.to_dict()["iteration_ms"] == p.iteration_ms


def test_the_host_of_a_job_can_be_said(graph: preflop.Graph) -> None:
    unsaid, slow = graph.predict("a100"), graph.predict("a100", host="2x")
    assert slow.host_ms == pytest.approx(2 * unsaid.host_ms)
    assert (unsaid.host_factor, slow.host_factor) == (None, 2.0)
    with pytest.raises(preflop.PreflopError, match="`quick` is no host"):
        graph.predict("a100", host="quick")


def test_comparison(graph: preflop.Graph) -> None:
    c = graph.compare(["v100", "a100"])
    assert [o.gpu for o in c] == [c[0].gpu, c[1].gpu] and len(c) == 2
    assert c[0].iteration_ms <= c[1].iteration_ms
    assert list(c.to_pandas()["gpu"]) == [o.gpu for o in c]
    assert "GPU" in repr(c) and "<table>" in c._repr_html_()
    assert c.to_dict()[0]["gpu"] == c[0].gpu


def test_memory(graph: preflop.Graph) -> None:
    m = graph.memory()
    # Weights: 512*2048 + 2048 + 2048*10 + 10 numbers of 4 bytes, each tensor rounded up to 512 bytes.
    assert m.weights_mib * 2**20 == 512 * 2048 * 4 + 2048 * 4 + 2048 * 10 * 4 + 512
    assert m.gradients_mib <= m.weights_mib and m.optimizer_mib == m.weights_mib
    assert m.peak_mib == pytest.approx(sum(v for k, v in m.to_dict().items() if k != "peak_mib"))
    assert "peak" in repr(m) and len(m.to_pandas()) == 1


def test_roofline(graph: preflop.Graph, tmp_path: Path) -> None:
    r = graph.roofline("a100")
    assert r.gpu == "a100-sxm-80gb" and r[0].flops >= 0 and len(r.to_pandas()) == len(r)
    assert "<table>" in r._repr_html_()
    graph.chart(tmp_path / "roof.svg", "a100")
    assert (tmp_path / "roof.svg").read_text().startswith("<svg") or "<svg" in (tmp_path / "roof.svg").read_text()


def test_files_are_read_by_the_program(graph: preflop.Graph, tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    graph.save(path)
    assert preflop.Graph.load(path).document == graph.document
    command = [sys.executable, "-m", "preflop", "predict", str(path), "--gpu", "h100", "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert said == graph.predict("h100").to_dict()
    for bad in ("{", '{"format": "other"}'):
        path.write_text(bad)
        with pytest.raises(preflop.PreflopError):
            preflop.Graph.load(path)


def test_the_program_is_the_same() -> None:
    run = subprocess.run([sys.executable, "-m", "preflop", "predict", "no-such-model", "--gpu", "h100"], capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr.startswith("error: ") and "hint: " in run.stderr
    run = subprocess.run([sys.executable, "-m", "preflop", "--version"], capture_output=True, text=True)
    assert run.stdout.strip() == f"preflop {preflop.__version__}"


def test_damaged_recordings_are_refused(graph: preflop.Graph, tmp_path: Path) -> None:
    for change in (
        {"version": 99},
        {"samples": 0},
        {"tensors": []},
        {"storages": []},
        {"ops": [{"op": "aten::mm", "phase": "sideways", "module": "", "in": [], "out": []}]},
    ):
        path = tmp_path / "damaged.json"
        path.write_text(json.dumps({**graph.document, **change}))
        run = subprocess.run([sys.executable, "-m", "preflop", "predict", str(path), "--gpu", "h100"], capture_output=True, text=True)
        assert run.returncode == 2 and run.stderr.count("\n") <= 2, (change, run.stderr)


def test_a_profile_object_is_carried_over() -> None:
    """Without a GPU the profiler records no kernels, which is said in one line."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(8).sum()
    with pytest.raises(preflop.PreflopError):
        preflop.transfer(profile, to="a100")
    with pytest.raises(preflop.PreflopError, match="profile"):
        preflop.transfer(42, to="a100")
