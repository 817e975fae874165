"""``python -m preflop``: the command line."""

from __future__ import annotations

import os
import signal
import sys

from . import _core


def main() -> int:
    """Runs the program with the arguments of this process."""
    # The program is not Python: let Ctrl-C and closed pipes end it as they end any other.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What the program starts of Python is this one (`sweep --engine ray`).
    os.environ.setdefault("PREFLOP_PYTHON", sys.executable)
    return _core.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
