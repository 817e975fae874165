"""``preflop.predict_table``: any data frame in, the same kind out, with the answers of the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import preflop
from preflop import _core


def by_command(operators: pyarrow.Table, folder: Path) -> list[dict]:
    path = folder / "ops.parquet"
    pyarrow.parquet.write_table(operators.slice(0, 3), path)
    return [json.loads(line) for line in _core.call(["ops", str(path), "--gpu", "h200"]).splitlines()]


def test_answers_are_those_of_the_command_line(operators: pyarrow.Table, tmp_path: Path) -> None:
    answers = preflop.predict_table(operators, gpu="h200")
    assert isinstance(answers, pyarrow.Table)
    assert answers.column_names[:4] == ["op", "phase", "dtype", "shape"]
    for row, line in zip(answers.to_pylist(), by_command(operators, tmp_path)):
        assert row["error"] is None
        assert row["time_us"] == pytest.approx(line["time_us"], abs=1e-4)
        assert (row["bound"], row["flops"]) == (line["bound"], line["flops"])
    last = answers.to_pylist()[3]
    assert last["time_us"] is None and "needs `k`" in last["error"]


def test_every_library_gets_its_own_kind_back(operators: pyarrow.Table) -> None:
    wanted = preflop.predict_table(operators, gpu="h200").column("time_us").to_pylist()[:3]
    batch = operators.to_batches()[0]
    asked = {
        pyarrow.Table: operators,
        pyarrow.RecordBatch: batch,
        pyarrow.RecordBatchReader: operators.to_reader(),
        polars.DataFrame: polars.from_arrow(operators),
        pandas.DataFrame: operators.to_pandas(),
    }
    for kind, table in asked.items():
        answers = preflop.predict_table(table, gpu="h200")
        assert isinstance(answers, kind), kind
        if isinstance(answers, pyarrow.RecordBatchReader):
            answers = answers.read_all()
        times = answers["time_us"]
        times = times.to_pylist() if hasattr(times, "to_pylist") else list(times)
        assert times[:3] == wanted, kind
    relation = duckdb.from_arrow(operators)
    answers = preflop.predict_table(relation, gpu="h200")
    assert answers.column("time_us").to_pylist()[:3] == wanted


def test_an_index_of_pandas_comes_back_and_is_no_column(operators: pyarrow.Table) -> None:
    frame = operators.to_pandas()
    frame.index = pandas.Index(list("dcba"), name="which")
    answers = preflop.predict_table(frame, gpu="h200")
    assert list(answers.columns[:5]) == ["op", "phase", "dtype", "shape", "time_us"]
    assert list(answers.index) == list("dcba") and answers.index.name == "which"
    with pytest.raises(preflop.PreflopError, match="LazyFrame"):
        preflop.predict_table(polars.from_arrow(operators).lazy(), gpu="h200")


def test_shapes_may_be_structs_or_columns(operators: pyarrow.Table) -> None:
    wanted = preflop.predict_table(operators.slice(0, 1), gpu="a100").column("time_us")
    flat = pandas.DataFrame({"op": ["mm"], "dtype": ["bf16"], "shape.m": [4096], "shape.n": [1024.0], "shape.k": [512], "shape.hw": [float("nan")]})
    assert list(preflop.predict_table(flat, gpu="a100")["time_us"]) == wanted.to_pylist()
    nested = polars.DataFrame({"op": ["mm"], "dtype": ["bf16"], "shape": [{"m": 4096, "n": 1024, "k": 512}]})
    assert preflop.predict_table(nested, gpu="a100")["time_us"].to_list() == wanted.to_pylist()


def test_jobs_and_changed_gpus() -> None:
    jobs = polars.DataFrame(
        {"model": ["resnet18", "resnet18", "resnet18"], "gpu": ["h200", "h200", "p4"], "batch": [8, 8, 8], "gpu.dram_gbs": [None, 1000.0, None]}
    )
    answers = preflop.predict_table(jobs, precision="amp", mode="infer")
    alone = json.loads(_core.call(["predict", "resnet18", "--gpu", "h200", "--batch", "8", "--precision", "amp", "--mode", "infer", "--json"]))
    rows = answers.to_dicts()
    assert rows[0]["iteration_ms"] == pytest.approx(alone["iteration_ms"], rel=1e-12)
    assert rows[0]["memory_mib"] == pytest.approx(alone["memory_mib"], rel=1e-12)
    assert rows[1]["gpu_busy_ms"] > rows[0]["gpu_busy_ms"]
    assert rows[0]["usd_per_million_samples"] > 0 and rows[1]["usd_per_hour"] is None
    assert rows[2]["error"] is None


def test_only_what_is_kept_stays(operators: pyarrow.Table) -> None:
    some = preflop.predict_table(operators.append_column("id", [[1, 2, 3, 4]]), gpu="h200", keep=["id"])
    assert some.column_names[:2] == ["id", "time_us"]
    assert preflop.predict_table(operators, gpu="h200", keep=False).column_names[0] == "time_us"


def test_wrong_tables_say_why(operators: pyarrow.Table) -> None:
    for table, asked, said in [
        (operators, {}, "no column `gpu`"),
        (operators, {"gpu": "h200", "precizion": "amp"}, "precizion"),
        (operators.rename_columns(["op", "phase", "dtype", "sshape"]), {"gpu": "h200"}, "`shape`"),
        (pyarrow.table({"mmodel": ["resnet18"]}), {"gpu": "h200"}, "did you mean `mmodel`"),
        ([1, 2], {}, "no Arrow table"),
        (operators, {"gpu": "h200", "keep": ["nothing"]}, "no column `nothing`"),
    ]:
        with pytest.raises(preflop.PreflopError, match=said):
            preflop.predict_table(table, **asked)
    unknown = preflop.predict_table(operators, gpu="h2000").to_pylist()
    assert all("did you mean `h200`" in row["error"] for row in unknown[:3])


def test_other_threads_run_meanwhile(operators: pyarrow.Table) -> None:
    many = pyarrow.concat_tables([operators] * 5000)
    ticks, end = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not end.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    preflop.predict_table(many, gpu="h200", threads=1)
    took = time.monotonic() - start
    end.set()
    thread.join()
    # With the lock held, the other thread would not have ticked at all.
    assert ticks > 3 and took > 0, (ticks, took)


MEMORY = """
import resource, sys
import pyarrow, preflop
rows = 20_000
block = pyarrow.table({"op": ["relu"] * rows, "dtype": ["fp32"] * rows, "shape.n": list(range(1, rows + 1))}).to_batches()[0]
def peak(blocks):
    reader = pyarrow.RecordBatchReader.from_batches(block.schema, (block for _ in range(blocks)))
    answers = preflop.predict_table(reader, gpu="h200", threads=2)
    count = sum(batch.num_rows for batch in answers)
    assert count == blocks * rows
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
few, many = peak(5), peak(50)
print(few, many)
"""


def test_memory_is_that_of_a_block_however_many_rows() -> None:
    few, many = map(int, subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True).stdout.split())
    # Ten times the rows: 900,000 more of them would take over 100 MB if they were held.
    assert many < 1024 and many - few < 60, (few, many)


def test_dask_maps_partitions(operators: pyarrow.Table) -> None:
    import dask.dataframe

    frame = pyarrow.concat_tables([operators] * 8).to_pandas()
    wanted = preflop.predict_table(frame, gpu="h200")
    parts = dask.dataframe.from_pandas(frame, npartitions=3)
    found = parts.map_partitions(preflop.predict_table, gpu="h200", meta=wanted.iloc[:0]).compute()
    assert list(found["time_us"].dropna()) == list(wanted["time_us"].dropna())
    assert list(found.index) == list(wanted.index)
