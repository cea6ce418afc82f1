"""Bulk export: one version of a table, a sorted file for each leaf, the same however often."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.admin.tables import create_table, delete_table
from sleeper.bulk_export import service
from sleeper.bulk_export.service import (
    EXPORT_JOBS,
    BulkExportJob,
    BulkExportResult,
    export_table,
    run_bulk_export_message,
)
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import Message
from sleeper.jobs.status import JobState
from sleeper.opening import create_instance, open_instance
from sleeper.partitions.partition import subtree
from sleeper.processing.model import AgeOff
from sleeper.properties.table import AGGREGATIONS
from sleeper.statestore.transactions.partition_split import SplitPartition
from sleeper.storage.location import DataRoot

pytestmark = pytest.mark.usefixtures("holds_of_reads")

SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "n", "type": "LongType"}],
    }
)
Write = Any


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_instance(tmp_path / "instance", "test")
    opened_instance = open_instance(tmp_path / "instance")
    create_table(opened_instance, "t", SCHEMA, {AGGREGATIONS.name: "sum(n)"}, [100, 200])
    ingest(opened_instance, range(0, 300))
    yield opened_instance
    opened_instance.close()


def ingest(instance: Instance, keys: range) -> None:
    columns = {"k": list(keys), "n": [1] * len(keys)}
    ingest_rows(instance, "t", [pa.RecordBatch.from_pydict(columns)])


def read_export(result: BulkExportResult) -> list[list[tuple[int, int]]]:
    """The rows of each file, in order of their first."""
    files = sorted(Path(result.location).glob("*.parquet"))
    rows = [[tuple(row.values()) for row in pq.read_table(f).to_pylist()] for f in files]
    return sorted(rows)  # type: ignore[arg-type]


def message(body: dict[str, Any]) -> Message:
    return Message("m1", json.dumps(body), "receipt", 1, 0)


def test_each_leaf_is_a_sorted_file_of_aggregated_rows(instance: Instance, tmp_path: Path) -> None:
    ingest(instance, range(50, 150))
    result = export_table(instance, "t", tmp_path / "out", "e1")
    assert (result.rows, result.files) == (300, 3)
    actual = read_export(result)
    assert [[k for k, _ in rows] for rows in actual] == [
        list(range(start, start + 100)) for start in (0, 100, 200)
    ]
    assert sum(n for rows in actual for _, n in rows) == 400
    ref = instance.tables.index.find("t")
    assert Path(result.location) == tmp_path / "out" / ref.id / "e1"
    assert list(instance.tables.state(ref.id).holds.all()) == []


def test_a_repeated_export_changes_nothing(instance: Instance) -> None:
    body = {"exportId": "e1", "tableName": "t", "more": 1}
    first = run_bulk_export_message(instance, message(body))
    ingest(instance, range(0, 300))
    again = run_bulk_export_message(instance, message(body))
    assert (again.done_before, again.version, again.rows) == (True, first.version, 300)
    assert sum(n for rows in read_export(again) for _, n in rows) == 300
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_EXPORT)
    assert (job.state, len(job.runs)) == (JobState.COMMITTED, 2)
    assert {run.rows_written for run in job.runs} == {300, None}


def test_a_damaged_file_is_never_exported(instance: Instance) -> None:
    ref = instance.tables.index.find("t")
    with instance.tables.state(ref.id).reading() as state:
        file = next(state.files.all())
    path = Path(instance.storage.root.url_of(file.path))
    content = bytearray(path.read_bytes())
    content[-200] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{file.path} is damaged"):
        export_table(instance, "t", export_id="e1")
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_EXPORT)
    assert job.state is JobState.FAILED
    assert not list(Path(instance.where).rglob("_SUCCESS"))


@pytest.mark.parametrize("dies_at", [0, 1, 2])
def test_a_run_that_died_is_finished_at_the_version_that_it_began_with(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    output = 0
    write_client_parquet = service.write_client_parquet

    def torn(schema: pa.Schema, rows: Write, sink: BinaryIO) -> int:
        nonlocal output
        output += 1
        if output > dies_at:
            sink.write(b"PAR1 and then")
            raise UnavailableError("the disk is full")
        return write_client_parquet(schema, rows, sink)

    with monkeypatch.context() as context:
        context.setattr(service, "write_client_parquet", torn)
        with pytest.raises(UnavailableError, match="the disk is full"):
            export_table(instance, "t", export_id="e1")
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_EXPORT)
    assert job.state is JobState.FAILED
    ingest(instance, range(0, 300))
    split_last_leaf(instance)
    result = export_table(instance, "t", export_id="e1")
    assert not result.done_before
    assert [len(rows) for rows in read_export(result)] == [100, 100, 100]
    assert sum(n for rows in read_export(result) for _, n in rows) == 300
    assert [p.name for p in Path(result.location).iterdir() if "unfinished" in p.name] == []


def split_last_leaf(instance: Instance) -> None:
    store = instance.table("t").state
    with store.reading() as state:
        leaf = list(state.partitions.leaves())[-1]
    store.commit_or_raise(SplitPartition(leaf.id, tuple(subtree(leaf, 0, [250]))))


def test_of_two_runs_at_once_both_come_to_the_same(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_export = service.write_export
    rivals: list[BulkExportResult] = []

    def slow(*arguments: Any) -> BulkExportResult:
        monkeypatch.setattr(service, "write_export", write_export)
        ingest(instance, range(0, 300))
        rivals.append(export_table(instance, "t", export_id="e1"))
        return write_export(*arguments)

    monkeypatch.setattr(service, "write_export", slow)
    result = export_table(instance, "t", export_id="e1")
    assert rivals == [result]
    assert sum(n for rows in read_export(result) for _, n in rows) == 300


def test_deleting_a_table_fails_its_export_with_the_reason(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_export = service.write_export

    def late(*arguments: Any) -> BulkExportResult:
        delete_table(instance, "t")
        shutil.rmtree(Path(instance.storage.root.url_of(f"{ref.id}/data")))
        return write_export(*arguments)

    ref = instance.tables.index.find("t")
    monkeypatch.setattr(service, "write_export", late)
    with pytest.raises(StateMovedOnError, match="table 't' was deleted"):
        export_table(instance, "t", export_id="e1")
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_EXPORT)
    assert (job.state, job.reasons) == (JobState.FAILED, ("table 't' was deleted",))


def test_an_export_of_a_collected_version_is_refused(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> BulkExportResult:
        raise UnavailableError("later")

    with monkeypatch.context() as context:
        context.setattr(service, "write_export", fails)
        with pytest.raises(UnavailableError):
            export_table(instance, "t", export_id="e1")
    ref = instance.tables.index.find("t")
    root = DataRoot(Path(instance.where) / "exports")
    plan = json.loads(root.read(f"{ref.id}/e1/_plan.json"))
    with root.replacing(f"{ref.id}/e1/_plan.json") as sink:
        sink.write(json.dumps(plan | {"version": 0}).encode())
    with pytest.raises(InvalidRequestError, match="started at version 0, which is not kept"):
        export_table(instance, "t", export_id="e1")


def test_an_empty_table_exports_files_without_rows(instance: Instance, tmp_path: Path) -> None:
    create_table(instance, "empty", SCHEMA)
    result = export_table(instance, "empty", tmp_path)
    assert (result.rows, read_export(result)) == (0, [[]])


def test_an_unknown_table_is_refused_and_tracked(instance: Instance) -> None:
    with pytest.raises(NotFoundError):
        export_table(instance, "other")
    with pytest.raises(InvalidRequestError, match="other"):
        run_bulk_export_message(instance, message({"exportId": "e", "tableName": "other"}))
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_EXPORT)
    assert (job.job_id, job.state) == ("e", JobState.REJECTED)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("no JSON", "is not JSON"),
        ("[]", r"it is \[\] \(expected an object\)"),
        ('{"exportId":"e"}', '"tableName" or "tableId" is missing'),
        ('{"exportId":[1],"tableName":"t"}', r'"exportId" is \[1\] \(expected text\)'),
        ('{"exportId":"../up","tableName":"t"}', "export id '../up'"),
        ('{"exportId":".hidden","tableName":"t"}', "export id '.hidden'"),
        ('{"exportId":"e","tableName":"t","filters":"sum(n)"}', '"filters": unknown filter'),
        ('{"exportId":"e","tableName":"t","sqlQuery":"SELECT 1"}', "'sqlQuery' is not supported"),
        ('{"exportId":"e","tableName":"t","regions":[{}]}', "'regions' is not supported"),
    ],
)
def test_an_invalid_message_is_rejected_under_its_own_id(
    instance: Instance, body: str, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        run_bulk_export_message(instance, Message("m1", body, "receipt", 1, 0))
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_EXPORT)
    assert (job.job_id, job.state) == ("m1", JobState.REJECTED)


def test_messages_round_trip() -> None:
    for filters in ((), (AgeOff("at", 1000),)):
        job = BulkExportJob("e1", table_id="0a0b0c0d", filters=filters)
        assert EXPORT_JOBS.parse(EXPORT_JOBS.format(job), "m") == job
    assert EXPORT_JOBS.parse('{"tableName":"t"}', "m") == BulkExportJob("m", "t")


@pytest.fixture
def aged(instance: Instance) -> Instance:
    """A table of three rows: now, a day ago, and two days ago."""
    schema = {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "at", "type": "LongType"}],
    }
    create_table(instance, "aged", json.dumps(schema))
    times = [instance.clock() - days * _DAY_MS for days in range(3)]
    rows = pa.RecordBatch.from_pydict({"k": [0, 1, 2], "at": times})
    ingest_rows(instance, "aged", [rows])
    return instance


_DAY_MS = 24 * 3600 * 1000


def keys_of(result: BulkExportResult) -> list[int]:
    return [key for rows in read_export(result) for key, _ in rows]


def test_filters_of_a_message_remove_rows_besides_those_of_the_table(aged: Instance) -> None:
    def export(export_id: str, **members: str) -> BulkExportResult:
        body = {"exportId": export_id, "tableName": "aged", **members}
        return run_bulk_export_message(aged, message(body))

    assert keys_of(export("all", filters="")) == [0, 1, 2]
    text = f"ageOff(at,{_DAY_MS * 3 // 2})"
    result = export("e1", filters=text)
    assert (keys_of(result), result.rows) == ([0, 1], 2)
    assert export("e1", filters=text).done_before
    for other in ("", f"ageOff(at,{_DAY_MS // 2})"):
        with pytest.raises(InvalidRequestError, match=r"expected 'ageOff.*or another id"):
            export("e1", filters=other)
    (job,) = (job for job in aged.jobs.tracker.recent(JobKind.BULK_EXPORT) if job.job_id == "e1")
    assert job.state is JobState.COMMITTED
    with pytest.raises(InvalidRequestError, match="'when'"):
        export("e2", filters="ageOff(when,1)")


def test_an_unfinished_export_keeps_its_filters(
    aged: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> BulkExportResult:
        raise UnavailableError("later")

    text = f"ageOff(at,{_DAY_MS // 2})"
    with monkeypatch.context() as context:
        context.setattr(service, "write_export", fails)
        with pytest.raises(UnavailableError):
            export_table(aged, "aged", export_id="e1", filters=text)
    with pytest.raises(InvalidRequestError, match="or another id"):
        export_table(aged, "aged", export_id="e1")
    assert keys_of(export_table(aged, "aged", export_id="e1", filters=text)) == [0]
