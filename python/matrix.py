"""The programs of the tests on other versions of PyTorch, each in an environment of its own.

    python3 python/matrix.py                 2.4, 2.6, 2.8, 2.9, 2.11 and the newest
    python3 python/matrix.py 2.9.1 2.15.0    these

Every version is installed from PyPI under `target/torch-VERSION` (5 GB and minutes each; delete what is not needed), the package from
the wheel that `pip install .` builds. Prints one row of a table for each, and what failed.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ["2.4.1", "2.6.0", "2.8.0", "2.9.1", "2.11.0", "2.15.0"]


def environment(version: str, wheel: Path) -> Path:
    """A Python with that PyTorch and the package."""
    folder = ROOT / "target" / f"torch-{version}"
    python = folder / "bin" / "python"
    if not (folder / "complete").is_file():
        venv.create(folder, with_pip=True, clear=True)
        # Older versions were built for the first NumPy of this line.
        subprocess.run([python, "-m", "pip", "install", "-q", f"torch=={version}", "numpy<2.3", "pytest"], check=True)
        (folder / "complete").touch()
    subprocess.run([python, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", wheel], check=True)
    return python


def built() -> Path:
    """The package as a wheel."""
    folder = ROOT / "target" / "wheels"
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], check=True)
    return max(folder.glob("preflop-*.whl"), key=lambda p: p.stat().st_mtime)


def refused_programs() -> set[str]:
    """The programs that the tests expect to be refused: the keys of `REFUSED`."""
    tree = ast.parse((ROOT / "python/tests/test_programs.py").read_text())
    tables = (n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "REFUSED")
    return {key.value for table in tables for key in table.keys}


def outcomes(report: str) -> dict[str, str]:
    """What became of each program, from pytest's summary (`-rA`)."""
    return {name: what for what, name in re.findall(r"^(PASSED|FAILED|ERROR) \S+::test_program\[([^\]]+)\]", report, re.MULTILINE)}


def main() -> int:
    versions = sys.argv[1:] or VERSIONS
    wheel, failed = built(), 0
    print("| PyTorch | Python | programs that record and predict | refused in one line | failed |\n|---|---|---|---|---|")
    for version in versions:
        python = environment(version, wheel)
        tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not libraries", "python/tests/test_programs.py", "--tb=line", "-rA"]
        run = subprocess.run([python, *tests], cwd=ROOT, capture_output=True, text=True, check=False)
        found = outcomes(run.stdout)
        passed = {name for name, what in found.items() if what == "PASSED"}
        refused, bad = passed & refused_programs(), len(found) - len(passed)
        failed += bad or (1 if not found else 0)
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        print(f"| {version} | {here} | {len(passed - refused)} | {len(refused)} | {bad} |", flush=True)
        for name, what in found.items():
            if what != "PASSED":
                print(f"  {name}: {what.lower()}", file=sys.stderr)
        if not found:
            print(run.stdout[-2000:] + run.stderr[-2000:], file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
