"""The format `sleeper` as Spark calls it, without a Spark: plans, pickles, batches."""

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

import sleeper
from sleeper.admin.schema import change_schema
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.garbage_collection.service import finish_deletions
from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState
from sleeper.processing.field_changes import AddField
from sleeper.query.distributed import read as distributed_read
from sleeper.schema.model import Field, PrimitiveType
from sleeper.spark.changes import SleeperChangesSource
from sleeper.spark.data_source import SleeperDataSource
from sleeper.storage.location import DataRoot

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "sortKeyFields": [{"name": "s", "type": "StringType"}],
    "valueFields": [
        {"name": "bytes", "type": "ByteArrayType", "nullable": True},
        {"name": "list", "type": {"ListType": {"elementType": "StringType"}}},
        {"name": "map", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}},
        {"name": "float", "type": "FloatType", "nullable": True},
        {"name": "flag", "type": "BooleanType", "nullable": True},
        {"name": "time", "type": "TimestampType", "nullable": True},
        {"name": "day", "type": "DateType", "nullable": True},
        {"name": "money", "type": {"DecimalType": {"precision": 12, "scale": 2}}, "nullable": True},
    ],
}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[sleeper.Instance]:
    with sleeper.create_instance(tmp_path / "instance") as created:
        created.create_table("t", SCHEMA, split_points=[10, 20])
        ingest(created, 0, 30)
        yield created


def ingest(instance: sleeper.Instance, first: int, last: int) -> None:
    table = instance.table("t")
    rows = [
        {"k": k, "s": "é", "list": ["a"], "map": [("x", k)], "bytes": b"\x00"}
        for k in range(first, last)
    ]
    whole = [{name: row.get(name) for name in table.arrow_schema.names} for row in rows]
    table.ingest(pa.Table.from_pylist(whole, schema=table.arrow_schema))


def source(instance: sleeper.Instance, **options: str) -> SleeperDataSource:
    names = {"instance": instance._ports.where, "table": "t"}
    return SleeperDataSource(CaseInsensitiveDict({**names, **options}))


def reader(instance: sleeper.Instance, **options: str) -> tuple[Any, StructType]:
    source_ = source(instance, **options)
    return source_.reader(source_.schema()), source_.schema()


def read(reader: Any, partitions: list[InputPartition]) -> list[pa.RecordBatch]:
    """As executors do, each with a copy of the reader."""
    return [
        batch
        for partition in partitions
        for batch in cloudpickle.loads(cloudpickle.dumps(reader)).read(
            cloudpickle.loads(cloudpickle.dumps(partition))
        )
    ]


def test_batches_have_exactly_spark_s_schema(
    instance: sleeper.Instance,
) -> None:
    table_reader, declaration = reader(instance)
    batches = read(table_reader, table_reader.partitions())
    expected = to_arrow_schema(declaration, timezone="UTC")
    assert all(batch.schema.equals(expected) for batch in batches)
    assert pa.Table.from_batches(batches).column("k").to_pylist() == [*range(30)]
    assert [f.nullable for f in declaration][:3] == [False, False, True]


def test_columns_have_the_requested_order(instance: sleeper.Instance) -> None:
    table_reader, declaration = reader(instance, columns="map,k")
    assert declaration.fieldNames() == ["map", "k"]
    assert read(table_reader, table_reader.partitions())[0].schema.names == ["map", "k"]


def test_an_old_version_has_the_columns_of_its_schema(instance: sleeper.Instance) -> None:
    version = str(instance.table("t").version)
    added = AddField(Field("added", PrimitiveType.LONG, nullable=True))
    change_schema(instance._ports, "t", [added])
    table_reader, declaration = reader(instance, asOf=version)
    assert "added" not in declaration.fieldNames()
    assert sum(b.num_rows for b in read(table_reader, table_reader.partitions())) == 30
    table_reader, declaration = reader(instance)
    assert declaration.fieldNames()[-1] == "added"
    (column, *_) = (b.column("added") for b in read(table_reader, table_reader.partitions()))
    assert column.null_count == len(column)


def test_a_declared_schema_selects_columns(instance: sleeper.Instance) -> None:
    source_ = source(instance)
    requested_schema = StructType().add("day", "date").add("k", "long")
    plan = source_.reader(requested_schema)
    assert read(plan, plan.partitions())[0].schema.names == ["day", "k"]
    with pytest.raises(InvalidRequestError, match="field 'k' is declared as string"):
        source_.reader(StructType().add("k", "string"))
    with pytest.raises(InvalidRequestError, match="other"):
        source_.reader(StructType().add("other", "string"))


def test_each_leaf_in_the_ranges_is_a_partition(instance: sleeper.Instance) -> None:
    table_reader, _ = reader(instance, partitionBytes="1")
    assert len(table_reader.partitions()) == 3
    table_reader, _ = reader(instance, partitionBytes="1", range="[5, 12]")
    assert len(table_reader.partitions()) == 2
    keys = pa.Table.from_batches(read(table_reader, table_reader.partitions())).column("k")
    assert keys.to_pylist() == [*range(5, 12)]


def test_a_large_leaf_is_divided_into_partitions(
    instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed_read, "_DIVIDED_BYTES_MIN", 1)
    table_reader, _ = reader(instance, partitionBytes="500")
    assert len(table_reader.partitions()) > 3
    keys = pa.Table.from_batches(read(table_reader, table_reader.partitions())).column("k")
    assert keys.to_pylist() == [*range(30)]


def test_an_empty_list_of_keys_reads_no_rows(instance: sleeper.Instance) -> None:
    table_reader, _ = reader(instance, keys="[1000]")
    assert table_reader.partitions() == []
    assert read(table_reader, [InputPartition(None)]) == []  # what Spark makes of no partitions


def test_a_reader_keeps_its_version_and_as_of_selects_an_older_one(
    instance: sleeper.Instance,
) -> None:
    table_reader, _ = reader(instance)
    version = instance.table("t").version
    ingest(instance, 100, 105)
    assert sum(b.num_rows for b in read(table_reader, table_reader.partitions())) == 30
    for options, rows in (({}, 35), ({"asOf": str(version)}, 30)):
        table_reader, _ = reader(instance, **options)
        assert sum(b.num_rows for b in read(table_reader, table_reader.partitions())) == rows


def test_the_pickled_reader_does_not_grow_with_the_table(instance: sleeper.Instance) -> None:
    few, many = (reader(instance, partitionBytes="1", **o)[0] for o in ({"keys": "[1]"}, {}))
    assert len(many.partitions()) == 3
    assert len(cloudpickle.dumps(many)) < len(cloudpickle.dumps(few)) + 200


def test_filters_are_not_pushed_down(instance: sleeper.Instance) -> None:
    """Spark refuses a reader that has `pushFilters` of its own while its setting is off."""
    assert reader(instance)[0].pushFilters.__func__ is DataSourceReader.pushFilters


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"table": "other"}, NotFoundError, "other"),
        ({"columns": "k,x"}, InvalidRequestError, "x"),
        ({"asOf": "99"}, InvalidRequestError, "version 99 does not exist yet"),
        ({"follower": "f"}, InvalidRequestError, "unknown option 'follower'"),
    ],
)
def test_invalid_reads_are_refused_during_planning(
    instance: sleeper.Instance, options: dict[str, str], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        reader(instance, **options)


def test_overwriting_a_table_is_refused(instance: sleeper.Instance) -> None:
    source_ = source(instance)
    for writer in (source_.writer, source_.streamWriter):
        with pytest.raises(InvalidRequestError, match=r"instead of mode\('overwrite'\)"):
            writer(source_.schema(), overwrite=True)


def test_mismatched_columns_are_refused_before_a_task_starts(
    instance: sleeper.Instance,
) -> None:
    source_ = source(instance)
    with pytest.raises(InvalidRequestError, match=r"\(DataFrame\): columns .* missing: 's'"):
        source_.writer(StructType().add("k", "long").add("other", "string"), overwrite=False)
    wrong = StructType([f for f in source_.schema() if f.name != "k"]).add("k", "string")
    with pytest.raises(InvalidRequestError, match="field 'k' is string"):
        source_.writer(wrong, overwrite=False)


def test_a_stream_continues_at_its_offset(instance: sleeper.Instance) -> None:
    source_ = source(instance, maxFilesPerTrigger="1", columns="k")
    stream = source_.streamReader(source_.schema())
    assert stream.getDefaultReadLimit() == ReadMaxFiles(1)
    start = stream.initialOffset()
    ingest(instance, 30, 40)
    first = stream.latestOffset(start, ReadMaxFiles(1))
    both = stream.latestOffset(start, ReadAllAvailable())
    assert start["version"] < first["version"] < both["version"]
    for end, rows in ((start, 0), (first, 30), (both, 40)):
        partitions = stream.partitions(start, end)
        assert sum(b.num_rows for b in read(stream_copy(source_), partitions)) == rows
    stream.commit(first)
    stream.stop()
    again = source_.streamReader(source_.schema())
    assert again.latestOffset(first, ReadMaxFiles(1)) == both
    again.stop()


def test_trigger_available_now_stops_at_the_newest_version(instance: sleeper.Instance) -> None:
    source_ = source(instance)
    stream = source_.streamReader(source_.schema())
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    ingest(instance, 30, 40)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert sum(b.num_rows for b in read(stream_copy(source_), stream.partitions(start, end))) == 30
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    stream.stop()


def test_a_stream_from_the_latest_version_has_no_older_rows(instance: sleeper.Instance) -> None:
    source_ = source(instance, startingVersion="latest", follower="f")
    stream = source_.streamReader(source_.schema())
    start = stream.initialOffset()
    ingest(instance, 30, 31)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert sum(b.num_rows for b in read(stream_copy(source_), stream.partitions(start, end))) == 1
    stream.commit(end)
    stream.stop()
    (follower,) = instance._ports.table("t").state.followers()
    assert (follower.name, follower.position) == ("f", end["version"])


def stream_copy(source_: SleeperDataSource) -> Any:
    return source_.streamReader(source_.schema())


def test_a_checkpoint_belongs_to_a_table_id(instance: sleeper.Instance) -> None:
    source_ = source(instance)
    stream = source_.streamReader(source_.schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    stream.stop()
    instance.delete_table("t", now=True)
    instance.create_table("t", SCHEMA)
    ingest(instance, 0, 30)
    another = source_.streamReader(source_.schema())
    for ask in (
        lambda: another.latestOffset(end, ReadAllAvailable()),
        lambda: another.partitions(start, end),
        lambda: another.commit(end),
    ):
        with pytest.raises(InvalidRequestError, match=r"'t' is now .*: it was deleted"):
            ask()
    another.stop()


def delete(instance: sleeper.Instance) -> None:
    instance.delete_table("t", now=True)
    assert finish_deletions(instance._ports) == 1


def test_reading_a_deleted_table_fails_with_the_reason(instance: sleeper.Instance) -> None:
    table_reader, _ = reader(instance)
    pieces = table_reader.partitions()
    stream, executors = stream_copy(source(instance)), stream_copy(source(instance))
    start = stream.initialOffset()
    scans = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    stream.stop()
    delete(instance)
    for item, partitions in ((table_reader, pieces), (executors, scans)):
        with pytest.raises(StateMovedOnError, match="table 't' was deleted"):
            read(item, partitions)
    with pytest.raises(NotFoundError, match="'t'"):
        reader(instance)


def test_a_stream_of_a_deleted_table_fails(
    instance: sleeper.Instance,
) -> None:
    stream = stream_copy(source(instance))
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    instance.delete_table("t", now=True)
    time.sleep(0.6)  # it does not look more often
    with pytest.raises(StateMovedOnError, match="table 't' was deleted"):
        stream.latestOffset(end, ReadAllAvailable())
    stream.stop()


def test_a_write_to_a_deleted_table_fails(
    instance: sleeper.Instance,
) -> None:
    source_ = source(instance)
    writer = source_.writer(source_.schema(), overwrite=False)
    instance.delete_table("t", now=True)
    with pytest.raises(StateMovedOnError, match="table 't' was deleted"):
        writer.commit([])
    (job,) = instance._ports.jobs.tracker.recent(JobKind.INGEST)[:1]
    assert (job.state, job.reasons) == (JobState.FAILED, ("table 't' was deleted",))


def test_a_stream_that_starts_before_a_delete_is_refused(instance: sleeper.Instance) -> None:
    before = instance.table("t").version
    instance.table("t").delete(keys=[[3]], delete_id="erase")
    removal = instance.table("t").version

    def begin(**options: str) -> int:
        source_ = source(instance, **options)
        stream = source_.streamReader(source_.schema())
        try:
            return int(stream.initialOffset()["version"])
        finally:
            stream.stop()

    remedy = f"read the table with asOf={removal}, and stream with startingVersion={removal}; or"
    for version in (0, before):
        with pytest.raises(InvalidRequestError, match=f"after transaction {version}, .*{remedy}"):
            begin(startingVersion=str(version))
        assert begin(startingVersion=str(version), deletedRows="include") == version
    assert begin(startingVersion=str(removal)) == removal
    assert begin(startingVersion="latest") == removal
    with pytest.raises(InvalidRequestError, match="expected refuse or include"):
        begin(deletedRows="yes")
    changes = SleeperChangesSource(CaseInsensitiveDict(source(instance).options))
    stream = changes.streamReader(changes.schema())
    assert stream.initialOffset()["version"] == 0
    stream.stop()


def test_an_executor_that_does_not_see_the_driver_s_folder_refuses_it(tmp_path: Path) -> None:
    folder = tmp_path / "instance"
    pickled = cloudpickle.dumps(DataRoot(folder))
    folder.rmdir()
    reason = f"folder {folder} does not exist on host {socket.gethostname()} "
    with pytest.raises(InvalidRequestError, match=re.escape(reason)):
        cloudpickle.loads(pickled)
    # Nor is it created, where files would be lost.
    assert not folder.exists()
