"""Reads of a transaction after its own changes: they return what reads return after the commit."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.api.own_changes import OwnChanges
from sleeper.datafiles.merge.sort import RowSort
from sleeper.errors import ConflictError, UnavailableError
from tests.tables.opened import compact

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "sortKeyFields": [{"name": "s", "type": "LongType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
TABLES: dict[str, dict[str, str]] = {
    "all rows": {},
    "one file": {"sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf"},
    "latest": {"sleeper.table.rows": "latest"},
    "latest by": {"sleeper.table.rows": "latest", "sleeper.table.latest.by": "n"},
    "sums": {"sleeper.table.aggregations": "sum(n)"},
    "recent": {"sleeper.table.filters": "ageOff(s,100000000000000)"},
}


def some_rows(random: Random, count: int = 6) -> pa.Table:
    columns = {"k": range(12), "s": range(2), "n": range(100)}
    return pa.table({c: pa.array(random.choices(v, k=count), "i8") for c, v in columns.items()})


def change(random: Random, transaction: sleeper.Transaction, is_latest: bool) -> None:
    key = random.randrange(12)
    match random.randrange(4):
        case 0:
            transaction.delete(keys=[[key]])
        case 1:
            transaction.delete(ranges=[(key, key + 2)])
        case 2 if is_latest:
            row = {"k": [key], "s": [0], "n": [random.randrange(100)], "op": ["delete"]}
            transaction.ingest(pa.table(row), op_column="op")
        case _:
            transaction.ingest(some_rows(random))


def ordered(rows: pa.Table) -> list[tuple[int, ...]]:
    """The rows: those of equal keys have no order."""
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def queries(random: Random) -> list[dict[str, Any]]:
    key = random.randrange(12)
    return [{}, {"keys": [[key]]}, {"ranges": [(key, None)]}, {"aggregations": "max(n)"}]


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("seed", range(3))
def test_reads_return_what_they_return_after_the_commit(
    instance: sleeper.Instance, kind: str, seed: int
) -> None:
    random = Random(seed)
    table = instance.create_table("rows", SCHEMA, TABLES[kind], split_points=[4, 8])
    for _ in range(3):
        table.ingest(some_rows(random))
    compact(instance)
    table.ingest(some_rows(random))
    with table.transaction() as transaction:
        before = ordered(table.query().to_arrow())
        assert ordered(transaction.query().to_arrow()) == before
        for _ in range(random.randrange(1, 5)):
            change(random, transaction, kind.startswith("latest"))
            if random.random() < 0.7:
                transaction.query(limit=1).to_arrow()
        asked = queries(random)
        found = [ordered(transaction.query(**each).to_arrow()) for each in asked]
        assert ordered(table.query().to_arrow()) == before
    assert [ordered(table.query(**each).to_arrow()) for each in asked] == found


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("rows", SCHEMA)
    table.ingest(rows(1, 2, 3))
    return table


def rows(*keys: int) -> pa.Table:
    columns = {"k": keys, "s": [0] * len(keys), "n": keys}
    return pa.table({name: pa.array(values, "i8") for name, values in columns.items()})


def keys(found: Any) -> list[int]:
    values: list[int] = found.to_arrow()["k"].to_pylist()
    return values


def data_files(tmp_path: Path) -> int:
    return len([*(tmp_path / "instance").glob("*/data/**/*.parquet")])


def test_rows_that_are_changed_after_a_read_are_read_again(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    with table.transaction() as transaction:
        transaction.ingest(rows(4))
        assert keys(transaction.query()) == [1, 2, 3, 4]
        transaction.delete(keys=[[1], [4]])
        # The rows of a transaction come after its deletes.
        assert keys(transaction.query(columns=["k"])) == [2, 3, 4]
        transaction.ingest(rows(0))
        assert keys(transaction.query(limit=2)) == [0, 2]
        folder = transaction._own._folder
        # The version, and one state with changes.
        assert len([*folder.glob("*.db")]) == 2
        files = data_files(tmp_path)
        assert keys(transaction.query(keys=[[0]])) == [0]
        assert data_files(tmp_path) == files
    assert keys(table.query()) == [0, 2, 3, 4]
    # The commit has used the files of the last read, and deleted those of the others.
    assert data_files(tmp_path) == 2
    assert not table.check().findings


def test_a_discarded_transaction_leaves_no_files(table: sleeper.Table, tmp_path: Path) -> None:
    transaction = table.transaction()
    transaction.ingest(rows(4))
    transaction.delete(keys=[[key] for key in range(9_000)])
    assert keys(transaction.query()) == [4]
    transaction.close()
    assert data_files(tmp_path) == 1
    assert keys(table.query()) == [1, 2, 3]


def test_changes_of_others_are_conflicts_as_before(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    transaction = table.transaction()
    transaction.delete(keys=[[1]])
    table.delete(keys=[[2]])
    table.ingest(rows(9))
    assert keys(transaction.query(ranges=[(None, 3)])) == [2]
    with pytest.raises(ConflictError):
        transaction.commit()
    assert keys(table.query()) == [1, 3, 9]


def test_a_read_that_fails_is_repeated_with_all_changes(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.transaction() as transaction:
        transaction.ingest(rows(4))
        assert keys(transaction.query()) == [1, 2, 3, 4]
        transaction.delete(keys=[[1]])
        with monkeypatch.context() as failing:
            failing.setattr(OwnChanges, "make", fail)
            with pytest.raises(UnavailableError):
                transaction.query()
        assert keys(transaction.query()) == [2, 3, 4]
    assert keys(table.query()) == [2, 3, 4]


def fail(*_: object) -> None:
    raise UnavailableError("the disk is full")


def test_rows_of_a_newer_schema_are_a_conflict(table: sleeper.Table) -> None:
    transaction = table.transaction()
    table.add_field("new", "LongType")
    transaction.ingest(rows(4))
    with pytest.raises(ConflictError, match="schema was changed by transaction 3"):
        transaction.query()


def test_leaves_that_were_split_meanwhile_are_those_of_the_version(
    instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = instance.create_table(
        "split", SCHEMA, {"sleeper.table.partition.splitting.threshold": "10"}
    )
    table.ingest(rows(*range(40)))
    transaction = table.transaction()
    transaction.delete(keys=[[0]])
    table.split()
    transaction.ingest(rows(50))
    assert keys(transaction.query(ranges=[(38, None)])) == [38, 39, 50]
    transaction.commit()
    assert keys(table.query()) == [*range(1, 40), 50]


def test_rows_beyond_the_buffer_are_read_and_added_to(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowSort, "_buffer_bytes", lambda *_: 40_000)
    with table.transaction() as transaction:
        for start in range(10, 40_010, 10_000):
            transaction.ingest(rows(*range(start, start + 10_000)))
            assert keys(transaction.query(ranges=[(start + 9_998, None)])) == [
                start + 9_998,
                start + 9_999,
            ]
    assert keys(table.query(aggregations="")) == [1, 2, 3, *range(10, 40_010)]
