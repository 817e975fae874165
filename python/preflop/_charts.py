"""Small charts as SVG, written by hand: no library, no script, the same in a notebook and in a file."""

from __future__ import annotations

import html
import os
from typing import Any, Iterable, Sequence

from ._errors import PreflopError
from ._tables import digits

_WIDTH = 720
#: Colours that stay apart for people who see few of them (Okabe and Ito, 2008); the text says the same.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


class Chart:
    """A drawing: shown by notebooks, written by :meth:`save`."""

    def __init__(self, pieces: Sequence[tuple[int, str]]) -> None:
        body, y = [], 0
        for height, piece in pieces:
            body.append(f'<g transform="translate(0 {y})">{piece}</g>')
            y += height
        self.svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}" '
            f'font-family="sans-serif" font-size="12">{"".join(body)}</svg>'
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the drawing as ``.svg``."""
        if not os.fspath(path).endswith(".svg"):
            raise PreflopError(f"`{path}` does not end in .svg", hint="other formats: `preflop roofline STEP -o FILE.png`")
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.svg)
        except OSError as error:
            raise PreflopError(f"cannot write `{path}`: {error.strerror}") from error

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<chart, {len(self.svg)} bytes of SVG; notebooks show it, `.save(path)` writes it>"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor">{html.escape(text)}</text>'


def _stacked(parts: Iterable[tuple[str, float]], whole: float, unit: str) -> tuple[int, str]:
    """A bar of parts, and below it what each is."""
    shown = [(name, value) for name, value in parts if value > 0]
    x, bar, legend = 0.0, [], []
    for i, (name, value) in enumerate(shown):
        width = _WIDTH * value / whole if whole > 0 else 0.0
        colour = _COLOURS[i % len(_COLOURS)]
        label = f"{name} {digits(value)} {unit}"
        bar.append(
            f'<rect x="{x:.2f}" y="0" width="{max(width, 0.5):.2f}" height="22" fill="{colour}"><title>{html.escape(label)}</title></rect>'
        )
        column, row = i % 3, i // 3
        lx, ly = column * _WIDTH / 3, 40 + 18 * row
        legend.append(f'<rect x="{lx:.1f}" y="{ly - 10}" width="10" height="10" fill="{colour}"/>' + _text(lx + 16, ly, label))
        x += width
    height = 52 + 18 * (max(0, len(shown) - 1) // 3)
    return height, "".join(bar + legend)


def time_bars(title: str, ops: Sequence[Any]) -> list[tuple[int, str]]:
    """The GPU's time by phase, and by kind of operator."""
    total = sum(o.time_us for o in ops)
    pieces = [(24, _text(0, 16, title))] if title else []
    for by in ("phase", "op"):
        sums: dict[str, float] = {}
        for o in ops:
            sums[getattr(o, by)] = sums.get(getattr(o, by), 0.0) + o.time_us
        ranked = sorted(sums.items(), key=lambda item: -item[1])
        if len(ranked) > 8:
            ranked = [*ranked[:7], ("others", sum(v for _, v in ranked[7:]))]
        pieces.append(_stacked([(n, v / 1000) for n, v in ranked], total / 1000, "ms"))
    return pieces


def memory_bar(parts: Sequence[tuple[str, float]], capacity_mib: float) -> list[tuple[int, str]]:
    """Memory at the peak by its parts, against what the GPU has."""
    used = sum(v for _, v in parts)
    whole = max(used, capacity_mib)
    title = _text(0, 16, f"memory at the peak: {digits(used)} of {digits(capacity_mib)} MiB")
    return [(24, title), _stacked(parts, whole, "MiB")]


def memory_line(points: Sequence[tuple[int, float]], marks: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Memory over the operators of an iteration; ``points`` are (operator, MiB), ``marks`` where phases begin."""
    if not points:
        return []
    last, top, height = max(1, points[-1][0]), max(v for _, v in points) or 1.0, 110
    path = " ".join(f"{_WIDTH * i / last:.1f},{height - 90 * v / top:.1f}" for i, v in points)
    line = f'<polyline points="{path}" fill="none" stroke="{_COLOURS[0]}" stroke-width="1.5"/>'
    begin = "".join(
        f'<line x1="{_WIDTH * i / last:.1f}" x2="{_WIDTH * i / last:.1f}" y1="20" y2="{height}" stroke="#999999" '
        f'stroke-dasharray="3 3"/>' + _text(_WIDTH * i / last + 3, height + 14, name)
        for i, name in marks
    )
    return [(height + 24, _text(0, 12, f"memory over the operators, up to {digits(top)} MiB") + line + begin)]
