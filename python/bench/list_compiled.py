"""Records the iterations that `measure_compiled.py` measured, without a GPU, and saves them.

    python python/bench/list_compiled.py FOLDER [MODEL-MODE ..]        such as resnet50-train; all without
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from measure_compiled import MODELS, step_of  # noqa: E402

import preflop  # noqa: E402


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    cases = sys.argv[2:] or [f"{name}-{mode}" for name in MODELS for mode in ("train", "infer")]
    if len(cases) > 1:
        # A process that has run a backward cannot compile a training step any more.
        failed = [case for case in cases if subprocess.run([sys.executable, __file__, str(folder), case], check=False).returncode]
        print(f"failed: {' '.join(failed)}" if failed else "all listed")
        return 1 if failed else 0
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    case = cases[0]
    name, mode = case.rsplit("-", 1)
    start = time.time()
    graph = preflop.capture(step_of(name, mode == "train", "default", "cpu"), name=name, samples=MODELS[name][0], strict=True)
    graph.save(folder / f"{case}.json")
    fused = sum(1 for op in graph.document["ops"] if "fused" in op)
    print(f"{case}: {fused} fused of {len(graph)} in {time.time() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
