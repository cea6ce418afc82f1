"""Restore, undo and reinitialise through the Python API."""

import pyarrow as pa
import pytest

import sleeper
from sleeper.admin.versions import restore_table, undo_job
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError, UnavailableError
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.restore import RestoreVersion
from sleeper.statestore.transactions.transaction import Outcome, Transaction
from tests.tables.opened import KEY_AND_VALUE, compact, read_keys


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    properties = {"sleeper.table.compaction.files.batch.size": "2"}
    return instance.create_table("rows", KEY_AND_VALUE, properties, split_points=[50])


def ingest(table: sleeper.Table, keys: range, job_id: str | None = None) -> int:
    rows = pa.table({"key": list(keys), "value": ["v"] * len(keys)})
    number = table.ingest(rows, job_id).number
    assert number is not None
    return number


def test_a_restored_version_is_read_and_compacted_like_any_other(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    first = ingest(table, range(40, 60))
    table.delete(ranges=[(50, None)])
    ingest(table, range(10))
    compact(instance)
    newest = read_keys(table)
    restored = table.restore(first)
    assert (restored.version, restored.already_done) == (first, False)
    assert read_keys(table) == list(range(40, 60))
    assert read_keys(table, restored.number) == list(range(40, 60))
    assert restored.number is not None
    assert read_keys(table, restored.number - 1) == newest
    ingest(table, range(55, 57))
    compact(instance)
    assert read_keys(table) == sorted([*range(40, 60), 55, 56])


def test_a_version_is_restored_by_time(table: sleeper.Table) -> None:
    number = ingest(table, range(3))
    change = table.restore("0s")
    assert (change.version, change.number, change.already_done) == (number, None, True)
    table.delete(ranges=[(None, None)])
    by_age = restore_table(table._instance, "rows", 2, "r")
    assert read_keys(table) == [0, 1, 2]
    again = table.restore("0s", "r")
    assert (again.already_done, again.number) == (True, by_age.number)
    with pytest.raises(InvalidRequestError, match="did not exist"):
        table.restore("2020-01-01")


@pytest.mark.parametrize(
    ("to", "reason"),
    [(9, "does not exist yet"), (0, "expected a transaction number"), ("x", "as of 'x'")],
)
def test_invalid_versions_are_refused(table: sleeper.Table, to: int | str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        table.restore(to)
    assert table.version == 1


def test_ids_are_checked_and_used_once(table: sleeper.Table) -> None:
    ingest(table, range(3))
    first = table.restore(1, "r")
    assert table.restore(1, "r").number == first.number
    with pytest.raises(ConflictError, match="other content"):
        table.restore(2, "r")
    with pytest.raises(InvalidRequestError, match="invalid id of a request: 'a\\\\n'"):
        table.reinitialise("a\n")
    emptied = table.reinitialise("e")
    ingest(table, range(2))
    assert table.reinitialise("e").number == emptied.number
    assert read_keys(table) == [0, 1]


def test_an_unconfirmed_restore_names_its_id(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(table, range(3))
    commit = StateStore.commit

    def lose_response(self: StateStore, *transactions: Transaction) -> list[Outcome]:
        commit(self, *transactions)
        raise UnavailableError("the response was lost")

    with monkeypatch.context() as patched:
        patched.setattr(StateStore, "commit", lose_response)
        with pytest.raises(UnavailableError, match=r"repeating it with the id '[0-9a-f]{32}'"):
            table.restore(1)
    assert read_keys(table) == []
    assert table.history(1)[0].kind == RestoreVersion.kind


def test_an_undone_job_leaves_the_others(instance: sleeper.Instance, table: sleeper.Table) -> None:
    ingest(table, range(0, 100, 2))
    ingest(table, range(1, 100, 2), "odd")
    undone = table.undo("odd")
    assert undone.number == table.version
    assert read_keys(table) == list(range(0, 100, 2))
    assert table.undo("odd").number is None
    assert table.ingest(pa.table({"key": [1], "value": ["v"]}), "odd").done_before


def test_a_merged_job_is_not_undone_and_the_error_names_the_version_before(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    before = ingest(table, range(3))
    ingest(table, range(3, 6), "load")
    compact(instance)
    with pytest.raises(
        InvalidRequestError,
        match=rf"merged rows of job load, transaction {before + 1}, with others; "
        rf"sleeper table restore rows --to {before} restores",
    ):
        table.undo("load")
    table.restore(before)
    assert read_keys(table) == [0, 1, 2]


def test_the_table_of_a_job_is_found(instance: sleeper.Instance, table: sleeper.Table) -> None:
    other = instance.create_table("other", KEY_AND_VALUE)
    ingest(other, range(3), "load")
    assert undo_job(instance._ports, "load").table == "other"
    with pytest.raises(NotFoundError, match="no table has an ingest or import with the id 'none'"):
        undo_job(instance._ports, "none")
    with pytest.raises(NotFoundError, match="table 'rows' has no ingest"):
        undo_job(instance._ports, "load", "rows")
    ingest(other, range(3), "both")
    ingest(table, range(3), "both")
    with pytest.raises(InvalidRequestError, match="several tables: other, rows"):
        undo_job(instance._ports, "both")


def test_a_reinitialised_table_is_empty_and_keeps_its_partitions(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    number = ingest(table, range(100))
    table.reinitialise()
    assert read_keys(table) == []
    assert instance.sql("SELECT count(*) AS n FROM rows").to_arrow()["n"].to_pylist() == [0]
    with instance._ports.table("rows").state.reading() as state:
        assert len(list(state.partitions.leaves())) == 2
    table.restore(number)
    assert read_keys(table) == list(range(100))


def leaf_starts(table: sleeper.Table) -> list[object]:
    with table._instance.table("rows").state.reading() as state:
        return [leaf.region.ranges[0].min for leaf in state.partitions.leaves()][1:]


def test_split_points_are_added_to_a_reinitialised_table(table: sleeper.Table) -> None:
    number = ingest(table, range(100))
    with pytest.raises(InvalidRequestError, match="ascending order: 1 follows 2"):
        table.reinitialise(split_points=[2, 1])
    with pytest.raises(InvalidRequestError, match="'x'"):
        table.reinitialise(split_points=["x"])
    assert read_keys(table) == list(range(100))
    table.reinitialise("e", split_points=[10, 50, 70])
    assert leaf_starts(table) == [10, 50, 70]
    table.reinitialise("e", split_points=[10, 50, 80])
    assert leaf_starts(table) == [10, 50, 70, 80]
    points = list(range(100, 1_000))
    table.reinitialise(split_points=points)
    assert leaf_starts(table) == [10, 50, 70, 80, *points]
    table.restore(number)
    assert read_keys(table) == list(range(100))
