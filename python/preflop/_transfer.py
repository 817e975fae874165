"""Runs that were recorded on a GPU, carried to others."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Iterable

from ._errors import PreflopError
from ._program import answer
from ._results import Transfer


def transfer(profile: Any, to: Iterable[str] | str, *, origin: str | None = None) -> Transfer:
    """Predicts other GPUs from a recorded run.

    ``profile`` is a ``torch.profiler.profile`` that has ended (recorded with ``record_shapes=True``), or the path of a file
    that ``preflop transfer`` reads. ``origin`` names the GPU of the run where the file does not say.
    """
    targets = to if isinstance(to, str) else ",".join(to)
    extra = ["--from", origin] if origin else []
    if isinstance(profile, (str, os.PathLike)):
        return Transfer(answer("transfer", os.fspath(profile), "--to", targets, *extra))
    export = getattr(profile, "export_chrome_trace", None)
    if export is None:
        raise PreflopError(
            f"`transfer` takes a torch.profiler.profile or a path, not {type(profile).__name__}"
        )
    with tempfile.TemporaryDirectory(prefix="preflop-") as folder:
        path = os.path.join(folder, "profile.json")
        export(path)
        return Transfer(answer("transfer", path, "--to", targets, *extra))
