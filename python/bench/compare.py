"""The programs of the tests on this machine, one line of JSON each: recorded, run on the CPU, and where there is a GPU run there too.

    python python/bench/compare.py [SHARD OF]

``cpu`` and ``gpu`` list operators whose counts differ as [recorded, run]. On a GPU all launching operators are compared, by their own names.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import torch

import preflop


def differences(here: Counter, there: Counter) -> dict[str, list[int]]:
    return {k: [here[k], there[k]] for k in sorted(here | there) if here[k] != there[k]}


def one(program: object) -> dict:
    from test_programs import Counting, compared, launched

    row: dict = {"program": program.name}
    try:
        start = time.perf_counter()
        torch.manual_seed(0)
        with Counting() as host, preflop.record(program.name, samples=2) as graph:
            program.run("cuda")
        row |= {"seconds": round(time.perf_counter() - start, 2), "operators": len(graph), "assumptions": len(graph.assumptions)}
        row["iteration_ms"] = graph.predict("h200").iteration_ms
        for device in ("cpu", "cuda"):
            how = program.compared
            if how == "none" or (device == "cuda" and not torch.cuda.is_available()):
                continue
            torch.manual_seed(0)
            with Counting() as run:
                program.run(device)
            if device == "cpu":
                row["cpu"] = differences(compared(launched(graph) + host.counts, how), compared(run.counts, how))
            else:
                row["gpu"] = differences(plain(launched(graph) + host.counts), plain(run.counts))
    except BaseException as error:  # noqa: BLE001  (one bad program must not end the others)
        row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
        if not isinstance(error, preflop.PreflopError):
            row["trace"] = traceback.format_exc()[-700:]
    return row


def plain(counts: Counter) -> Counter:
    """Without what computes nothing on a GPU."""
    free = ("detach", "empty", "lift_fresh", "alias", "resize", "set_", "is_pinned", "_to_copy", "copy_", "_local_scalar", "uniform", "normal")
    out: Counter = Counter()
    for name, count in counts.items():
        stem = name.removeprefix("aten::")
        if not stem.startswith(free):
            out[stem] += count
    return out


def main() -> None:
    from programs import PROGRAMS

    torch.set_num_threads(1)
    shard, of = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (0, 1)

    def late(*_: object) -> None:
        raise TimeoutError("over a minute")

    signal.signal(signal.SIGALRM, late)
    for program in list(PROGRAMS.values())[shard::of]:
        signal.alarm(60)
        print(json.dumps(one(program)), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
