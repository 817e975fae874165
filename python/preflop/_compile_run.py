"""Inductor's generated program, executed on fake tensors with stand-ins for its Triton kernels.

Inductor writes a program in Python that allocates buffers, launches kernels, calls libraries and frees what is dead. That text is executed
here as it is: calls of libraries are ATen operators that the recorder sees, and a launch of a Triton kernel is written down
instead of compiled. So launches, arguments, allocations and frees come in their real order, and no rule of fusion is repeated here.
"""

from __future__ import annotations

import contextlib
import types
from typing import TYPE_CHECKING, Any, Callable, Iterator

import torch

from . import _choices
from ._compile_gpu import replaced_all
from ._compile_kernels import KernelText

if TYPE_CHECKING:
    from ._compile_list import Listing

#: Settings of Inductor that need a device, and what is said about them.
_ASIDE = ("triton.cudagraphs", "triton.cudagraph_trees", "max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")

_ATTENTION = (torch.nn.functional.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention)


class _Kernel:
    """Stands for a compiled Triton kernel; ``run`` writes the launch down."""

    def __init__(self, listing: Listing, name: str, source: str) -> None:
        self.listing = listing
        self.text = KernelText(name, source)

    def run(self, *args: Any, **kwargs: Any) -> None:
        self.listing.launched(self.text, args)


def _module(listing: Listing, graph: Any) -> types.ModuleType:
    """Instead of ``GraphLowering.compile_to_module``: the text of the program, executed with the stand-ins."""
    from torch._inductor.codecache import PyCodeCache

    code = graph.codegen()
    code = code[0] if isinstance(code, tuple) else code
    text = code if isinstance(code, str) else code.value
    module = types.ModuleType("preflop_inductor_output")
    module.__file__ = "<inductor>"
    module.key = "preflop"  # type: ignore[attr-defined]
    for name, value in {**graph.constants, **getattr(graph, "torchbind_constants", {})}.items():
        setattr(module, name, value)
    exec(compile(text, "<inductor>", "exec"), module.__dict__)  # noqa: S102: Inductor's own output
    # Imported by name, so replaced here too.
    for name, value in {"copy_if_misaligned": lambda t: t, "start_graph": lambda *a: None, "end_graph": lambda *a: None}.items():
        if name in module.__dict__:
            module.__dict__[name] = value
    graph.cache_key, graph.cache_path = PyCodeCache.write(text)
    graph.cache_linemap = []
    listing.compiled(text)
    inner = module.call

    def call(args: Any) -> Any:
        with torch.no_grad():
            return inner(args)

    module.call = call  # type: ignore[attr-defined]
    runner = getattr(module, "runner", None)
    if runner is not None and not getattr(runner, "partitions", None):
        runner.call = call
    return module


def _attention_as_on_the_gpu(graph: torch.fx.GraphModule) -> None:
    """C++ chooses the kernel of attention by the device and, without one, takes plain products in silence."""
    for module in graph.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.op == "call_function" and node.target in _ATTENTION:
                    node.target = _attention
            module.recompile()


def _device_settings(listing: Listing, patches: dict[str, Any] | None) -> dict[str, Any]:
    """The settings without those that need a device, which are noted."""
    kept = dict(patches or {})
    for name in _ASIDE:
        if kept.pop(name, False):
            listing.asked_for(name)
    return kept


@contextlib.contextmanager
def stand_ins(listing: Listing) -> Iterator[None]:
    """A block in which Inductor's programs run on fake tensors."""
    from torch._inductor import async_compile, compile_fx, config, output_code
    from torch._inductor.graph import GraphLowering

    guards = torch._C._dynamo.guards
    compile_graph: Callable[..., Any] = compile_fx.compile_fx

    def empty(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        with listing.quiet(), listing.fake:
            tensor = torch.empty_strided(size, stride, dtype=dtype, device="cuda")
        listing.storage_of(tensor)
        return tensor

    def reinterpret(tensor: torch.Tensor, size: Any, stride: Any, offset: int = 0) -> torch.Tensor:
        with listing.quiet(), torch.no_grad():
            return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)

    def compile_with_rules(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(model, torch.fx.GraphModule):
            _attention_as_on_the_gpu(model)
        kwargs["config_patches"] = _device_settings(listing, kwargs.get("config_patches"))
        with replaced_all([(torch.nn.functional, "scaled_dot_product_attention", _attention)]):
            return compile_graph(model, inputs, *args, **kwargs)

    class Compiler(async_compile.AsyncCompile):
        """Compiles nothing."""

        def triton(self, name: str, source: str, device_str: str = "cuda", **kwargs: Any) -> _Kernel:
            return _Kernel(listing, name, source)

        def multi_kernel(self, name: str, kernels: list[_Kernel], *args: Any, **kwargs: Any) -> _Kernel:
            return kernels[0]

        def wait(self, scope: dict[str, Any]) -> None:
            return None

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    items = [
        (GraphLowering, "compile_to_module", lambda graph: _module(listing, graph)),
        (async_compile, "AsyncCompile", Compiler),
        (compile_fx, "compile_fx", compile_with_rules),
        (guards, "_empty_strided_cuda", empty),
        (guards, "_reinterpret_tensor", reinterpret),
        (guards, "assert_size_stride", nothing),
        (guards, "assert_size_stride_grouped", nothing),
        (guards, "assert_alignment", nothing),
        (guards, "copy_if_misaligned", lambda tensor: tensor),
        # Fake tensors have no address to look at.
        (compile_fx, "get_input_idxs_to_check", lambda *args: []),
        (output_code, "copy_misaligned_inputs", nothing),
    ]
    settings = {"profile_bandwidth": True, "fx_graph_cache": False, "compile_threads": 1, "fx_graph_remote_cache": False}
    known = {name: value for name, value in settings.items() if hasattr(config, name)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(config.patch(known))
        import torch._functorch.config as functorch

        stack.enter_context(functorch.patch({"enable_autograd_cache": False}))
        stack.enter_context(replaced_all(items))
        yield


def _lowered(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """As autocast hands it to attention."""
    if tensor is None or not tensor.is_floating_point() or not torch.is_autocast_enabled("cuda"):
        return tensor
    return tensor.to(torch.get_autocast_dtype("cuda"))


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, **kwargs: Any,
) -> torch.Tensor:  # fmt: skip
    """``scaled_dot_product_attention`` as a GPU would run it."""
    query, key, value, attn_mask = _lowered(query), _lowered(key), _lowered(value), _lowered(attn_mask)  # type: ignore[assignment]
    with torch.autocast("cuda", enabled=False):
        return _choices.attention(None, query, key, value, attn_mask, dropout_p, is_causal, **kwargs)
