"""What the tests of tables share."""

from __future__ import annotations

import json

import pyarrow
import pytest

#: Operators of several families; the last has no `k`.
ROWS = [
    ("mm", "fwd", "bf16", {"m": 4096, "n": 1024, "k": 512}),
    ("softmax", "bwd", "fp32", {"rows": 4096, "cols": 1000}),
    ("conv2d", "wgrad", "tf32", {"b": 16, "ci": 64, "hw": 28, "co": 64, "k": 3, "pad": 1}),
    ("mm", "fwd", "bf16", {"m": 1, "n": 2}),
]


@pytest.fixture
def operators() -> pyarrow.Table:
    op, phase, dtype, shape = zip(*ROWS)
    return pyarrow.table({"op": op, "phase": phase, "dtype": dtype, "shape": [json.dumps(s) for s in shape]})
