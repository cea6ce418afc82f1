"""Deletes of keys from files and from Arrow data, which write a key file."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.clock import system_clock
from sleeper.deletion import keys as deleted_keys
from sleeper.errors import ConflictError, DataError, InvalidRequestError, StateMovedOnError
from sleeper.garbage_collection.service import collect_table, collect_table_orphans
from sleeper.local.instance import open_local_instance
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.table_definition import AcceptTime
from tests.clock import DAY_MS, FakeClock
from tests.tables.opened import KEY_AND_VALUE, compact, read_keys
from tests.unit.deletion.test_deletion import count, ingest

ROWS = 300


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    properties = {"sleeper.table.gc.delay.minutes": "0"}
    table = instance.create_table("rows", KEY_AND_VALUE, properties)
    ingest(table, range(ROWS), "first")
    return table


def key_files(instance: sleeper.Instance) -> list[str]:
    root = instance._ports.storage.root
    ref = instance._ports.tables.index.find("rows")
    found = (each.path for each in root.list_objects(ref.id))
    return sorted(path for path in found if "/deletes/" in path and path.endswith(".parquet"))


def write_file(folder: Path, ending: str, wanted: list[int]) -> Path:
    path = folder / f"keys.{ending}"
    if ending == "csv":
        lines = [
            "name,key,note",
            *(f'"a, b",{k},{"" if i else "7"}x' for i, k in enumerate(wanted)),
        ]
        path.write_text("\n".join(lines))
    elif ending == "jsonl":
        path.write_text("".join(json.dumps({"key": k, "other": [k]}) + "\n" for k in wanted))
    else:
        pq.write_table(pa.table({"other": ["x"] * len(wanted), "key": wanted}), path)
    return path


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_keys_of_files_are_deleted(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path, ending: str
) -> None:
    before = table.version
    wanted = [*range(0, ROWS, 7), 7, 10_000, -3]
    path = write_file(tmp_path, ending, wanted)
    result = table.delete(ranges=[(10, 20)], keys_from=path, delete_id="once")
    assert (result.number, result.keys) == (before + 1, len(set(wanted)))
    expected = [k for k in range(ROWS) if k % 7 and not 10 <= k < 20]
    assert read_keys(table) == expected
    assert count(instance) == len(expected)
    assert table.query(keys=[[6], [7], [8]]).to_arrow()["key"].to_pylist() == [6, 8]
    assert read_keys(table, before) == list(range(ROWS))
    ingest(table, range(0, 14), "second")
    again = table.delete(ranges=[(10, 20)], keys_from=[path], delete_id="once")
    assert (again.already_done, again.number) == (True, result.number)
    assert read_keys(table) == sorted([*expected, *range(14)])
    assert len(key_files(instance)) == 1
    compact(instance)
    assert read_keys(table) == sorted([*expected, *range(14)])
    with pytest.raises(ConflictError, match="id once was used by transaction 3"):
        table.delete(keys_from=path, delete_id="once")


@pytest.mark.parametrize("kind", ["table", "batches", "reader", "pandas"])
def test_the_keys_of_arrow_data_are_deleted(table: sleeper.Table, kind: str) -> None:
    data = pa.table({"key": [3, 5, 3], "note": ["a", "b", None]})
    given = {
        "table": lambda: data,
        "batches": lambda: data.to_batches(max_chunksize=1),
        "reader": data.to_reader,
        "pandas": lambda: pd.DataFrame({"key": [3, 5, 3]}),
    }[kind]()
    assert table.delete(keys=given).keys == 2
    assert read_keys(table) == [k for k in range(ROWS) if k not in (3, 5)]


def test_an_id_of_other_arrow_keys_is_refused(table: sleeper.Table) -> None:
    keys = pa.table({"key": pa.array([3, 5, 5], pa.int64())})
    assert table.delete(keys=keys, delete_id="d1").number
    again = table.delete(keys=keys.take([2, 0, 1]), delete_id="d1")
    assert again.already_done
    for other in ([3, 5], [3, 5, 6], [3, 3, 5]):
        with pytest.raises(ConflictError, match="d1 was used by transaction"):
            table.delete(keys=pa.table({"key": pa.array(other, pa.int64())}), delete_id="d1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("key\n1\nx\n", r"keys\.csv, row 2: field 'key' \(LongType\): .*'x'"),
        ("key\n1\n2,3\n", r"keys\.csv, row 2: expected 1 columns, found 2"),
        ("other\n1\n", r"missing: 'key'"),
        ("key\n", "no rows to delete"),
    ],
)
def test_a_file_with_an_invalid_key_deletes_nothing(
    instance: sleeper.Instance, table: sleeper.Table, tmp_path: Path, content: str, message: str
) -> None:
    version = table.version
    (tmp_path / "keys.csv").write_text(content)
    with pytest.raises(InvalidRequestError, match=message):
        table.delete(keys_from=tmp_path / "keys.csv")
    with pytest.raises(InvalidRequestError, match="does not exist"):
        table.delete(keys_from=tmp_path / "missing.csv")
    with pytest.raises(InvalidRequestError, match="expected one of them"):
        table.delete(keys=pa.table({"key": [1]}), keys_from=tmp_path / "keys.csv")
    assert (table.version, key_files(instance)) == (version, [])


def test_many_keys_are_a_key_file(
    instance: sleeper.Instance, table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleted_keys, "REGION_BYTES_MAX", 1000)
    many = [[k] for k in range(0, ROWS, 2)]
    table.delete(keys=many, ranges=[(1, 8)], delete_id="many")
    assert len(key_files(instance)) == 1
    expected = [k for k in range(9, ROWS) if k % 2]
    assert read_keys(table) == expected
    assert table.delete(keys=many[::-1], ranges=[(1, 8)], delete_id="many").already_done
    with pytest.raises(ConflictError, match="many"):
        table.delete(keys=many[1:], ranges=[(1, 8)], delete_id="many")
    with instance._ports.table("rows").state.reading() as state:
        assert state.deletes.count() == 2
    compact(instance)
    assert read_keys(table) == expected


def test_a_run_that_dies_before_its_commit_leaves_an_orphan(
    instance: sleeper.Instance, table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = StateStore.commit

    def die(state: StateStore, *transactions: object) -> object:
        if any(isinstance(each, DeleteRows) for each in transactions):
            raise KeyboardInterrupt
        return commit(state, *transactions)  # type: ignore[arg-type]

    wanted = pa.table({"key": range(10)})
    with monkeypatch.context() as patch:
        patch.setattr(StateStore, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            table.delete(keys=wanted, delete_id="once")
    assert read_keys(table) == list(range(ROWS))
    table.delete(keys=wanted, delete_id="once")
    assert read_keys(table) == list(range(10, ROWS))
    assert len(key_files(instance)) == 2
    clock = FakeClock(system_clock() + 15 * DAY_MS)
    later = open_local_instance(Path(instance._ports.where), clock)
    later.table("rows").state.commit(AcceptTime(clock.now_ms))
    assert collect_table_orphans(later, "rows").objects == 3
    later.close()
    assert len(key_files(instance)) == 1
    assert read_keys(table) == list(range(10, ROWS))


def test_a_key_file_is_collected_with_the_files_that_needed_it(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    ingest(table, range(5), "second")
    table.delete(keys=pa.table({"key": range(10)}))
    compact(instance)
    expected = read_keys(table)
    assert len(key_files(instance)) == 1
    collect_table(instance._ports, "rows")
    assert key_files(instance) == []
    root, ref = instance._ports.storage.root, instance._ports.tables.index.find("rows")
    assert not [e.path for e in root.list_objects(ref.id) if "/deletes/" in e.path]
    with instance._ports.table("rows").state.reading() as state:
        assert state.deletes.count() == 0
        assert state.collection.collecting_key_files(9) == []
    assert read_keys(table) == expected


def test_a_missing_key_file_is_an_error(instance: sleeper.Instance, table: sleeper.Table) -> None:
    table.delete(keys=pa.table({"key": range(10)}))
    (path,) = key_files(instance)
    Path(instance._ports.storage.root.url_of(path)).unlink()
    for read in (lambda: read_keys(table), lambda: count(instance), lambda: compact(instance)):
        with pytest.raises((StateMovedOnError, DataError), match=r"deletes/.*\.parquet"):
            read()
    assert table.query(keys=[[200]]).to_arrow().num_rows == 1
