"""Know before you FLOP: how long a training step takes on a GPU, why, and how much memory it needs.

    import preflop

    with preflop.record() as graph:        # no GPU needed, nothing is computed
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()

    graph.predict("h100")                  # time, interval, what binds
    graph.compare(["v100", "a100"])        # several GPUs
    graph.memory()                         # peak memory and its parts
    graph.save("step.json")                # read by `preflop predict step.json`

    preflop.predict_table(table, gpu="h200")  # millions of operators or jobs, Arrow in, Arrow out
"""

from __future__ import annotations

from ._assume import assume
from ._capture import Recording, capture, predict, record, trace
from ._core import VERSION as __version__
from ._errors import CaptureError, PreflopError
from ._graph import Graph
from ._results import Assumption, Comparison, Memory, Offer, Operator, Prediction, Roofline, RooflineRow, Target, Transfer, Unmodelled
from ._table import predict_table
from ._transfer import transfer

__all__ = [
    "Assumption",
    "CaptureError",
    "Comparison",
    "Graph",
    "Memory",
    "Offer",
    "Operator",
    "Prediction",
    "PreflopError",
    "Recording",
    "Roofline",
    "RooflineRow",
    "Target",
    "Transfer",
    "Unmodelled",
    "__version__",
    "assume",
    "capture",
    "predict",
    "predict_table",
    "record",
    "trace",
    "transfer",
]
