"""A recorded iteration and what can be asked of it."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import tempfile
import weakref
from typing import Any, Iterable, Literal

from . import _charts
from ._errors import PreflopError
from ._program import answer
from ._results import Assumption, Comparison, Memory, Prediction, Roofline


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

    def predict(
        self,
        gpu: str,
        *,
        run: str | None = None,
        algorithms: str = "heuristic",
        host: str | os.PathLike[str] | None = None,
    ) -> Prediction:
        """How long the iteration takes on a GPU (a name of ``preflop gpus``, or the path of a GPU file).

        ``run`` is ``eager``, ``graph``, ``compile`` or ``compile-graph``; without it the iteration is launched as it was recorded.
        ``algorithms`` of convolutions are those of the library's ``heuristic``, or ``autotuned`` as with ``torch.backends.cudnn.benchmark``.
        ``host`` is that of the job: ``fast``, ``usual``, ``slow``, a factor such as ``1.5x``, or a file of ``preflop host``; without it the interval is
        wide enough for all.
        """
        how = () if run is None else ("--run", run)
        if algorithms != "heuristic":
            how += ("--algorithms", algorithms)
        if host is not None:
            how += ("--host", os.fspath(host))
        said = answer("predict", self._file(), "--gpu", gpu, *how)
        return Prediction._of(said, self._assumptions(gpu, said["gpu_busy_ms"]))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What was assumed where only a real run would know a size or a number."""
        return tuple(Assumption(**{k: v for k, v in a.items() if k != "id"}) for a in self.document.get("assumptions", ()))

    def _assumptions(self, gpu: str, busy_ms: float) -> tuple[Assumption, ...]:
        """The assumptions with their effect: the GPU's time with and without the operators whose sizes follow from each."""
        out = []
        for i, assumption in enumerate(self.assumptions):
            number = self.document["assumptions"][i].get("id", i)
            left = [op for op in self.document["ops"] if number not in op.get("assumes", ())]
            effect = 0.0
            if len(left) < len(self.document["ops"]):
                rest = Graph({**self.document, "ops": left})._busy_ms(gpu) if left else 0.0
                effect = max(0.0, busy_ms - rest)
            out.append(dataclasses.replace(assumption, effect_ms=effect))
        return tuple(out)

    def _busy_ms(self, gpu: str) -> float:
        """The GPU's time in operators alone, in milliseconds."""
        return answer("predict", self._file(), "--gpu", gpu)["gpu_busy_ms"]

    def advise(self, gpu: str) -> list[dict[str, Any]]:
        """Ways to run the iteration faster on a GPU, the best first, each with its gain and what to write."""
        return answer("advise", self._file(), "--gpu", gpu)["options"]

    def compare(self, gpus: Iterable[str] | str = "all", *, rank: Literal["time", "cost", "energy"] = "time") -> Comparison:
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

    def __reduce__(self) -> Any:
        return Graph, (self.document,)

    def __len__(self) -> int:
        return len(self.document["ops"])

    def _memory_over_time(self) -> list[tuple[int, float]]:
        """(operator, MiB) wherever the recorded storages change, within the iteration."""
        first, changes = self.document["first_op"], {}
        for size, _, begin, end in self.document["storages"]:
            changes[begin] = changes.get(begin, 0) + size
            if end is not None:
                changes[end] = changes.get(end, 0) - size
        points, held = [], 0
        for at in sorted(changes):
            held += changes[at]
            if first <= at <= first + len(self.document["ops"]):
                points.append((at - first, held / 2**20))
        # A line of some hundred points shows the same.
        return points[:: max(1, len(points) // 500)]

    def _repr_html_(self) -> str:
        if self._document is None:
            return html.escape(repr(self))
        prediction = self.predict("h100")
        marks, seen = [], set()
        for i, op in enumerate(self.document["ops"]):
            if op["phase"] not in seen:
                seen.add(op["phase"])
                marks.append((i, op["phase"]))
        title = f"{self.name} on {prediction.gpu}: {prediction.iteration_ms:.3g} ms"
        pieces = _charts.time_bars(title, prediction.ops) + _charts.memory_line(self._memory_over_time(), marks)
        return f"<p>{html.escape(repr(self))}</p>" + _charts.Chart(pieces).svg

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
