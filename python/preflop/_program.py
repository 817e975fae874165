"""Calls of the program: arguments in, answers out."""

from __future__ import annotations

import json
from typing import Any

from . import _core
from ._errors import PreflopError


def answer(*args: str) -> Any:
    """What a command says with ``--json``."""
    try:
        return json.loads(_core.call([*args, "--json"]))
    except ValueError as error:
        if len(error.args) == 2:
            raise PreflopError(error.args[0], error.args[1]) from None
        raise
