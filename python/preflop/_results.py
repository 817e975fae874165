"""Answers as objects: readable in a terminal and in a notebook, and as tables or dictionaries."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Iterator

from . import _charts
from ._tables import digits, html_table, text_table, to_pandas

if TYPE_CHECKING:
    from . import _answers
    import pandas


def _known(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    """The values that a class has fields for: newer programs may say more."""
    names = {f.name for f in dataclasses.fields(cls)}
    return {k: v for k, v in values.items() if k in names}


@dataclass(frozen=True)
class Memory:
    """Peak device memory of an iteration, as ``torch.cuda.max_memory_allocated`` would show it."""

    peak_mib: float
    weights_mib: float
    gradients_mib: float
    optimizer_mib: float
    activations_mib: float
    workspace_mib: float

    def to_dict(self) -> dict[str, float]:
        """As a dictionary."""
        return dataclasses.asdict(self)

    def to_pandas(self) -> pandas.DataFrame:
        """One row."""
        return to_pandas([self.to_dict()])

    def _rows(self) -> list[list[str]]:
        parts = ["weights", "gradients", "optimizer", "activations", "workspace"]
        rows = [[name, digits(getattr(self, name + "_mib"))] for name in parts]
        return [*rows, ["peak", digits(self.peak_mib)]]

    def __repr__(self) -> str:
        return text_table(["memory at the peak", "MiB"], self._rows())

    def _repr_html_(self) -> str:
        return html_table("Memory at the peak", ["part", "MiB"], self._rows())


@dataclass(frozen=True)
class Operator:
    """Operators of one layer, kind and shape, together."""

    name: str
    op: str
    phase: str
    count: int
    time_us: float
    share: float
    bound: str
    shape: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class Unmodelled:
    """An operator that is known by name and bytes only, and its share of the GPU's time."""

    op: str
    count: int
    share: float


@dataclass(frozen=True)
class Assumption:
    """A size or a number that only a real run would know, and what was taken for it.

    ``effect_ms`` is the GPU's time in operators whose sizes follow from it.
    """

    operator: str
    module: str
    line: str
    assumed: str
    size: int
    count: int
    effect_ms: float | None = None


@dataclass(frozen=True, repr=False)
class Prediction:
    """How long one iteration takes on a GPU, and why."""

    model: str
    gpu: str
    batch: int
    seq: int | None
    precision: str
    mode: str
    iteration_ms: float
    low_ms: float
    high_ms: float
    #: Time of all kernels, and time in which the GPU works: less where several run at once.
    gpu_busy_ms: float
    gpu_wall_ms: float
    host_ms: float
    memory_mib: float
    fits: bool
    samples_per_s: float
    flops: float
    dram_bytes: float
    bound: str
    parameters: int
    gpu_memory_mib: float
    memory: Memory
    unmodelled: tuple[Unmodelled, ...]
    ops: tuple[Operator, ...]
    #: The peak with context and reserve: what the card must have.
    needed_mib: float | None = None
    #: How many times as long as the usual host the job's takes, where that was said.
    host_factor: float | None = None
    assumptions: tuple[Assumption, ...] = ()
    #: What a reader should know about the recording: autocast of the CPU, work that was left there, what was not compiled.
    notes: tuple[str, ...] = ()
    _answer: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def _of(cls, answer: dict[str, Any], assumptions: tuple[Assumption, ...] = ()) -> Prediction:
        values = _known(cls, answer)
        values["memory"] = Memory(peak_mib=answer["memory_mib"], **_known(Memory, answer["memory"]))
        values["unmodelled"] = tuple(Unmodelled(**_known(Unmodelled, u)) for u in answer["unmodelled"])
        values["ops"] = tuple(Operator(**_known(Operator, o)) for o in answer["ops"])
        values["assumptions"] = assumptions
        values["notes"] = tuple(n for n in answer.get("notes", ()) if not n.startswith("assumed for "))
        return cls(_answer=answer, **values)

    def to_dict(self) -> _answers.Prediction:
        """The whole answer, with the names of ``preflop predict --json``."""
        return json.loads(json.dumps(self._answer))

    def to_pandas(self) -> pandas.DataFrame:
        """The operators, one row each."""
        return to_pandas([dataclasses.asdict(o) for o in self.ops])

    def _facts(self) -> list[list[str]]:
        fits = "fits" if self.fits else "DOES NOT FIT"
        rows = [
            ["iteration", f"{digits(self.iteration_ms)} ms", f"{digits(self.low_ms)} to {digits(self.high_ms)}"],
            ["throughput", f"{digits(self.samples_per_s)} /s", "samples"],
            ["GPU busy", f"{digits(self.gpu_wall_ms)} ms", f"bound by {self.bound}"],
            ["host", f"{digits(self.host_ms)} ms", ""],
            ["memory", f"{digits(self.memory_mib)} MiB", f"{fits} in {digits(self.gpu_memory_mib)}"],
        ]
        for u in self.unmodelled[:3]:
            rows.append(["not modelled", u.op, f"{100 * u.share:.1f} % of GPU time"])
        for a in self.assumptions[:3]:
            effect = "" if a.effect_ms is None else f", {digits(a.effect_ms)} ms follow from it"
            rows.append(["assumed", a.operator, f"{a.assumed} ({a.line}{effect})"])
        rows += [["note", note, ""] for note in self.notes[:3]]
        return rows

    def plot(self, path: str | None = None) -> Any:
        """Where the GPU's time goes and what the memory holds at its peak, as a chart: shown by notebooks, or written as ``.svg``."""
        parts = [(p, getattr(self.memory, p + "_mib")) for p in ("weights", "gradients", "optimizer", "activations", "workspace")]
        chart = _charts.Chart(_charts.time_bars(self._title(), self.ops) + _charts.memory_bar(parts, self.gpu_memory_mib))
        if path is not None:
            chart.save(path)
        return chart

    def _title(self) -> str:
        seq = f", sequence {self.seq}" if self.seq else ""
        mode = "training" if self.mode == "train" else "inference"
        formats = "PyTorch's default formats" if self.precision == "pytorch" else self.precision
        return f"{self.model}, {mode}, batch {self.batch}{seq}, {formats} on {self.gpu}"

    def __repr__(self) -> str:
        return self._title() + "\n" + "\n".join("  " + "  ".join([r[0].ljust(12), r[1].rjust(12), r[2]]).rstrip() for r in self._facts())

    def _repr_html_(self) -> str:
        facts = html_table(self._title(), ["", "", ""], self._facts())
        top = sorted(self.ops, key=lambda o: -o.time_us)[:10]
        rows = [[o.name, o.op, o.phase, str(o.count), digits(o.time_us), f"{100 * o.share:.1f} %", o.bound] for o in top]
        header = ["layer", "operator", "phase", "count", "us", "share", "bound by"]
        bars = _charts.Chart(_charts.time_bars("", self.ops))._repr_html_()
        return facts + bars + html_table("Where the GPU's time goes", header, rows)


@dataclass(frozen=True)
class Offer:
    """One GPU of a comparison."""

    gpu: str
    iteration_ms: float
    samples_per_s: float
    memory_mib: float
    fits: bool
    usd_per_hour: float | None = None
    price_date: str | None = None
    usd_per_million_samples: float | None = None
    joules_per_sample: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None


class Rows:
    """Several answers: a sequence that prints as a table."""

    _answers: list[dict[str, Any]]

    def to_dict(self) -> list[dict[str, Any]]:
        """The rows with the names of the ``--json`` output."""
        return json.loads(json.dumps(self._answers))

    def to_pandas(self) -> pandas.DataFrame:
        """One row each."""
        return to_pandas(self._answers)

    def __len__(self) -> int:
        return len(self._answers)


class Comparison(Rows):
    """The same iteration on several GPUs, best first."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self._answers = answers
        self.offers = tuple(Offer(**_known(Offer, a)) for a in answers)

    def __iter__(self) -> Iterator[Offer]:
        return iter(self.offers)

    def __getitem__(self, index: int) -> Offer:
        return self.offers[index]

    _HEADER = ["GPU", "ms", "samples/s", "MiB", "fits", "$ / hour", "$ / million"]

    def _table(self) -> list[list[str]]:
        def money(value: float | None) -> str:
            return "" if value is None else digits(value)

        return [
            [
                o.gpu,
                digits(o.iteration_ms),
                digits(o.samples_per_s),
                digits(o.memory_mib),
                "yes" if o.fits else "no",
                money(o.usd_per_hour),
                money(o.usd_per_million_samples),
            ]
            for o in self.offers
        ]

    def __repr__(self) -> str:
        return text_table(self._HEADER, self._table())

    def _repr_html_(self) -> str:
        return html_table("One iteration on several GPUs", self._HEADER, self._table())


@dataclass(frozen=True)
class RooflineRow:
    """One operator against the roofs of a GPU."""

    name: str
    op: str
    family: str
    phase: str
    dtype: str
    count: float
    launches: float
    flops: float
    dram_bytes: float
    time_us: float
    share: float


class Roofline(Rows):
    """FLOPs, bytes, launches and bounds of every operator of an iteration."""

    def __init__(self, answer: dict[str, Any]) -> None:
        view = answer["views"][0]
        self.title: str = answer["title"]
        self.gpu: str = view["gpu"]
        self.machine: dict[str, Any] = view["machine"]
        self.summary: dict[str, Any] = view["summary"]
        self._answer = answer
        self._answers = view["rows"]
        self.rows = tuple(RooflineRow(**_known(RooflineRow, r)) for r in view["rows"])

    def __iter__(self) -> Iterator[RooflineRow]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> RooflineRow:
        return self.rows[index]

    _HEADER = ["operator", "layer", "time us", "share", "GFLOP", "MB"]

    def _table(self) -> list[list[str]]:
        top = sorted(self.rows, key=lambda r: -r.time_us)[:10]
        return [
            [r.op, r.name, digits(r.time_us), f"{100 * r.share:.1f} %", digits(r.flops / 1e9), digits(r.dram_bytes / 1e6)]
            for r in top
        ]

    def __repr__(self) -> str:
        return f"{self.title} on {self.gpu}\n" + text_table(self._HEADER, self._table())

    def _repr_html_(self) -> str:
        return html_table(f"{self.title} on {self.gpu}", self._HEADER, self._table())


@dataclass(frozen=True)
class Target:
    """A recorded run carried to another GPU."""

    gpu: str
    iteration_ms: float
    low_ms: float
    high_ms: float
    gpu_busy_ms: float


class Transfer(Rows):
    """A recorded run on its own GPU and on others."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.origin: str = answer["origin"]
        self.measured_ms: float = answer["measured_ms"]
        self.gpu_busy_ms: float = answer["gpu_busy_ms"]
        self.unattributed_ms: float = answer["unattributed_ms"]
        self._answers = answer["targets"]
        self.targets = tuple(Target(**_known(Target, t)) for t in answer["targets"])

    def __iter__(self) -> Iterator[Target]:
        return iter(self.targets)

    def __getitem__(self, index: int) -> Target:
        return self.targets[index]

    def _table(self) -> list[list[str]]:
        rows = [[t.gpu, digits(t.iteration_ms), f"{digits(t.low_ms)} to {digits(t.high_ms)}"] for t in self.targets]
        return [[f"{self.origin} (measured)", digits(self.measured_ms), ""], *rows]

    def __repr__(self) -> str:
        return text_table(["GPU", "ms", "90 % interval"], self._table())

    def _repr_html_(self) -> str:
        return html_table("A recorded run on other GPUs", ["GPU", "ms", "90 % interval"], self._table())
