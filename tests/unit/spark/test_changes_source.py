"""The format `sleeper-changes` as Spark calls it, without a Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

import sleeper
from sleeper.admin.schema import change_schema
from sleeper.errors import InvalidRequestError
from sleeper.processing.field_changes import AddField
from sleeper.query.distributed import read as distributed_read
from sleeper.schema.model import Field, PrimitiveType
from sleeper.spark.changes import SleeperChangesSource

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "ByteArrayType", "nullable": True}],
}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[sleeper.Instance]:
    with sleeper.create_instance(tmp_path / "instance") as created:
        table = created.create_table("t", SCHEMA, split_points=[10])
        table.ingest(pa.table({"k": [1, 2, 20], "v": [b"a", None, b"c"]}), "load")
        table.delete(keys=[[2]], ranges=[(15, None)], delete_id="erase")
        yield created


def source(instance: sleeper.Instance, **options: str) -> SleeperChangesSource:
    names = {"instance": instance._ports.where, "table": "t"}
    return SleeperChangesSource(CaseInsensitiveDict({**names, **options}))


def read(source_: SleeperChangesSource, partitions: list[Any]) -> list[dict[str, Any]]:
    """Returns the rows by number, as executors read them, each with a copy of the reader."""
    reader = source_.streamReader(source_.schema())
    expected = to_arrow_schema(source_.schema(), timezone="UTC")
    rows = []
    for partition in cloudpickle.loads(cloudpickle.dumps(partitions)):
        for batch in cloudpickle.loads(cloudpickle.dumps(reader)).read(partition):
            assert batch.schema.equals(expected)
            rows += batch.to_pylist()
    return sorted(rows, key=lambda row: row["number"])


def test_a_stream_has_all_changes_once(instance: sleeper.Instance) -> None:
    source_ = source(instance, maxTransactionsPerTrigger="1", follower="spark")
    stream = source_.streamReader(source_.schema())
    assert stream.getDefaultReadLimit() == ReadMaxFiles(1)
    start = stream.initialOffset()
    first = stream.latestOffset(start, ReadMaxFiles(1))
    second = stream.latestOffset(first, ReadMaxFiles(1))
    assert stream.latestOffset(start, ReadAllAvailable()) == second
    inserts = read(source_, stream.partitions(start, first))
    assert [(r["operation"], r["job"], r["row"]) for r in inserts] == [
        ("insert", "load", {"k": 1, "v": b"a"}),
        ("insert", "load", {"k": 2, "v": None}),
        ("insert", "load", {"k": 20, "v": b"c"}),
    ]
    deletes = read(source_, stream.partitions(first, second))
    assert [(r["operation"], r["region"]) for r in deletes] == [
        ("delete_region", {"k": {"min": 2, "max": 3}}),
        ("delete_region", {"k": {"min": 15, "max": None}}),
    ]
    stream.commit(second)
    stream.stop()
    (follower,) = instance._ports.table("t").state.followers()
    assert follower.position == second["version"]


def test_a_replacement_is_divided_by_leaf_with_one_mark(instance: sleeper.Instance) -> None:
    table = instance.table("t")
    table.restore(2)
    source_ = source(instance, partitionBytes="1")
    stream = source_.streamReader(source_.schema())
    start = {**stream.initialOffset(), "version": 3}
    end = stream.latestOffset(start, ReadAllAvailable())
    partitions = stream.partitions(start, end)
    assert len(partitions) == 3
    rows = read(source_, partitions)
    assert sorted(r["operation"] for r in rows) == ["insert"] * 3 + ["replace"]
    stream.stop()


def test_a_large_change_is_divided(
    instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed_read, "_DIVIDED_BYTES_MIN", 1)
    keys = range(30, 60)
    instance.table("t").ingest(pa.table({"k": keys, "v": [bytes(100)] * len(keys)}))
    source_ = source(instance, partitionBytes="1000")
    stream = source_.streamReader(source_.schema())
    start = {**stream.initialOffset(), "version": 3}
    partitions = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    assert len(partitions) > 1
    assert sorted(r["row"]["k"] for r in read(source_, partitions)) == list(keys)
    stream.stop()


def test_a_new_schema_ends_a_stream(instance: sleeper.Instance) -> None:
    source_ = source(instance)
    stream = source_.streamReader(source_.schema())
    start = stream.initialOffset()
    added = AddField(Field("added", PrimitiveType.LONG, nullable=True))
    change_schema(instance._ports, "t", [added])
    instance.table("t").ingest(pa.table({"k": [5], "v": [b""], "added": [1]}))
    end = stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(InvalidRequestError, match="schema of table 't' has changed: restart"):
        stream.partitions(start, end)
    stream.stop()
    restarted = source(instance).streamReader(source(instance).schema())
    assert len(read(source(instance), restarted.partitions(start, end))) == 6
    restarted.stop()


def test_wrong_options_and_columns_are_refused(instance: sleeper.Instance) -> None:
    for options, message in (
        ({"columns": "k"}, "unknown option 'columns'"),
        ({"maxTransactionsPerTrigger": "0"}, "'maxTransactionsPerTrigger': 0 is less than 1"),
    ):
        wrong = source(instance, **options)
        with pytest.raises(InvalidRequestError, match=message):
            wrong.streamReader(wrong.schema())
    with pytest.raises(InvalidRequestError, match="the declared schema is struct<number:int>"):
        source(instance).streamReader(StructType().add("number", "integer"))
