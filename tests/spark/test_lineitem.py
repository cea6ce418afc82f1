"""TPC-H's lineitem, imported, split into 256 leaves and read back with equal columns.

SLEEPER_TPCH_SCALE says how much: 1 is six million rows, and the default is a hundredth. How
long each part took is printed, and how much memory the greediest processes.
"""

import json
import os
import resource
import subprocess
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sleeper.admin.tables import create_table
from sleeper.bulk_export.service import export_table
from sleeper.bulk_import.service import bulk_import_paths
from sleeper.opening import create_instance, open_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.spark.cluster import SparkCluster
from tests.spark.processes import PeakMemory, javas, python_workers

SCALE = os.environ.get("SLEEPER_TPCH_SCALE", "0.01")
ROWS_MIN = 5_900_000 * float(SCALE)
DECIMAL = {"DecimalType": {"precision": 15, "scale": 2}}
KINDS: dict[str, object] = {
    "l_partkey": "LongType",
    "l_suppkey": "LongType",
    "l_quantity": DECIMAL,
    "l_extendedprice": DECIMAL,
    "l_discount": DECIMAL,
    "l_tax": DECIMAL,
    "l_returnflag": "StringType",
    "l_linestatus": "StringType",
    "l_shipdate": "DateType",
    "l_commitdate": "DateType",
    "l_receiptdate": "DateType",
    "l_shipinstruct": "StringType",
    "l_shipmode": "StringType",
    "l_comment": "StringType",
}
SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "l_orderkey", "type": "LongType"}],
        "sortKeyFields": [{"name": "l_linenumber", "type": "IntType"}],
        "valueFields": [{"name": name, "type": kind} for name, kind in KINDS.items()],
    }
)


def sums(batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
    """For each column the sum of its values' hashes, which wraps around; and the rows."""
    results: dict[str, int] = {"rows": 0}
    for batch in batches:
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        results["rows"] += frame.height
        for column in frame:
            whole = pl.Series(column.cast(pl.String)).hash(seed=1).sum()
            results[column.name] = (results.get(column.name, 0) + whole) % 2**64
    return results


class Laps:
    """How long parts took, one after another."""

    def __init__(self) -> None:
        self._laps: list[str] = []
        self._last = time.monotonic()

    def lap(self, label: str) -> None:
        now = time.monotonic()
        self._laps.append(f"{label} {now - self._last:.0f} s")
        self._last = now

    def __str__(self) -> str:
        return ", ".join(self._laps)


@pytest.mark.timeout(3600)
def test_lineitem_rows_are_read_back_unchanged(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Laps()
    program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    source = tmp_path / "tpch"
    command = [program, "parquet", "-s", SCALE, "--tables=lineitem", f"--output-dir={source}"]
    subprocess.run(command, check=True, capture_output=True)
    clock.lap("made")
    arguments = sums(pq.ParquetFile(source / "lineitem.parquet").iter_batches())
    clock.lap("summed up")
    assert arguments["rows"] > ROWS_MIN
    create_instance(tmp_path / "instance")
    instance = open_instance(tmp_path / "instance")
    leaves_min = {
        "sleeper.table.bulk.import.min.leaf.partitions": "256",
        "sleeper.table.bulk.import.leaf.bytes.min": "0",
    }
    create_table(instance, "lineitem", SCHEMA, leaves_min)
    own = os.getpid()
    with (
        PeakMemory(lambda: javas(own)) as java,
        PeakMemory(lambda: python_workers(own)) as workers,
    ):
        bulk_import_paths(instance, "lineitem", [str(source)], lambda: SparkCluster(spark))
    clock.lap("imported")
    table = instance.table("lineitem")
    with table.state.reading() as state:
        leaves = len(list(state.partitions.leaves()))
    assert leaves == min(256, arguments["rows"] // 1000)
    with open_query(instance, "lineitem", Query()) as rows:
        assert sums(rows) == arguments
    clock.lap("queried and summed up")
    export = export_table(instance, "lineitem")
    clock.lap("exported")
    files = sorted(Path(export.location).glob("*.parquet"))
    assert len(files) == leaves
    assert sums(b for file in files for b in pq.ParquetFile(file).iter_batches()) == arguments
    clock.lap("summed up")
    instance.close()
    with capsys.disabled():
        print(f"\n{arguments['rows']:,} rows in {leaves} leaves: {clock}")
        print(f"peaks: Java {java.mib:,} MiB, a worker {workers.mib:,} MiB, this process", end=" ")
        print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:,} MiB")
