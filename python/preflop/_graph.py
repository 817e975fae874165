"""A recorded iteration and what can be asked of it."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from typing import Any, Iterable

from ._errors import PreflopError
from ._program import answer
from ._results import Comparison, Memory, Prediction, Roofline


class Graph:
    """The operators of one iteration, as recorded by :func:`preflop.capture` or :func:`preflop.record`."""

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        self._document = document
        self._path: str | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Graph:
        """Reads what :meth:`save` wrote."""
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        except OSError as error:
            raise PreflopError(f"cannot read `{path}`: {error.strerror}") from error
        except ValueError as error:
            raise PreflopError(f"{path}: not a captured graph: {error}") from error
        if not isinstance(document, dict) or document.get("format") != "preflop-capture":
            raise PreflopError(f"{path}: not a captured graph", hint="`graph.save` writes one")
        return cls(document)

    @property
    def document(self) -> dict[str, Any]:
        """Everything that was recorded, as plain lists and dictionaries."""
        if self._document is None:
            raise PreflopError("the recording is still under way", hint="ask after the `with` block has ended")
        return self._document

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.document["name"]

    def operator_counts(self, phase: str | None = None) -> dict[str, int]:
        """How often each ATen operator was called, views included."""
        counts: dict[str, int] = {}
        for op in self.document["ops"]:
            if phase is None or op["phase"] == phase:
                counts[op["op"]] = counts.get(op["op"], 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recording; ``preflop predict PATH --gpu GPU`` reads it."""
        text = json.dumps(self.document, separators=(",", ":"))
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise PreflopError(f"cannot write `{path}`: {error.strerror}") from error

    def _file(self) -> str:
        """The recording as a file that lives as long as this object."""
        if self._path is None:
            handle, path = tempfile.mkstemp(prefix="preflop-", suffix=".json")
            os.close(handle)
            weakref.finalize(self, _remove, path)
            self.save(path)
            self._path = path
        return self._path

    def predict(self, gpu: str, *, run: str | None = None) -> Prediction:
        """How long the iteration takes on a GPU (a name of ``preflop gpus``, or the path of a GPU file).

        ``run`` is ``eager``, ``graph``, ``compile`` or ``compile-graph``; without it the iteration is launched as it was recorded.
        """
        how = () if run is None else ("--run", run)
        return Prediction._of(answer("predict", self._file(), "--gpu", gpu, *how))

    def advise(self, gpu: str) -> list[dict[str, Any]]:
        """Ways to run the iteration faster on a GPU, the best first, each with its gain and what to write."""
        return answer("advise", self._file(), "--gpu", gpu)["options"]

    def compare(self, gpus: Iterable[str] | str = "all", *, rank: str = "time") -> Comparison:
        """The iteration on several GPUs, ranked by ``time``, ``cost`` or ``energy``."""
        names = gpus if isinstance(gpus, str) else ",".join(gpus)
        return Comparison(answer("compare", self._file(), "--gpus", names, "--rank", rank))

    def memory(self) -> Memory:
        """Peak memory: storages by their lifetimes in the recorded order, rounded as PyTorch's allocator does."""
        # The same on every GPU; any one will do.
        return self.predict("h200").memory

    def roofline(self, gpu: str = "h200", *, by: str = "operator") -> Roofline:
        """Every operator against the roofs of a GPU."""
        return Roofline(answer("roofline", self._file(), "--gpu", gpu, "--by", by))

    def chart(self, path: str | os.PathLike[str], gpu: str = "h200") -> None:
        """Draws the roofline into a ``.svg``, ``.png`` or ``.html`` file."""
        answer("roofline", self._file(), "--gpu", gpu, "-o", os.fspath(path))

    def to_dict(self) -> dict[str, Any]:
        """A copy of everything that was recorded."""
        return json.loads(json.dumps(self.document))

    def __len__(self) -> int:
        return len(self.document["ops"])

    def __repr__(self) -> str:
        if self._document is None:
            return "<preflop.Graph: recording>"
        d = self._document
        phases = {p: sum(1 for op in d["ops"] if op["phase"] == p) for p in ("forward", "backward", "optimizer")}
        told = ", ".join(f"{n} {p}" for p, n in phases.items() if n)
        return f"<preflop.Graph {d['name']}: {len(d['ops'])} operators ({told}), {d['parameters']:,} parameters, batch {d['samples']}>"


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        pass
