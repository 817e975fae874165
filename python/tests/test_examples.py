"""The examples and the notebook run, and say what they promise."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest
from conftest import ROOT

PROMISED = {
    "classifier.py": ["ResNet, training, batch 64, amp", "h100", "peak"],
    "amp_loop.py": ["my network", "batch 256", "iteration"],
    "causal_lm.py": ["llama 1.1B", "optimizer", "b200"],
    "gan.py": ["gan, training, batch 128", "14 optimizer", "conv2d wgrad"],
}


def test_every_example_is_listed() -> None:
    assert {p.name for p in (ROOT / "examples").glob("*.py")} == set(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_example(name: str) -> None:
    run = subprocess.run([sys.executable, str(ROOT / "examples" / name)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    for words in PROMISED[name]:
        assert words in run.stdout, run.stdout


def test_notebook() -> None:
    """Every cell runs in order; what a cell ends with has something to show in a notebook."""
    notebook = json.loads((ROOT / "examples" / "tour.ipynb").read_text())
    scope: dict[str, object] = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse(cell["source"])
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), scope)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), scope)
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
            assert cell["outputs"], f"the notebook was not run: {cell['source']}"
    assert len(shown) == 5 and all("<table>" in s or "time_us" in s for s in shown), shown
