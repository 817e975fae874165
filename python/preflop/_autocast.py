"""CUDA's autocast for recorded tensors.

PyTorch's own kernels for autocast ask whether a tensor really lies on the GPU. For the length of a recording they are replaced
by the same rules for recorded tensors. Which operators have rules, PyTorch says itself; which rule, is listed here as in
`aten/src/ATen/autocast_mode.h`: all that are not listed run in fp32.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, Iterator

import torch

from ._errors import CaptureError
from ._tensor import GpuTensor, mapped, tensors_in

_LOWER = frozenset(
    """_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution
    cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linalg_multi_dot linear
    addbmm baddbmm bmm chain_matmul _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    _scaled_dot_product_flash_attention scaled_dot_product_attention _cudnn_rnn""".split()
)
#: The result is fp32 unless the caller says otherwise; the argument stays as it is.
_SET_DTYPE = frozenset("prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum".split())
_WIDEST = frozenset(
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()
)

_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def _eligible(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, GpuTensor) and tensor.is_floating_point() and tensor.dtype != torch.float64


class Casts:
    """Casts of weights are kept until autocast ends, as PyTorch keeps them."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not _eligible(tensor) or tensor.dtype == dtype:
            return tensor
        lower = dtype == torch.get_autocast_dtype("cuda")
        plain = tensor.dtype == torch.float32 and tensor.requires_grad and tensor.is_leaf and not tensor._is_view()
        if not (lower and plain and torch.is_autocast_cache_enabled()):
            return tensor.to(dtype)
        known = self.kept.get(id(tensor))
        if known is None:
            known = (tensor, tensor.to(dtype))
            self.kept[id(tensor)] = known
        return known[1]

    def clear(self) -> None:
        self.kept.clear()


def _kernel(name: str, op: Any, casts: Casts) -> Callable[..., Any]:
    """The rule of one operator."""

    def called(args: Any, kwargs: dict[str, Any]) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            return op(*args, **kwargs)

    def to(dtype: torch.dtype, args: Any, kwargs: dict[str, Any]) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            args = [mapped(a, lambda t: casts.cast(t, dtype)) for a in args]
            kwargs = {k: mapped(v, lambda t: casts.cast(t, dtype)) for k, v in kwargs.items()}
        return called(args, kwargs)

    def lower(*args: Any, **kwargs: Any) -> Any:
        return to(torch.get_autocast_dtype("cuda"), args, kwargs)

    def full(*args: Any, **kwargs: Any) -> Any:
        return to(torch.float32, args, kwargs)

    def widest(*args: Any, **kwargs: Any) -> Any:
        dtypes = {t.dtype for t in tensors_in((args, kwargs)) if _eligible(t)}
        wide = torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("cuda")
        return to(wide, args, kwargs)

    def set_dtype(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dtype") is None and _eligible(args[0]):
            at = names.index("dtype")
            if len(args) > at:
                if args[at] is None:
                    args = (*args[:at], torch.float32, *args[at + 1 :])
            else:
                kwargs = {**kwargs, "dtype": torch.float32}
        return called(args, kwargs)

    def norm(*args: Any, **kwargs: Any) -> Any:
        # The overload that takes the format of the result beside the same arguments.
        wide = {"Scalar": "ScalarOpt_dtype", "ScalarOpt_dim": "ScalarOpt_dim_dtype"}.get(op._overloadname)
        if wide is None or not _eligible(args[0]):
            return full(*args, **kwargs)
        given = [*args, *(kwargs.get(n, d) for n, d in zip(names[len(args) :], (2, None, False)[len(args) - 1 :]))]
        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            return getattr(torch.ops.aten.norm, wide)(*given, dtype=torch.float32)

    def banned(*args: Any, **kwargs: Any) -> Any:
        raise CaptureError(
            "`binary_cross_entropy` is not allowed under autocast", hint="take `binary_cross_entropy_with_logits`"
        )

    names = [a.name for a in op._schema.arguments]
    if name in _LOWER:
        return lower
    if name in _WIDEST:
        return widest
    if name in _SET_DTYPE and "dtype" in names:
        return set_dtype
    if name == "norm":
        return norm
    if name == "binary_cross_entropy":
        return banned
    return full


def _overloads() -> list[tuple[str, str]]:
    """Names of operators with a rule, and of their overloads."""
    found = []
    for full in torch._C._dispatch_get_all_op_names():
        if full.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(full, "AutocastCUDA"):
            name, _, overload = full.removeprefix("aten::").partition(".")
            found.append((name, overload or "default"))
    return found


_found: list[tuple[str, str]] | None = None


@contextlib.contextmanager
def rules(library: Any) -> Iterator[None]:
    """Inside the block, autocast casts recorded tensors as it casts tensors of a GPU."""
    global _found
    casts = Casts()
    if _found is None:
        _found = _overloads()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, overload in _found:
            op = getattr(getattr(torch.ops.aten, name), overload)
            full = name if overload == "default" else f"{name}.{overload}"
            library.impl(full, _kernel(name, op, casts), "AutocastCUDA")
    clear = torch.clear_autocast_cache

    def cleared() -> None:
        casts.clear()
        clear()

    torch.clear_autocast_cache = cleared
    try:
        yield
    finally:
        torch.clear_autocast_cache = clear
        casts.clear()
