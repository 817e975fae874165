"""Sizes and numbers that only a real run would know, by assumption."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from dataclasses import dataclass
from typing import Any, Iterator

from ._errors import PreflopError


@dataclass(frozen=True)
class Assumptions:
    """What is taken where a program asks for data that a recording does not have.

    Shares are of the elements that an operator looks at. Small tensors whose numbers the program itself gives (ranges, masks,
    lengths, random draws) are computed, and nothing is assumed about them.
    """

    #: Elements of a mask that are set (`nonzero`, `x[mask]`, `masked_select`, `torch.where(mask)`).
    nonzero: float = 0.5
    #: Elements that differ from each other (`unique`).
    unique: float = 1.0
    #: Boxes that non-maximum suppression keeps; what follows usually cuts them to a limit.
    nms: float = 1.0
    #: How often each element is repeated (`repeat_interleave`).
    repeats: float = 1.0
    #: Times that one line may ask for a number of the network before the recording ends with an error.
    rounds: int = 1000

    def __post_init__(self) -> None:
        for name in ("nonzero", "unique", "nms"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
                raise PreflopError(f"`{name}` is a share between 0 and 1, not {share!r}")
        if isinstance(self.repeats, bool) or not isinstance(self.repeats, (int, float)) or not 0 <= self.repeats <= 1e6:
            raise PreflopError(f"`repeats` is a number of at most a million, not {self.repeats!r}")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise PreflopError(f"`rounds` is a whole number of at least 1, not {self.rounds!r}")


_current: contextvars.ContextVar[Assumptions] = contextvars.ContextVar("assumptions", default=Assumptions())


def current() -> Assumptions:
    """What is assumed at the moment."""
    return _current.get()


@contextlib.contextmanager
def assume(**shares: Any) -> Iterator[None]:
    """Inside the block, other sizes are assumed where only a real run would know them.

        with preflop.assume(nonzero=0.15), preflop.record() as graph:
            ...

    ``nonzero``, ``unique`` and ``nms`` are shares of elements, ``repeats`` how often `repeat_interleave` repeats each, and ``rounds``
    how often one line may ask for a number of the network. It can stand around a recording or inside one, around one layer.
    """
    names = [f.name for f in dataclasses.fields(Assumptions)]
    for name in shares:
        if name not in names:
            raise PreflopError(f"nothing is assumed about `{name}`", hint=", ".join(names))
    token = _current.set(dataclasses.replace(current(), **shares))
    try:
        yield
    finally:
        _current.reset(token)
