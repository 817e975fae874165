"""Peak memory of recorded iterations against what an H200 used: mean error at most 4 %, median at most 1 %."""

from __future__ import annotations

import csv
import os
import statistics
from pathlib import Path

import preflop
from reference_models import step


def test_peak_memory() -> None:
    with open(Path(os.environ["PREFLOP_SHARED"]) / "data" / "h200" / "e2e.csv") as file:
        rows = list(csv.DictReader(file))
    errors = []
    for row in rows:
        run = step(row["model"], int(row["batch"]), int(row["seq"]), row["precision"], row["mode"])
        predicted, measured = preflop.capture(run).memory().peak_mib, float(row["peak_mem_mib"])
        errors.append(abs(predicted / measured - 1))
        case = f"{row['model']} {row['batch']} {row['precision']} {row['mode']}"
        print(f"{case:40} measured {measured:8.0f} MiB, predicted {predicted:8.0f}, error {100 * (predicted / measured - 1):+6.1f} %")
    mean, median = statistics.mean(errors), statistics.median(errors)
    print(f"{len(errors)} rows: mean {100 * mean:.2f} %, median {100 * median:.2f} %")
    assert len(errors) == 64
    assert mean <= 0.04
    assert median <= 0.01
