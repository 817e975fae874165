"""Sweeps and tables on a Ray cluster (``pip install 'preflop[ray]'``).

    import preflop.ray

    preflop.ray.sweep("study.toml", "out.parquet", address="auto")     # the same bytes as on one machine
    answers = preflop.ray.predict(ray.data.read_parquet("jobs/"))      # a dataset of answers
    answers.write_parquet("answers/")

Every worker process keeps the model loaded and takes one core. What a lost one had under way is computed again elsewhere.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _core
from ._errors import PreflopError
from ._table import _clear, predict_table

if TYPE_CHECKING:
    from os import PathLike

    import ray.data

__all__ = ["Summary", "predict", "sweep"]


def _ray() -> Any:
    """Ray itself, or what to do without."""
    try:
        # Not this module: imports are absolute.
        import ray
        import ray.data
    except ImportError as error:
        raise PreflopError(f"Ray is not installed here ({error})", "pip install 'preflop[ray]'") from None
    return ray


class Summary(dict[str, Any]):
    """What a sweep did: ``rows``, ``failed`` (rows with an error), ``parts``, ``seconds``, ``output``."""


def _predicted(block: Any, gpu: str | None, keep: Any, fixed: dict[str, Any]) -> Any:
    """Answers a block of a dataset. Ray gives each task one core."""
    return predict_table(block, gpu, keep=keep, threads=1, **fixed)


@functools.lru_cache(maxsize=1)
def _study(text: str, file: str, part_rows: int | None) -> _core.Sweep:
    """A study made ready, kept by the worker for all its parts. The time model is kept by the process."""
    return _core.Sweep(text, file, part_rows, threads=1)


def _parts(block: Any, *study: Any) -> Any:
    """Computes parts of a study: Parquet files as bytes."""
    import pyarrow

    numbers = block.column("part").to_pylist()
    done = [_study(*study).part(number) for number in numbers]
    return pyarrow.table({"part": pyarrow.array(numbers, pyarrow.int64()), "bytes": pyarrow.array(done, pyarrow.large_binary())})


def predict(
    dataset: ray.data.Dataset,
    gpu: str | None = None,
    *,
    keep: bool | list[str] = True,
    concurrency: int | None = None,
    batch_size: int = 65536,
    **fixed: Any,
) -> ray.data.Dataset:
    """A dataset with an answer beside every row, as :func:`preflop.predict_table` gives it.

    ``concurrency`` is the number of cores that work at once (all of the cluster's where it is not given).
    """
    return _mapped(_ray(), dataset, _predicted, (gpu, keep, fixed), batch_size, concurrency)


def _mapped(ray: Any, dataset: Any, function: Any, args: tuple[Any, ...], batch_size: int, concurrency: int | None) -> Any:
    # Tasks, not actors: Ray runs a lost node's tasks again on the others by itself. Workers stay alive between tasks, and with them the model.
    return dataset.map_batches(
        function,
        fn_args=args,
        batch_format="pyarrow",
        batch_size=batch_size,
        num_cpus=1,
        compute=ray.data.TaskPoolStrategy(size=concurrency),
    )


def sweep(
    study: str | PathLike[str],
    output: str | PathLike[str],
    *,
    address: str | None = None,
    format: str | None = None,
    part_rows: int | None = None,
    restart: bool = False,
    concurrency: int | None = None,
) -> Summary:
    """Computes a study on a Ray cluster: the same bytes as ``preflop sweep`` on one machine, whatever the number of nodes.

    ``address`` is the cluster to join, as ``ray.init`` takes it (``"auto"``: the one of this machine). Parts come to this process, which keeps them beside
    ``output`` as they are finished: a sweep that was ended goes on where it was. ``output`` is one file, or a
    folder (``"out/"``) of partitioned Parquet. Files that the study names must be at the same path on every node.
    """
    start = time.monotonic()
    path = Path(study)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PreflopError(f"cannot read `{path}`: {error}") from None
    if path.suffix.lower() != ".toml":
        raise PreflopError(f"`{path}` is no study (.toml)", "for a table: preflop.ray.predict(ray.data.read_parquet(..))")
    try:
        made = _core.Sweep(text, str(path), part_rows)
        missing = made.open(str(output), format, restart)
    except ValueError as error:
        raise _clear(error) from None
    if missing:
        _compute(made, missing, (text, str(path), part_rows), address, concurrency)
    try:
        failed = made.finish()
    except ValueError as error:
        raise _clear(error) from None
    return Summary(rows=made.rows, failed=failed, parts=made.parts, seconds=time.monotonic() - start, output=str(output))


def _compute(made: _core.Sweep, missing: list[int], args: tuple[Any, ...], address: str | None, concurrency: int | None) -> None:
    """Lets the cluster compute what is missing; keeps each part as it comes."""
    ray = _ray()
    import pyarrow

    ours = not ray.is_initialized()
    if ours:
        try:
            # Without an address Ray would look for the last cluster of this machine, and wait for it where it has died.
            ray.init(address=address or os.environ.get("RAY_ADDRESS") or "local", log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise PreflopError(f"cannot join the Ray cluster `{address}`: {first}", "start one with `ray start --head`, or leave out the address") from None
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        # Parts that wait to be kept do not pile up, and the order in which they come does not matter.
        context.execution_options.preserve_order = False
        numbers = ray.data.from_arrow([pyarrow.table({"part": pyarrow.array([n], pyarrow.int64())}) for n in missing])
        parts = _mapped(ray, numbers, _parts, args, 1, concurrency)
        progress = _Progress(made.parts, made.parts - len(missing))
        for batch in parts.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1):
            for number, data in zip(batch.column("part").to_pylist(), batch.column("bytes")):
                # A part that was computed twice, since its worker died while it was on its way, is the same bytes.
                made.keep(number, data.as_py())
                progress.one()
        progress.end()
    finally:
        if ours:
            ray.shutdown()


class _Progress:
    """A line with rate and time left, on a terminal."""

    def __init__(self, parts: int, done: int) -> None:
        self._parts, self._done, self._first = parts, done, done
        self._start = time.monotonic()
        self._shown = sys.stderr.isatty()

    def one(self) -> None:
        self._done += 1
        if self._shown:
            rate = (self._done - self._first) / max(time.monotonic() - self._start, 1e-9)
            left = (self._parts - self._done) / rate
            print(f"\r{self._done}/{self._parts} parts, {rate:.3g}/s, {left:.0f} s left ", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print("\r" + " " * 60 + "\r", end="", file=sys.stderr, flush=True)


def _main(args: list[str]) -> int:
    """What ``preflop sweep --engine ray`` runs: one line of JSON on standard output."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m preflop.ray", description="Computes a study on a Ray cluster.")
    parser.add_argument("study")
    parser.add_argument("--output", "-o", required=True)
    parser.add_argument("--format")
    parser.add_argument("--address")
    parser.add_argument("--part-rows", type=int)
    parser.add_argument("--restart", action="store_true")
    asked = parser.parse_args(args)
    try:
        summary = sweep(
            asked.study, asked.output, address=asked.address, format=asked.format, part_rows=asked.part_rows, restart=asked.restart
        )
    except PreflopError as error:
        print(json.dumps({"error": error.message, "hint": error.hint}))
        return 2
    print(json.dumps(summary))
    return 1 if summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
