"""The format `sleeper` on a snapshot table, without a Spark: a write replaces all rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.garbage_collection.service import expire_table_versions
from sleeper.ingest.parts import write_ingest_part
from sleeper.query.hold import take_shared_hold
from sleeper.spark.changes import SleeperChangesSource
from sleeper.spark.data_source import SleeperDataSource
from sleeper.spark.writer import PartWritten, SleeperWriter

pytestmark = pytest.mark.usefixtures("holds_of_reads")

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
SPARK_SCHEMA = StructType([StructField("k", StringType()), StructField("n", LongType())])


@pytest.fixture
def table(tmp_path: Path) -> Iterator[sleeper.Table]:
    with sleeper.create_instance(tmp_path / "here") as instance:
        yield instance.create_table("t", SCHEMA, {"sleeper.table.type": "snapshot"})


def source(table: sleeper.Table, **options: str) -> SleeperDataSource:
    named = {"instance": table._instance.where, "table": "t", **options}
    return SleeperDataSource(CaseInsensitiveDict(named))


def begin(table: sleeper.Table, job_id: str) -> SleeperWriter:
    return source(table, jobId=job_id).writer(SPARK_SCHEMA, overwrite=True)


def commit(table: sleeper.Table, writer: SleeperWriter, *keys: str) -> None:
    batch = pa.record_batch({"k": list(keys), "n": pa.array(range(len(keys)), pa.int64())})
    files = write_ingest_part(table._instance, writer._begun, [batch], "(part)", 1)
    writer.commit([PartWritten(files)])


def read(table: sleeper.Table, **options: str) -> list[str]:
    reader: Any = source(table, **options).reader(SPARK_SCHEMA)
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    return [k for batch in batches for k in batch["k"].to_pylist()]


def test_an_overwrite_replaces_all_rows(table: sleeper.Table) -> None:
    commit(table, begin(table, "a"), "x", "y")
    first = table.version
    commit(table, begin(table, "b"), "z")
    assert read(table) == ["z"]
    assert read(table, asOf=str(first)) == ["x", "y"]
    begin(table, "c").commit([])
    assert read(table) == []


def test_an_overtaken_overwrite_is_refused(table: sleeper.Table) -> None:
    early, late = begin(table, "early"), begin(table, "late")
    commit(table, late, "late")
    with pytest.raises(InvalidRequestError, match="load late, which began later"):
        commit(table, early, "early")
    assert read(table) == ["late"]


def test_appends_and_streams_are_refused_with_what_to_use(table: sleeper.Table) -> None:
    with pytest.raises(InvalidRequestError, match=r"'t' is a snapshot table.*mode\('overwrite'\)"):
        source(table).writer(SPARK_SCHEMA, overwrite=False)
    for overwrite in (False, True):
        with pytest.raises(InvalidRequestError, match="a stream adds rows"):
            source(table).streamWriter(SPARK_SCHEMA, overwrite=overwrite)
    with pytest.raises(InvalidRequestError, match="expected the format sleeper-changes"):
        source(table).streamReader(SPARK_SCHEMA).initialOffset()


def test_a_shared_hold_on_a_replaced_version_does_not_keep_the_next(table: sleeper.Table) -> None:
    state, clock = table._instance.table("t").state, table._instance.clock
    commit(table, begin(table, "a"), "x")
    for _ in range(2):
        take_shared_hold(state, table.version, 600, clock, "spark")
    commit(table, begin(table, "b"), "y")
    take_shared_hold(state, table.version, 600, clock, "spark")
    assert len(state.holds.all()) == 2


def test_a_stream_of_changes_skips_expired_versions_and_holds_the_others(
    table: sleeper.Table,
) -> None:
    for name in ("a", "b"):
        commit(table, begin(table, name), name)
    ports = table._instance
    options = CaseInsensitiveDict({"instance": ports.where, "table": "t"})
    changes = SleeperChangesSource(options)
    stream = changes.streamReader(changes.schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    parts = stream.partitions(start, end)
    # The planned versions are held until the stream commits.
    assert expire_table_versions(ports, "t").expired == ()
    assert read_changes(stream, parts) == ["a", "b"]
    stream.commit(end)
    assert len(expire_table_versions(ports, "t").expired) == 1
    assert read_changes(stream, stream.partitions(start, end)) == ["b"]
    stream.stop()


def read_changes(stream: Any, parts: Any) -> list[str]:
    rows = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    return sorted(row["row"]["k"] for row in rows if row["operation"] == "insert")
