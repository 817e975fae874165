"""Tables for terminals and notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Sequence

if TYPE_CHECKING:
    import pandas


def to_pandas(rows: Sequence[dict[str, Any]]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("`to_pandas()` needs pandas: pip install pandas") from error
    return pandas.DataFrame(list(rows))


def digits(value: float) -> str:
    """Three significant digits."""
    if value == 0 or value != value:
        return "0"
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def html_table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for notebooks; numbers stand to the right."""

    def cell(tag: str, text: str, i: int) -> str:
        side = "left" if i == 0 else "right"
        return f'<{tag} style="text-align:{side}">{html.escape(text)}</{tag}>'

    head = "".join(cell("th", h, i) for i, h in enumerate(header))
    body = "".join("<tr>" + "".join(cell("td", c, i) for i, c in enumerate(row)) + "</tr>" for row in rows)
    return (
        f'<table><caption style="text-align:left">{html.escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(r[i]) for r in [list(header), *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        return "  ".join([first, *(c.rjust(w) for c, w in zip(cells[1:], widths[1:]))]).rstrip()

    return "\n".join(line(r) for r in [list(header), *rows])
