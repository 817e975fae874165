"""Compares the gains that `preflop advise` predicts with measured ones, and the option that it puts first with the best measured one.

    python python/bench/check_advice.py PREFLOP OPTIONS.csv

OPTIONS.csv has one measured iteration for each model and option (model, batch, size, precision, options, iter_ms). The options that
were measured alone are compared; exit status 1 if the first of them is more than 3 % slower than the best measured one, or if fewer than 80 % of
the gains are within 10 points.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys

#: As measured, and as `advise` says them.
OPTIONS = {"channels_last": "--layout channels-last", "compile": "--run compile", "graph": "--run graph"}


def main() -> int:
    program, path = sys.argv[1:3]
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    within = total = wrong = 0
    for model, batch, size in dict.fromkeys((r["model"], r["batch"], r["size"]) for r in rows):
        for mode in ("train", "infer"):
            mine = {r["options"]: float(r["iter_ms"]) for r in rows if r["model"] == model}
            base = mine["eager" if mode == "train" else "infer"]
            prefix = "" if mode == "train" else "infer+"
            measured = {said: 1 - mine[prefix + name] / base for name, said in OPTIONS.items() if prefix + name in mine}
            tokens = ["--seq", size] if model.startswith("gpt") else []
            command = [program, "advise", model, "--gpu", "h200", "--batch", batch, "--precision", "amp", "--mode", mode, "--optimizer", "adamw" if tokens else "sgd", "--json", *tokens]
            answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            predicted = {o["options"][0]: o["gain"] for o in answer["options"] if len(o["options"]) == 1}
            both = [said for said in measured if said in predicted]
            if not both:
                continue
            best, first = max(both, key=measured.get), max(both, key=predicted.get)
            behind = (1 - measured[first]) / (1 - measured[best]) - 1
            wrong += behind > 0.03
            for said in both:
                total += 1
                within += abs(predicted[said] - measured[said]) <= 0.10
            told = ", ".join(f"{said} {predicted[said]:+.0%} (measured {measured[said]:+.0%})" for said in both)
            print(f"{model} {mode}: {told}; first is {behind:.1%} slower than the best")
    print(f"{within} of {total} gains within 10 points; {wrong} first places more than 3 % slower than the best")
    return 0 if wrong == 0 and within >= 0.8 * total else 1


if __name__ == "__main__":
    sys.exit(main())
