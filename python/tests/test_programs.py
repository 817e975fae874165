"""Real programs record and predict, with the operators that they run on a CPU; or end in one line that says what to do."""

from __future__ import annotations

import importlib.util
from collections import Counter

import pytest
import torch
from programs import PROGRAMS, Program
from torch.utils._python_dispatch import TorchDispatchMode

import preflop

#: Programs that can't be recorded, and what is said.
REFUSED = {
    "sparse_matrix": "can't be recorded",
    "nested_tensor": "can't be run on a recorded tensor",
    "loop_that_waits": "does a loop wait for it",
}

#: The same work under the names of the two devices.
NAMES = {
    "cudnn_batch_norm": "batch_norm",
    "native_batch_norm": "batch_norm",
    "cudnn_batch_norm_backward": "batch_norm_backward",
    "native_batch_norm_backward": "batch_norm_backward",
    "_scaled_dot_product_flash_attention_for_cpu": "attention",
    "_scaled_dot_product_efficient_attention": "attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "attention_backward",
    "_scaled_dot_product_efficient_attention_backward": "attention_backward",
    # The CPU runs a cell as elementwise parts, which are left out.
    "_thnn_fused_lstm_cell": "add",
    "_thnn_fused_lstm_cell_backward_impl": "add",
    "_safe_softmax": "_softmax",
    "cudnn_grid_sampler": "grid_sampler_2d",
    "cudnn_grid_sampler_backward": "grid_sampler_2d_backward",
}
#: What computes nothing, or is chosen by the device: copies, views, fills, sums of gradients, elementwise parts of composites.
_LEFT_OUT = """detach alias lift_fresh _to_copy copy clone empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like
    new_zeros ones ones_like new_ones full full_like fill zero _local_scalar_dense scalar_tensor resize set is_pinned
    add mul sub div bernoulli native_dropout native_dropout_backward _assert_async randn randint rand sigmoid tanh _linalg_check_errors
    where eq sqrt lerp addcmul addcdiv cat stack unsafe_chunk sum permute rsub random arange masked_fill expand all neg
    bitwise_and bitwise_not logical_not uniform normal erfinv clamp linspace triu tril unsafe_split sigmoid_backward tanh_backward
    item is_nonzero _unsafe_view _conj resolve_conj rsqrt pow gt lt ge le ne index_put""".split()
#: The CPU runs recurrent layers as many small products.
_BESIDE_RECURRENT = ("convolution", "convolution_backward", "embedding", "_ctc_loss", "_pack_padded_sequence")
#: Of a GPU's plain products, and of the CPU's fused kernel.
_ATTENTION = ("attention", "attention_backward", "bmm", "_softmax", "_softmax_backward_data")
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "_int_mm", "embedding")


class Counting(TorchDispatchMode):
    """Operators of a run on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        aliases = [r.alias_info for r in func._schema.returns]
        if not any(a is not None and not a.is_write for a in aliases):
            self.counts[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


def compared(counts: dict[str, int], how: str) -> Counter[str]:
    """Counts by names that hold for both devices."""
    out: Counter[str] = Counter()
    for name, count in counts.items():
        plain = name.removeprefix("aten::")
        plain = plain[:-1] if plain.endswith("_") else plain
        plain = NAMES.get(plain, plain)
        if plain in _LEFT_OUT or plain.startswith(("_foreach", "profiler::", "torchvision::_cuda_version")):
            continue
        if how == "attention" and plain in _ATTENTION:
            continue
        if how in ("all", "attention") or plain in (_PRODUCTS if how == "products" else _BESIDE_RECURRENT):
            # A product with and without bias is one product.
            out[{"addmm": "mm", "baddbmm": "bmm"}.get(plain, plain)] += count
    return out


def launched(graph: preflop.Graph) -> Counter[str]:
    return Counter(op["op"] for op in graph.document["ops"] if not op.get("view"))


def _listed() -> list:
    """Programs that need more than PyTorch are marked: a matrix of PyTorch's versions runs the others."""
    return [pytest.param(p, id=p.name, marks=[pytest.mark.libraries] if p.needs else []) for p in PROGRAMS.values()]


@pytest.mark.parametrize("program", _listed())
def test_program(program: Program) -> None:
    missing = [n for n in program.needs if importlib.util.find_spec(n) is None]
    if missing:
        pytest.fail(f"{', '.join(missing)} is listed in requirements-test.txt and not installed")
    if program.name in REFUSED:
        with pytest.raises(preflop.CaptureError, match=REFUSED[program.name]) as refused, preflop.record():
            program.run("cuda")
        assert "\n" not in str(refused.value)
        return
    torch.manual_seed(0)
    # What stays on the host runs for real and is counted as such.
    with Counting() as host, preflop.record(program.name, samples=2) as graph:
        program.run("cuda")
    assert len(graph) > 0
    prediction = graph.predict("h100")
    assert prediction.iteration_ms > 0 and prediction.memory_mib > 0
    if program.compared == "none":
        return
    torch.manual_seed(0)
    with Counting() as cpu:
        program.run("cpu")
    here, there = compared(launched(graph) + host.counts, program.compared), compared(cpu.counts, program.compared)
    assert here == there, {k: (here[k], there[k]) for k in here | there if here[k] != there[k]}
    assert here, "something was compared"


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 60
