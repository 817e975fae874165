"""Tables of operators or jobs: Arrow in, Arrow out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _core
from ._errors import PreflopError


def predict_table(
    table: Any,
    gpu: str | None = None,
    *,
    keep: bool | Iterable[str] = True,
    threads: int | None = None,
    **fixed: Any,
) -> Any:
    """Predicts every row of a table: a table of answers of the same kind, in the same order.

    ``table`` is anything with the Arrow C interface: a pyarrow table, batch or reader, a polars or pandas data frame, a
    duckdb relation. Its rows are operators (columns ``op``, ``dtype``, ``shape``; ``phase``) or whole jobs (columns ``model``, ``gpu``; ``batch``,
    ``seq``, ``precision``, ``mode``, options, ``cluster`` with a plan). A column ``gpu.dram_gbs`` changes that figure of the row's GPU.
    ``gpu`` and other keywords (``precision="amp"``) are columns that the table lacks and that are the same in all rows.

    The answers stand beside the columns of the table; ``keep`` says which of these stay. A row that cannot be
    predicted has its reason in the column ``error``.

    All cores work, or ``threads`` of them, without the interpreter's lock. A pyarrow reader is answered by a reader that predicts as it is
    read and holds one block of rows at a time, however many there are.
    """
    values = {"gpu": gpu, **fixed}
    given = [(name, _text(value)) for name, value in values.items() if value is not None]
    names = None if keep is True else [] if keep is False else list(keep)
    rows = _stream(table)
    try:
        answers = _core.predict_table(rows, given, names, threads)
        return _like(table, answers)
    except ValueError as error:
        raise _clear(error) from None


#: How Arrow begins an error that is not its own.
_EXTERNAL = "External error: "


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _clear(error: ValueError) -> Exception:
    """Our own errors carry a message and a hint; those of other libraries stay as they are."""
    match error.args:
        case (str(message), str() | None as hint):
            return PreflopError(message, hint)
        case (str(message),) if message.startswith(_EXTERNAL):
            # Found while rows were read, and carried through Arrow's own error.
            return PreflopError(message.removeprefix(_EXTERNAL))
        case _:
            return error


def _stream(table: Any) -> Any:
    if _package(table) == "pandas" and hasattr(table, "reset_index"):
        # An index is no column; it comes back with the answers.
        table = table.reset_index(drop=True)
    if hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__"):
        if hasattr(table, "__arrow_c_stream__"):
            return table
        import pyarrow

        return pyarrow.Table.from_batches([table])
    if _package(table) == "duckdb":
        return table.fetch_arrow_reader() if hasattr(table, "fetch_arrow_reader") else table.arrow()
    kind = type(table).__name__
    hint = "give a pyarrow, polars or pandas table, or a duckdb relation; pyarrow.table() makes one of many things"
    raise PreflopError(f"a {kind} is no Arrow table", "collect() it first" if kind == "LazyFrame" else hint)


def _package(table: Any) -> str:
    return type(table).__module__.split(".")[0]


def _like(table: Any, answers: Any) -> Any:
    """The answers as a table of the library that the question came from."""
    package = _package(table)
    if package == "polars":
        import polars

        return polars.DataFrame(answers)
    if package == "pandas":
        import pandas

        if hasattr(pandas.DataFrame, "from_arrow"):
            frame = pandas.DataFrame.from_arrow(answers)
        else:
            import pyarrow

            frame = pyarrow.RecordBatchReader.from_stream(answers).read_all().to_pandas()
        frame.index = table.index
        return frame
    try:
        import pyarrow
    except ImportError:
        # Anything that reads Arrow takes it from here.
        return answers
    reader = pyarrow.RecordBatchReader.from_stream(answers)
    if isinstance(table, pyarrow.RecordBatchReader):
        return reader
    whole = reader.read_all()
    if isinstance(table, pyarrow.RecordBatch):
        return whole.combine_chunks().to_batches()[0] if whole.num_rows else pyarrow.RecordBatch.from_pylist([], schema=whole.schema)
    return whole
