"""Spark needs nothing of ours but ``predict_table``: ``mapInArrow`` gives it the batches of a partition."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow
import pytest
from pyspark.sql import SparkSession

import preflop


def test_spark_maps_batches(operators: pyarrow.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    # Workers take the first python3 of the path unless told.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)

    # As in docs/sweeps.md; inside, so that it travels to the workers as it is, not as a name in a module that they lack.
    def answered(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            yield preflop.predict_table(batch, gpu="h200", threads=1)

    many = pyarrow.concat_tables([operators] * 25).append_column("id", [list(range(100))])
    wanted = preflop.predict_table(many, gpu="h200")
    question = "op string, phase string, dtype string, shape string, id long"
    times = "time_us double, low_us double, high_us double, bound string, flops double"
    schema = f"{question}, {times}, dram_bytes double, l2_bytes double, l1_bytes double, error string"
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    spark = session.getOrCreate()
    try:
        frame = spark.createDataFrame(many.to_pylist(), schema=question).repartition(3)
        found = frame.mapInArrow(answered, schema).orderBy("id").collect()
        assert [row.asDict() for row in found] == wanted.to_pylist()
    finally:
        spark.stop()
