"""What Inductor's generated text says about its kernels: form, sizes, bytes, and which arguments are read and written."""

from __future__ import annotations

import ast
import re
from typing import Any

import torch

#: Sizes of a kernel's index space, by the names of Inductor's axes.
_NUMEL = re.compile(r"^\s+([xyz]numel|r\d*_?numel) = (\d+)", re.M)


def _bracketed(text: str, start: int) -> str:
    """The literal that begins with the bracket at ``start``."""
    depth, i, quote = 0, start, ""
    while i < len(text):
        c = text[i]
        if quote:
            if c == "\\":
                i += 1
            elif c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return text[start : i + 1]
        i += 1
    raise ValueError("no end")


def _literal(source: str, key: str) -> Any:
    """The literal behind ``key=``, or ``None`` where there is none that can be read."""
    at = source.find(key + "=")
    if at < 0:
        return None
    try:
        start = at + len(key) + 1
        return ast.literal_eval(_bracketed(source, start + re.search(r"[\[({]", source[start:]).start()))  # type: ignore[union-attr]
    except (ValueError, SyntaxError, AttributeError):
        return None


class KernelText:
    """One kernel's source, read."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        form = re.search(r"@triton_heuristics\.(\w+)\(", source)
        self.form = form[1] if form else "unknown"
        hint = re.search(r"reduction_hint=ReductionHint\.(\w+)", source)
        self.hint = hint[1].lower() if hint else None
        self.tiled_2d = "tile_hint=TileHint.SQUARE" in source or "ynumel" in source
        meta = _literal(source, "inductor_meta")
        self.meta: dict[str, Any] = meta if isinstance(meta, dict) else {}
        hints = _literal(source, "size_hints")
        self.size_hints: dict[str, int] = hints if isinstance(hints, dict) else {}
        self.numels = {name: int(value) for name, value in _NUMEL.findall(source)}
        signature = re.search(r"^def \w+\((.*)\):", source, re.M)
        self.parameters = [p.split(":")[0].strip() for p in signature[1].split(",")] if signature else []
        self.random = "tl.rand" in source or "philox" in source

    def _count(self, key: str, default: int) -> int:
        """A count of Inductor's; kernels that it put together say -1."""
        value = self.meta.get(key)
        return int(value) if isinstance(value, int) and value >= 0 else default

    def launch(self, args: tuple[Any, ...]) -> tuple[dict[str, Any], list[torch.Tensor], list[torch.Tensor]]:
        """What one launch with these arguments is, what it reads and what it writes."""
        named = list(zip(self.parameters, args))
        numels = dict(self.numels)
        numels.update({p: int(a) for p, a in named if isinstance(a, int) and p.endswith("numel")})
        reads, writes = [], []
        mutated = set(self.meta.get("mutated_arg_names") or ())
        for parameter, value in named:
            if not isinstance(value, torch.Tensor):
                continue
            written = parameter.startswith(("out_ptr", "in_out_ptr", "ws_ptr")) or parameter in mutated
            if not parameter.startswith(("out_ptr", "ws_ptr")):
                reads.append(value)
            if written:
                writes.append(value)
        gigabytes = self.meta.get("kernel_num_gb")
        touched = sum(t.numel() * t.element_size() for t in reads + writes)
        fused = {
            "kernel": self.name,
            "form": self.form,
            "hint": self.hint,
            "tiled_2d": self.tiled_2d,
            "elements": _product(numels, "x", "y", "z", hints=self.size_hints),
            "reduced": _product(numels, "r", hints=self.size_hints),
            "bytes": int(gigabytes * 1e9) if gigabytes else touched,
            "y": _product(numels, "y", hints=self.size_hints),
            "loads": self._count("num_load", len(reads)),
            "stores": self._count("num_store", len(writes)),
            "reductions": self._count("num_reduction", 0),
            "atomics": bool(self.meta.get("atomic_add_found")),
            "random": self.random,
        }
        return fused, reads, writes


def _product(numels: dict[str, int], *axes: str, hints: dict[str, int]) -> int:
    """Product of the sizes along some axes; where the text has no size, the hint that it was compiled for."""
    total = 1
    for axis in axes:
        sizes = [n for name, n in numels.items() if name.startswith(axis)]
        if not sizes:
            sizes = [n for name, n in hints.items() if name.startswith(axis)]
        for size in sizes:
            total *= max(size, 1)
    return total
