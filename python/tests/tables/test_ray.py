"""A real Ray cluster on this machine: a head and two worker nodes, each processes of their own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import ray
import ray.data
from ray.cluster_utils import Cluster

import preflop
import preflop.ray
from preflop import _core

#: A million operators: 100 x 100 x 50 shapes in two formats.
STUDY = """
op = "mm"
dtype = ["bf16", "fp16"]
gpu = "h200"
shape.m = { from = 1, to = 100, step = 1 }
shape.n = { from = 8, to = 800, step = 8 }
shape.k = { from = 16, to = 800, step = 16 }
"""
ROWS = 1_000_000
PART_ROWS = 20_000


class Nodes:
    """The cluster, with its worker nodes."""

    def __init__(self) -> None:
        # The head computes nothing: all work is on the worker nodes.
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 200_000_000})
        self.workers = [self.cluster.add_node(num_cpus=1, object_store_memory=200_000_000) for _ in range(2)]
        self.cluster.wait_for_nodes()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    ray.shutdown()
    nodes.cluster.shutdown()


def test_datasets_are_answered(nodes: Nodes, operators: pyarrow.Table) -> None:
    ray.init(address=nodes.cluster.address, log_to_driver=False)
    many = pyarrow.concat_tables([operators] * 50).append_column("id", [list(range(200))])
    dataset = ray.data.from_arrow(many.to_batches(max_chunksize=20) and [many.slice(i, 20) for i in range(0, 200, 20)])
    answers = preflop.ray.predict(dataset, gpu="h200", concurrency=2, batch_size=16)
    found = pyarrow.concat_tables(ray.get(answers.to_arrow_refs())).sort_by("id")
    wanted = preflop.predict_table(many, gpu="h200")
    assert found.select(wanted.column_names).to_pylist() == wanted.to_pylist()
    ray.shutdown()


def test_a_million_rows_survive_the_loss_of_a_node(nodes: Nodes, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    alone = tmp_path / "alone.parquet"
    assert _core.run(["sweep", str(study), "-o", str(alone), "--part-rows", str(PART_ROWS)]) == 0

    output = tmp_path / "ray.parquet"
    parts = tmp_path / "ray.parquet.parts"
    killed: list[int] = []

    def kill() -> None:
        """Ends one worker node the hard way once some parts are there."""
        while True:
            there = len(list(parts.glob("*.parquet"))) if parts.is_dir() else 0
            if there >= 5:
                break
            time.sleep(0.05)
        nodes.cluster.remove_node(nodes.workers[0], allow_graceful=False)
        killed.append(there)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    summary = preflop.ray.sweep(study, output, address=nodes.cluster.address, part_rows=PART_ROWS)
    killer.join(timeout=60)
    assert killed and killed[0] < ROWS // PART_ROWS, "the node was killed after the end"
    assert summary["rows"] == ROWS and summary["failed"] == 0

    assert output.read_bytes() == alone.read_bytes()
    table = pyarrow.parquet.read_table(output, columns=["dtype", "shape.m", "shape.n", "shape.k", "error"])
    assert table.num_rows == ROWS and table.column("error").null_count == ROWS
    keys = table.group_by(["dtype", "shape.m", "shape.n", "shape.k"]).aggregate([])
    assert keys.num_rows == ROWS, "a row is lost or there twice"


def test_a_sweep_goes_on_from_the_parts_of_another_engine(nodes: Nodes, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY.replace("to = 100, step = 1", "to = 4, step = 1"))
    args = ["sweep", str(study), "--part-rows", "5000"]
    assert _core.run([*args, "-o", str(tmp_path / "alone.parquet")]) == 0
    output = tmp_path / "both.parquet"
    assert _core.run([*args, "-o", str(output), "--shard", "1/2"]) == 0
    made = subprocess.run(
        [sys.executable, "-m", "preflop", *args, "-o", str(output), "--engine", "ray", "--address", nodes.cluster.address],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    assert output.read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    folder = tmp_path / "folder"
    summary = preflop.ray.sweep(study, f"{folder}/", address=nodes.cluster.address, part_rows=5000)
    assert summary["parts"] == len(list(folder.glob("part-*.parquet"))) == 8
    whole = pyarrow.parquet.read_table(folder)
    assert whole.equals(pyarrow.parquet.read_table(output))


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    with pytest.raises(preflop.PreflopError, match="unknown key `opp`"):
        bad = tmp_path / "bad.toml"
        bad.write_text(STUDY.replace("op =", "op = \"mm\"\nopp ="))
        preflop.ray.sweep(bad, tmp_path / "x.parquet")
    with pytest.raises(preflop.PreflopError, match="cannot read"):
        preflop.ray.sweep(tmp_path / "none.toml", tmp_path / "x.parquet")
