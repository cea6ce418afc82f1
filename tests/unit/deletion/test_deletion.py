"""Deletes through the Python API: every reader leaves out the rows, and nothing else."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.compaction.plan import compact_table
from sleeper.datafiles.merge.deletes import DeletedRows
from sleeper.errors import ConflictError, DataError, InvalidRequestError, UnavailableError
from sleeper.garbage_collection.service import collect_table
from sleeper.partitions.region import Range, Region
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.transaction import Outcome, Transaction
from tests.older_formats import make_format_3
from tests.tables.opened import KEY_AND_VALUE, compact, read_keys, run_compaction_jobs


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    properties = {"sleeper.table.compaction.files.batch.size": "2"}
    table = instance.create_table("rows", KEY_AND_VALUE, properties, split_points=[50])
    ingest(table, range(100), "first")
    return table


def ingest(table: sleeper.Table, keys: range, value: str) -> None:
    table.ingest(pa.table({"key": list(keys), "value": [value] * len(keys)}))


def count(instance: sleeper.Instance) -> int:
    return instance.sql("SELECT count(*) AS n FROM rows").to_arrow()["n"][0].as_py()


def test_deleted_keys_and_ranges_are_not_returned(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    table.delete(keys=[[3], [77]], ranges=[(10, 20), (90, None)])
    expected = [k for k in range(90) if k not in (3, 77) and not 10 <= k < 20]
    assert read_keys(table) == expected
    assert count(instance) == len(expected)
    assert not table.query(keys=[[3]]).to_arrow().num_rows
    assert table.query(keys=[[3], [4]]).to_arrow()["key"].to_pylist() == [4]
    selected = instance.sql("SELECT key FROM rows WHERE key BETWEEN 2 AND 4 ORDER BY key")
    assert selected.to_arrow()["key"].to_pylist() == [2, 4]


def test_rows_committed_after_the_delete_are_kept(table: sleeper.Table) -> None:
    table.delete(ranges=[(0, 10)])
    ingest(table, range(5, 8), "second")
    assert read_keys(table) == [5, 6, 7, *range(10, 100)]
    assert table.query(keys=[[5]]).to_arrow()["value"].to_pylist() == ["second"]


def test_earlier_versions_still_have_the_rows(table: sleeper.Table) -> None:
    before = table.version
    deleted = table.delete(ranges=[(None, None)])
    assert read_keys(table) == []
    assert read_keys(table, before) == list(range(100))
    assert deleted.number == before + 1


def test_a_compaction_removes_the_rows_and_keeps_the_answer(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    ingest(table, range(0, 100, 3), "second")
    table.delete(ranges=[(0, 40)])
    ingest(table, range(0, 10, 5), "third")
    expected = read_keys(table)
    assert compact(instance) == 2
    assert read_keys(table) == expected
    with instance._ports.table("rows").state.reading() as state:
        assert sum(file.rows for file in state.files.all()) == len(expected)


def test_a_job_assigned_before_a_delete_leaves_the_delete_to_its_output(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    ingest(table, range(100), "second")
    compact_table(instance._ports, "rows", True)
    table.delete(ranges=[(0, 50)])
    run_compaction_jobs(instance._ports)
    assert read_keys(table) == [k for k in range(50, 100) for _ in range(2)]
    ingest(table, range(1), "third")
    compact(instance)
    assert read_keys(table) == [0, *(k for k in range(50, 100) for _ in range(2))]


@pytest.mark.parametrize("rows", [100, 30_000], ids=["batches", "engine"])
def test_a_compaction_that_loses_a_row_besides_the_deleted_ones_fails(
    instance: sleeper.Instance, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = instance.create_table("whole", KEY_AND_VALUE)
    ingest(table, range(rows), "first")
    table.delete(ranges=[(0, 10), (20, 21)])
    keep = DeletedRows.keep

    def lose_the_last_row(deleted: DeletedRows, *columns: pa.Array, **on_dropped: Any) -> pa.Array:
        kept = keep(deleted, *columns, **on_dropped)
        return pa.concat_arrays([kept.slice(0, len(kept) - 1), pa.array([False])])

    monkeypatch.setattr(DeletedRows, "keep", lose_the_last_row)
    with pytest.raises(DataError, match=rf"rows and 11 deleted or replaced \(expected {rows}\)"):
        compact(instance, "whole")


@pytest.mark.parametrize("merge_files_max", [2, 64])
def test_the_rows_of_a_compaction_with_deletes_are_counted(
    tmp_path: Path, merge_files_max: int
) -> None:
    limits = {"sleeper.merge.files.max": str(merge_files_max)}
    with sleeper.create_instance(tmp_path / "instance", limits) as instance:
        table = instance.create_table("rows", KEY_AND_VALUE)
        for start in range(3):
            ingest(table, range(start, 60_000, 3), "value")
            table.delete(keys=[[k] for k in range(0, 60_000, 5_000)], ranges=[(100, 130), (7, 8)])
        expected = read_keys(table)
        assert compact(instance) == 1
        assert read_keys(table) == expected


def test_a_full_compaction_rewrites_a_file_alone_in_its_leaf(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    assert compact(instance) == 0
    table.delete(keys=[[3], [70]])
    assert compact(instance) == 2
    with instance._ports.table("rows").state.reading() as state:
        assert [file.rows for file in state.files.all()] == [49, 49]
    assert compact(instance) == 0
    table.delete(ranges=[(None, 50)])
    assert compact(instance) == 1
    assert read_keys(table) == [k for k in range(50, 100) if k != 70]


def test_a_thousand_deletes_are_evaluated_by_a_filter(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    for start in range(0, 100, 10):
        table.delete(keys=[[start], [start + 5]])
    expected = [k for k in range(100) if k % 5]
    assert read_keys(table) == expected
    assert count(instance) == len(expected)
    many = [[k] for k in range(100)]
    assert table.query(keys=many).to_arrow()["key"].to_pylist() == expected
    ingest(table, range(100), "second")
    again = sorted([*expected, *range(100)])
    assert read_keys(table) == again
    compact(instance)
    assert read_keys(table) == again


def test_a_repeated_delete_changes_nothing(table: sleeper.Table) -> None:
    first = table.delete(ranges=[(0, 10)], delete_id="once")
    ingest(table, range(10), "second")
    again = table.delete(ranges=[(0, 10)], delete_id="once")
    assert (again.already_done, again.number) == (True, first.number)
    assert read_keys(table) == list(range(100))
    with pytest.raises(ConflictError, match="once"):
        table.delete(ranges=[(0, 11)], delete_id="once")


def test_an_unconfirmed_delete_names_the_id_to_repeat_it_with(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = StateStore.commit

    def commit_and_lose_the_answer(state: StateStore, *transactions: Transaction) -> list[Outcome]:
        commit(state, *transactions)
        raise UnavailableError("the log did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(StateStore, "commit", commit_and_lose_the_answer)
        with pytest.raises(
            UnavailableError, match="the log did not answer; delete not confirmed"
        ) as lost:
            table.delete(ranges=[(0, 10)])
    ingest(table, range(10), "second")
    delete_id = str(lost.value).split("the id '")[1].split("'")[0]
    assert table.delete(ranges=[(0, 10)], delete_id=delete_id).already_done
    assert read_keys(table) == list(range(100))


def test_a_delete_without_rows_is_refused(table: sleeper.Table) -> None:
    version = table.version
    with pytest.raises(InvalidRequestError, match="no rows to delete"):
        table.delete()
    with pytest.raises(InvalidRequestError, match="field 'key'"):
        table.delete(keys=[["text"]])
    assert table.version == version


@pytest.mark.parametrize(
    "region",
    [
        Region((Range("a", None),)),
        Region((Range(5, 5),)),
        Region((Range(5, "b"),)),
        Region((Range(5, 6), Range(5, 6))),
    ],
    ids=str,
)
def test_the_log_refuses_a_region_that_is_not_of_the_table(
    instance: sleeper.Instance, table: sleeper.Table, region: Region
) -> None:
    state = instance._ports.table("rows").state
    (outcome,) = state.commit(DeleteRows((region,)))
    assert outcome.refused
    assert read_keys(table) == list(range(100))


def test_a_delete_is_forgotten_when_no_file_needs_it(instance: sleeper.Instance) -> None:
    properties = {
        "sleeper.table.gc.delay.minutes": "0",
        "sleeper.table.compaction.files.batch.size": "2",
    }
    table = instance.create_table("rows", KEY_AND_VALUE, properties)
    ingest(table, range(100), "first")
    ingest(table, range(100), "second")
    before = table.version
    table.delete(ranges=[(0, 50)])
    table.delete(ranges=[(1000, 2000)])
    state = instance._ports.table("rows").state
    compact(instance)
    with state.reading() as reading:
        assert reading.deletes.count() == 2  # version `before` and those after it can be read
    assert len(read_keys(table, before)) == 200
    assert collect_table(instance._ports, "rows").files == 2
    with state.reading() as reading:
        assert reading.deletes.count() == 0
    assert read_keys(table) == [k for k in range(50, 100) for _ in range(2)]


def test_a_state_of_an_older_format_gets_deletes(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    ref = instance._ports.tables.index.find("rows")
    instance.close()
    with closing(sqlite3.connect(tmp_path / "instance" / ref.id / "state.db")) as state:
        references = state.execute("SELECT * FROM refs ORDER BY partition").fetchall()
    make_format_3(tmp_path / "instance" / ref.id / "state.db")
    with sleeper.open_instance(tmp_path / "instance", upgrade=True) as opened:
        table = opened.table("rows")
        assert read_keys(table) == list(range(100))
        table.delete(ranges=[(0, 60)])
        ingest(table, range(2), "second")
        assert read_keys(table) == [0, 1, *range(60, 100)]
        operations = [entry.operation for entry in table.history() if entry.job]
        assert operations == ["ingest", "delete rows"]
    with closing(sqlite3.connect(tmp_path / "instance" / ref.id / "state.db")) as state:
        kept = state.execute("SELECT * FROM refs WHERE added < 3 ORDER BY partition").fetchall()
        assert kept == references
