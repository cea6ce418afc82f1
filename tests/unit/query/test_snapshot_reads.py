"""Reads of a snapshot table whose version expires meanwhile, and whose files are collected."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.admin.clone import clone_table
from sleeper.admin.properties import set_table_properties
from sleeper.admin.tables import create_table
from sleeper.admin.versions import restore_table
from sleeper.bulk_export import service as bulk_export
from sleeper.deletion.keys import delete_rows
from sleeper.errors import InvalidRequestError
from sleeper.garbage_collection.service import collect_table, expire_table_versions
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.queue import Message
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.partitions.region import Range, Region
from sleeper.purging.report import ObjectState, PurgeReport
from sleeper.purging.service import purge_table
from sleeper.query import run
from sleeper.query.hold import VersionHold, take_shared_hold
from sleeper.query.request import Query
from sleeper.query.result import QueryResult
from sleeper.query.service import open_query
from sleeper.query_service.run import run_subquery
from sleeper.query_service.service import plan_query_message

pytestmark = pytest.mark.usefixtures("holds_of_reads")

SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "valueFields": [{"name": "load", "type": "LongType"}]}'
)
ROWS = 40_000
"""More than a batch."""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    instance = open_local_instance(tmp_path / "instance")
    properties = {"sleeper.table.type": "snapshot", "sleeper.table.gc.delay.minutes": "0"}
    create_table(instance, "t", SCHEMA, properties)
    yield instance
    instance.close()


def load(instance: Instance, number: int, rows: int = ROWS, table: str = "t") -> int:
    keys, loads = pa.array(range(rows), pa.int64()), pa.array([number] * rows, pa.int64())
    batch = pa.record_batch({"k": keys, "load": loads})
    result = ingest_rows(instance, table, [batch], f"load-{table}-{number}")
    assert result.number is not None
    return result.number


def replace_and_collect(instance: Instance, number: int) -> int:
    """Loads the table again, and deletes what the version before needs."""
    load(instance, number)
    expire_table_versions(instance, "t")
    return collect_table(instance, "t").files


def loads(result: QueryResult) -> list[tuple[int, int]]:
    """Returns the numbers of the loads of the rows, and how often each is there."""
    counts = result.read_all()["load"].value_counts()
    return [(each["values"].as_py(), each["counts"].as_py()) for each in counts]


def holds(instance: Instance) -> list[int]:
    return [hold.version for hold in instance.table("t").state.holds.all()]


def test_a_read_of_a_leaf_keeps_its_version_from_the_first_batch(instance: Instance) -> None:
    first = load(instance, 1)
    with open_query(instance, "t", Query()) as result:
        assert holds(instance) == [first]
        begun = next(result)
        assert replace_and_collect(instance, 2) == 0
        assert begun.num_rows + sum(batch.num_rows for batch in result) == ROWS
    assert holds(instance) == []
    expire_table_versions(instance, "t")
    assert collect_table(instance, "t").files == 1
    assert loads(open_query(instance, "t", Query())) == [(2, ROWS)]


def test_a_read_of_one_batch_takes_no_hold(instance: Instance) -> None:
    first = load(instance, 1, rows=10)
    with open_query(instance, "t", Query()) as result:
        assert holds(instance) == []
        replace_and_collect(instance, 2)
        assert loads(result) == [(1, 10)]
    with pytest.raises(InvalidRequestError, match=f"version {first} is no longer readable"):
        open_query(instance, "t", Query(version=first))


@pytest.mark.parametrize("step", ["plan_with_filters", "read_rows"])
def test_a_read_restarts_if_its_version_is_collected_before_the_first_batch(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    first = load(instance, 1)
    original = getattr(run, step)
    attempts: list[int] = []

    def replace_after(*arguments: Any, **more: Any) -> Any:
        attempts.append(len(attempts) + 1)
        result = original(*arguments, **more)
        if len(attempts) == 1:
            if step == "read_rows":  # the first batches are read before the hold
                result = iter(list(result))
            replace_and_collect(instance, 2)
        return result

    monkeypatch.setattr(run, step, replace_after)
    assert loads(open_query(instance, "t", Query())) == [(2, ROWS)]
    assert attempts == [1, 2]
    attempts.clear()
    with pytest.raises(InvalidRequestError, match=f"version {first} is no longer readable"):
        open_query(instance, "t", Query(version=first))


def test_a_shared_hold_serves_the_reads_of_its_version_only(instance: Instance) -> None:
    first = load(instance, 1, rows=1)
    store, clock = instance.table("t").state, instance.clock
    begun = take_shared_hold(store, first, 60, clock, "reader")
    assert take_shared_hold(store, first, 60, clock, "reader") == begun
    second = load(instance, 2, rows=1)
    take_shared_hold(store, second, 60, clock, "reader")
    assert holds(instance) == [first, second]
    load(instance, 3, rows=1)
    assert expire_table_versions(instance, "t").expired == ()


def test_a_clone_of_the_table_before_its_first_load_has_no_snapshot(instance: Instance) -> None:
    load(instance, 1, rows=1)
    load(instance, 2, rows=1)
    clone_table(instance, "t", "empty", 1)
    with pytest.raises(InvalidRequestError, match="no snapshot yet"):
        open_query(instance, "empty", Query())
    load(instance, 3, rows=2, table="empty")
    assert loads(open_query(instance, "empty", Query())) == [(3, 2)]


def test_a_restore_before_the_first_load_is_refused(instance: Instance) -> None:
    for version in (1, None):
        with pytest.raises(InvalidRequestError, match="no snapshot yet"):
            restore_table(instance, "t", version or 1)
    load(instance, 1, rows=1)
    with pytest.raises(InvalidRequestError, match="no snapshot yet"):
        restore_table(instance, "t", 1)


@pytest.mark.parametrize("retention", ["", "7d"])
def test_a_purge_waits_for_the_expiry_of_the_versions_with_the_rows(
    instance: Instance, retention: str
) -> None:
    set_table_properties(instance, "t", {"sleeper.table.history.retention": retention})
    first = load(instance, 1, rows=3)
    delete_rows(instance, "t", [Region((Range(1, 2),))])
    kept = kept_reasons(purge_table(instance, "t"))
    assert {f"snapshot version {first}, until a load" in each for each in kept} == {True}
    assert loads(open_query(instance, "t", Query())) == [(1, 2)]
    load(instance, 2, rows=3)
    report = purge_table(instance, "t")
    assert report.is_complete == (not retention)
    assert kept_reasons(report) == ({"sleeper.table.history.retention"} if retention else set())


def kept_reasons(report: PurgeReport) -> set[str]:
    return {each.reason or "" for each in report.objects if each.state is ObjectState.KEPT}


def test_an_export_begins_again_if_its_version_expires_before_its_hold(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(instance, 1, rows=3)
    original = bulk_export._make_hold
    attempts: list[int] = []

    def replace_before(table: OpenTable, version: int, *arguments: Any) -> VersionHold:
        attempts.append(version)
        if len(attempts) == 1:
            replace_and_collect(instance, 2)
        return original(table, version, *arguments)

    monkeypatch.setattr(bulk_export, "_make_hold", replace_before)
    result = bulk_export.export_table(instance, "t", str(tmp_path / "export"))
    assert (result.version, result.rows) == (attempts[1], ROWS)
    assert holds(instance) == []


def test_a_query_by_message_keeps_its_version_from_its_plan(instance: Instance) -> None:
    first = load(instance, 1, rows=3)
    body = json.dumps({"queryId": "q", "type": "Query", "tableName": "t", "regions": [{}]})
    subquery = plan_query_message(instance, Message("m", body, "receipt", 1, 0))
    assert subquery is not None
    assert replace_and_collect(instance, 2) == 0
    assert holds(instance) == [first]
    assert run_subquery(instance, subquery.message, 1, held=False) == 3
