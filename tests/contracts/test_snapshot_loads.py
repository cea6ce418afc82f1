"""Contract of state stores: loads, holds and expiry of a snapshot table by several processes."""

from pathlib import Path

import pytest
from obstore.store import ObjectStore

from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.garbage_collection.collection import collect_garbage
from sleeper.garbage_collection.snapshot_versions import VersionPolicy, expire_versions
from sleeper.partitions.partition import tree_from_split_points
from sleeper.properties.deployed import TRANSACTION_LOG_TABLE
from sleeper.properties.values import InstanceProperties, TableProperties
from sleeper.runs.commit import begin_run, commit_files
from sleeper.schema.model import schema_to_json
from sleeper.statestore.holds import Hold
from sleeper.statestore.log import LogEntry
from sleeper.statestore.reading.snapshot_queries import SnapshotVersion
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.transactions.transaction import Status
from sleeper.tables import TableId
from tests.servers.dynoxide import DynamoServer
from tests.tables.state_table import ROOT, SCHEMA, StateTable, data_file

NEWEST = VersionPolicy()


@pytest.fixture(params=["embedded", "sqlite", "dynoxide"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> StateTable:
    mode, make_log = ("embedded" if request.param == "embedded" else "remote"), None
    if request.param == "dynoxide":
        server: DynamoServer = request.getfixturevalue("dynamo_server")
        tables = server.make_tables()

        def make_log(objects: ObjectStore) -> DynamoTransactionLog:
            name = tables.name(TRANSACTION_LOG_TABLE)
            return DynamoTransactionLog(tables.client, name, "table", objects)

    table = StateTable(tmp_path, mode, make_log=make_log)
    tree = tuple(tree_from_split_points(SCHEMA, ()))
    initialise = InitialiseTable(schema_to_json(SCHEMA), tree, table_type="snapshot")
    table.store.commit_or_raise(initialise)
    return table


def begin(table: StateTable, job: str, store: StateStore | None = None) -> AddFiles:
    """Begins a load, and returns the transaction that publishes it."""
    start = begin_run(store or table.store, table.clock, job)
    return start.commit_of(job, (NewFile(data_file(job), ((ROOT, 10),)),), job)


def load(table: StateTable, job: str) -> int:
    number = table.commit(begin(table, job)).number
    assert number is not None
    return number


def paths(store: StateStore, version: int | None = None) -> list[str]:
    with store.reading(version) as state:
        return sorted(file.path for file in state.files.all())


def versions(store: StateStore) -> list[SnapshotVersion]:
    with store.reading() as state:
        return list(state.snapshots.versions())


def collect(table: StateTable) -> list[str]:
    """Returns the data files that a collection deletes."""
    properties = TableProperties({"sleeper.table.gc.delay.minutes": "0"}, InstanceProperties({}))
    deleted: list[str] = []
    collect_garbage(TableId("table"), table.store, properties, deleted.extend, table.clock)
    return sorted(path for path in deleted if "." not in path)


def test_a_load_is_refused_if_a_later_one_publishes_during_its_commit(table: StateTable) -> None:
    other = table.another_store()
    early, late = begin(table, "early"), begin(table, "late", other)
    if table.mode == "embedded":
        other.commit(late)
    else:
        table.log.before_next_append = lambda: other.commit(late)
    with pytest.raises(InvalidRequestError, match="load late, which began later"):
        commit_files(table.store, early)
    assert paths(table.store) == paths(other) == ["late"]
    assert [version.job for version in versions(table.store)] == ["late"]


def test_a_load_with_a_lost_response_is_published_once(
    table: StateTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.retries.sleep", lambda _: None)
    append, lost = table.log.append, iter([True, False, True, False, False])

    def append_and_lose_response(entry: LogEntry) -> None:
        append(entry)
        if next(lost):
            raise UnavailableError("no answer")

    monkeypatch.setattr(table.log, "append", append_and_lose_response)
    publish = begin(table, "a")
    assert commit_files(table.store, publish).number == 3
    assert commit_files(table.store, publish).status is Status.ALREADY_DONE
    other = table.another_store()
    assert begin(table, "a", other) == publish
    (version,) = versions(other)
    assert (version.number, version.begun, version.job) == (3, 2, "a")
    assert paths(other) == ["a"]


def test_a_hold_during_an_expiry_keeps_its_files(table: StateTable) -> None:
    first, second = load(table, "a"), load(table, "b")
    third = load(table, "c")
    other = table.another_store()
    hold = Hold("h", "a reader", first, table.clock.now_ms + 60_000)
    table.log.before_next_append = lambda: other.holds.take(hold)
    report = expire_versions(table.store, NEWEST, table.clock)
    # The expiry did not see the hold, but the collection does: a read that began goes on.
    assert [each.version.number for each in report.expired] == [second, first]
    assert collect(table) == ["b"]
    for version in (first, second):
        with pytest.raises(InvalidRequestError, match=f"snapshot version {version} expired"):
            paths(other, version)
    other.holds.release(["h"])
    assert collect(table) == ["a"]
    with pytest.raises(InvalidRequestError, match="no longer readable"):
        paths(other, first)
    assert [version.number for version in versions(other)] == [third]


def test_a_floor_during_an_expiry_keeps_the_versions_from_its_own_on(table: StateTable) -> None:
    first, second, third = load(table, "a"), load(table, "b"), load(table, "c")
    load(table, "d")
    other = table.another_store()
    table.log.before_next_append = lambda: other.holds.write_floor("f", "reads", second, 60)
    report = expire_versions(table.store, NEWEST, table.clock)
    assert [each.version.number for each in report.expired] == [third, second, first]
    assert collect(table) == ["a"]
    other.holds.release(["f"])
    assert collect(table) == ["b", "c"]


def test_a_hold_before_an_expiry_keeps_its_version(table: StateTable) -> None:
    first, second = load(table, "a"), load(table, "b")
    load(table, "c")
    table.another_store().holds.take(Hold("h", "a reader", first, table.clock.now_ms + 60_000))
    report = expire_versions(table.store, NEWEST, table.clock)
    assert [each.version.number for each in report.expired] == [second]
    assert [each.version.number for each in report.held] == [first]
