"""Real programs, small: each is a function of a device that runs one step there.

`@program()` lists one. ``compared`` says how its operators are held against those of a CPU run of the same step: "all" that compute,
only the "products" (where the CPU takes other kernels, or sizes depend on data), only what is beside "recurrent" layers or beside "attention", or "none" where
there is no such run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch


@dataclass(frozen=True)
class Program:
    name: str
    run: Callable[[str], Any]
    compared: str
    needs: tuple[str, ...]


#: Older versions have no such call.
VERSION = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])

PROGRAMS: dict[str, Program] = {}


def program(
    compared: str = "all", needs: tuple[str, ...] = (), name: str | None = None, since: tuple[int, int] = (2, 4)
) -> Callable[[Any], Any]:
    def add(run: Callable[[str], Any]) -> Callable[[str], Any]:
        if since > VERSION:
            return run
        key = name or run.__name__
        assert key not in PROGRAMS, key
        PROGRAMS[key] = Program(key, run, compared, needs)
        return run

    return add


from . import frameworks, language, others, vision  # noqa: E402, F401
