"""Exported files are read by the program alone, and agree with the zoo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torchvision
import transformers

from preflop._program import answer
from preflop import PreflopError
from reference_models import no_initialisation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    images = torch.zeros(8, 3, 224, 224)
    batch = ({0: torch.export.Dim("batch")},)
    with no_initialisation():
        for name in ("resnet18", "vit_b_16"):
            model = torchvision.models.get_model(name).eval()
            torch.export.save(torch.export.export(model, (images,), dynamic_shapes=batch), folder / f"{name}.pt2")
        model = torchvision.models.resnet18().eval()
        torch.onnx.export(model, (images,), folder / "resnet18.onnx", dynamo=True, verbose=False, dynamic_shapes=batch)
    return folder


def infer(model: str, *sizes: str) -> dict:
    return answer("predict", model, "--gpu", "h200", "--mode", "infer", *sizes)


def agree(imported: dict, zoo: dict, flops: float, time: float) -> None:
    print(f"{imported['model']}: FLOPs {imported['flops'] / zoo['flops']:.4f}, time {imported['iteration_ms'] / zoo['iteration_ms']:.3f}")
    assert imported["flops"] == pytest.approx(zoo["flops"], rel=flops)
    assert imported["iteration_ms"] == pytest.approx(zoo["iteration_ms"], rel=time)
    assert not imported["unmodelled"]


def of_kind(prediction: dict, op: str) -> float:
    """Milliseconds of all calls of an operator."""
    return sum(o["time_us"] for o in prediction["ops"] if o["op"] == op) / 1e3


def test_torch_export(folder: Path) -> None:
    agree(infer(str(folder / "resnet18.pt2"), "--batch", "32"), infer("resnet18", "--batch", "32"), 0.01, 0.02)
    # The zoo's inference takes PyTorch's fused attention module; the archive holds the parts that it was traced into: the
    # same products, attention and norms, and beside them copies and a bias that the module does not have.
    imported, zoo = infer(str(folder / "vit_b_16.pt2"), "--batch", "32"), infer("vit_b_16", "--batch", "32")
    more = of_kind(imported, "permute_copy") + of_kind(imported, "add_bias")
    assert more > 0 and of_kind(zoo, "permute_copy") == of_kind(zoo, "add_bias") == 0
    agree({**imported, "iteration_ms": imported["iteration_ms"] - more}, zoo, 0.01, 0.02)
    for op in ("linear", "conv2d", "sdpa", "gelu", "layernorm"):
        assert of_kind(imported, op) == pytest.approx(of_kind(zoo, op), rel=0.01), op


def test_training_of_an_exported_forward(folder: Path) -> None:
    """Backward and optimizer are derived as for the zoo."""
    options = ["--gpu", "h200", "--mode", "train", "--precision", "amp", "--batch", "64"]
    imported, zoo = (answer("predict", m, *options) for m in (str(folder / "resnet18.pt2"), "resnet18"))
    agree(imported, zoo, 0.01, 0.02)
    assert imported["memory_mib"] == pytest.approx(zoo["memory_mib"], rel=0.02)


def test_onnx_folds_batch_norms(folder: Path) -> None:
    """The exporter folds batch norms into convolutions, so FLOPs agree within 1 % and the time is a little shorter."""
    imported = infer(str(folder / "resnet18.onnx"), "--dim", "batch=32")
    zoo = infer("resnet18", "--batch", "32")
    assert imported["flops"] == pytest.approx(zoo["flops"], rel=0.01)
    assert 0.7 * zoo["iteration_ms"] < imported["iteration_ms"] <= zoo["iteration_ms"]
    assert not imported["unmodelled"]


def test_open_dimensions_must_be_given(folder: Path) -> None:
    with pytest.raises(PreflopError, match="`batch` is open"):
        infer(str(folder / "resnet18.onnx"))
    with pytest.raises(PreflopError, match="no dimension is called `sequence`"):
        infer(str(folder / "resnet18.onnx"), "--dim", "sequence=8")
    (folder / "broken.onnx").write_bytes(b"\x00" * 64)
    (folder / "broken.pt2").write_bytes(b"PK\x03\x04 no archive")
    for name in ("broken.onnx", "broken.pt2"):
        with pytest.raises(PreflopError, match=name):
            infer(str(folder / name))


def test_an_8b_model_from_the_meta_device(tmp_path: Path) -> None:
    """A file of some megabytes describes a model whose weights would take 32 GB."""

    class Logits(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.model(tokens, use_cache=False).logits

    config = transformers.LlamaConfig(intermediate_size=14336, num_key_value_heads=8, vocab_size=128256)
    with torch.device("meta"):
        model = Logits(transformers.LlamaForCausalLM(config))
        tokens = torch.zeros(1, 512, dtype=torch.long)
    torch.export.save(torch.export.export(model, (tokens,), strict=False), tmp_path / "llama.pt2")
    assert (tmp_path / "llama.pt2").stat().st_size < 8 << 20
    imported = infer(str(tmp_path / "llama.pt2"), "--precision", "bf16")
    zoo = infer("llama-3-8b", "--batch", "1", "--seq", "512", "--precision", "bf16")
    assert imported["parameters"] == zoo["parameters"] == 8_030_261_248
    # A causal mask given as a tensor leaves the upper triangle in the count: 1 % of the arithmetic.
    assert imported["flops"] == pytest.approx(zoo["flops"], rel=0.015)
    assert imported["iteration_ms"] == pytest.approx(zoo["iteration_ms"], rel=0.05)


@pytest.mark.parametrize(
    ("config", "zoo"),
    [
        (transformers.LlamaConfig(), "llama-2-7b"),
        (transformers.GPT2Config(), "gpt2"),
        (transformers.BertConfig(), "bert-base"),
        (transformers.ViTConfig(num_labels=1000), "vit_b_16"),
    ],
)
def test_hugging_face_configurations(config: transformers.PretrainedConfig, zoo: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False))
    sizes = ["--batch", "2"] + (["--seq", "256"] if zoo != "vit_b_16" else [])
    imported, reference = (answer("predict", m, "--gpu", "h200", *sizes) for m in (str(tmp_path / "config.json"), zoo))
    assert imported["parameters"] == reference["parameters"]
    assert imported["iteration_ms"] == pytest.approx(reference["iteration_ms"], rel=1e-9)


@pytest.mark.parametrize("name", ["Mistral", "Qwen2", "Qwen3", "Mixtral"])
def test_parameters_as_transformers_counts_them(name: str, tmp_path: Path) -> None:
    config = getattr(transformers, f"{name}Config")(num_hidden_layers=2)
    with torch.device("meta"):
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False))
    said = answer("predict", str(tmp_path / "config.json"), "--gpu", "b200", "--mode", "infer", "--precision", "bf16", "--seq", "128")
    assert said["parameters"] == sum(p.numel() for p in model.parameters())


def test_unknown_configurations_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "reformer"}))
    with pytest.raises(PreflopError, match="reformer"):
        infer(str(tmp_path / "config.json"))
