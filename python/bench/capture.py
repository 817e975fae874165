"""How long recording takes and how much memory: training steps of resnet50, a transformer of 24 layers, densenet201 and a 7B llama.

    python python/bench/capture.py            all, each in a process of its own
    python python/bench/capture.py NAME       one of them, here
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

#: Batch, sequence, precision, wanted seconds and MiB.
CASES = {
    "resnet50": (64, 0, "amp", 1.5, 2048),
    "bert-large": (16, 512, "amp", 3.0, 2048),
    "densenet201": (32, 0, "amp", 6.0, 2048),
    "llama-7b": (1, 2048, "amp", 20.0, 2048),
}


def one(name: str) -> int:
    import preflop
    from reference_models import step

    batch, seq, precision, seconds, mib = CASES[name]
    run = step(name, batch, seq, precision, "train")
    # Of the processor: what else the machine does is not the recorder's.
    start = time.process_time()
    with preflop.record(name) as graph:
        run()
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:10} {len(graph):6} operators in {took:5.2f} s of the processor (wanted: under {seconds:g}), {peak:5.0f} MiB (wanted: under {mib})")
    return 0 if took < seconds and peak < mib else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(one(sys.argv[1]))
    sys.exit(max(subprocess.run([sys.executable, __file__, name]).returncode for name in CASES))
