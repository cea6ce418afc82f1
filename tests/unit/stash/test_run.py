"""Stashes of an instance: their layout, documents, cuts, and what killed processes leave."""

import gzip
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.api import Table
from sleeper.clock import iso_time
from sleeper.errors import DataError, InvalidRequestError, NotFoundError, UnavailableError
from sleeper.garbage_collection.service import collect_table, finish_deletions
from sleeper.query.hold import create_hold
from sleeper.retries import Backoff
from sleeper.stash import Stash, versions
from sleeper.stash.destination import StashDestination
from sleeper.stash.layout import parse_tables
from sleeper.stash.task import TaskWriter
from sleeper.storage.location import DataRoot
from tests.file_systems import use_hdfs
from tests.tables.opened import compact_fully
from tests.unit.stash.conftest import SCHEMA, Stasher


def rows(*keys: int, value: str = "") -> pa.Table:
    return pa.table({"k": keys, "v": [value or f"value {key}" for key in keys]})


def ingest(table: Table, added: pa.Table) -> int:
    """Returns the number of the transaction."""
    table.ingest(added)
    return table.version


def documents(folder: Path) -> list[dict[str, Any]]:
    """Returns the documents of a table's directory, as Python's gzip reads them."""
    found = []
    for file in sorted(folder.glob("*.json.gz")):
        with gzip.open(file, "rt", newline="\n") as lines:
            found += [json.loads(line) for line in lines]
    return found


def objects(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_many_small_leaves_share_files(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", SCHEMA, split_points=range(10, 1000, 10))
    for start in (0, 5, 250):
        table.ingest(rows(*range(start, 990)))
    result = stasher.run()
    assert result.tables[0].rows == 990 + 985 + 740
    stash = Stash.open(stasher.destination)
    assert len(stash.splits("t")) < 5
    expected = sorted([*range(990), *range(5, 990), *range(250, 990)])
    assert [document["k"] for document in stash.scan("t")] == expected


def test_a_stash_has_the_documented_layout(stasher: Stasher) -> None:
    table = stasher.instance.create_table("catalog:acme:", SCHEMA, split_points=[10])
    table.ingest(rows(1, 20))
    stasher.instance.create_table("empty", SCHEMA)
    result = stasher.run()
    table_id = result.tables[0].id
    name = "catalog~acme~"
    assert objects(Path(stasher.destination)) == {
        "_LATEST",
        f"{result.root}/_SUCCESS",
        f"{result.root}/_TABLES",
        f"{result.root}/{name}/{name}-00-{table_id}-0.json.gz",
        f"{result.root}/{name}/{name}-01-{table_id}-0.json.gz",
    }
    assert (Path(stasher.destination) / "_LATEST").read_text() == result.root
    started, completed, stash_id = (stasher.root / "_SUCCESS").read_text().splitlines()
    assert started.replace("T", "-").replace(":", "-") == f"{result.root}.000Z"
    assert started <= completed
    assert stash_id == result.id
    (stashed, empty) = parse_tables((stasher.root / "_TABLES").read_bytes(), "")
    assert (stashed.version, stashed.rows, stashed.files) == (2, 2, 2)
    assert (empty.table, empty.rows, empty.files) == ("empty", 0, 0)


KINDS = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}, {"name": "n", "type": "LongType"}],
    "valueFields": [
        {"name": "f", "type": "DoubleType", "nullable": True},
        {"name": "~b", "type": "ByteArrayType"},
        {"name": "m", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}},
        {"name": "t", "type": "TimestampType"},
        {"name": "d", "type": "DateType"},
        {"name": "x", "type": {"DecimalType": {"precision": 10, "scale": 2}}},
    ],
}


def rows_of_all_kinds() -> pa.Table:
    return pa.table(
        {
            "k": ['a,"\n\r\u2028', "b"],
            "n": [1, -2],
            "f": pa.array([float("nan"), None]),
            "~b": [b"\xff", b""],
            "m": pa.array([[('q"', 1)], []], pa.map_(pa.string(), pa.int64())),
            "t": pa.array([0, 10**15], pa.timestamp("us", "UTC")),
            "d": pa.array([0, 1], pa.date32()),
            "x": pa.array([Decimal("1.50"), Decimal(2)], pa.decimal128(10, 2)),
        }
    )


def test_a_document_has_the_fields_of_its_row_and_those_of_the_stash(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", KINDS)
    table.ingest(rows_of_all_kinds())
    stasher.run()
    first, second = documents(stasher.root / "t")
    time = iso_time(next(h.time_ms for h in table.history() if h.number == 2))
    assert {n: v for n, v in first.items() if n != "~signature"} == {
        "k": 'a,"\n\r\u2028',
        "n": 1,
        "f": "NaN",
        "~~b": "/w==",
        "m": {'q"': 1},
        "t": "1970-01-01T00:00:00.000000Z",
        "d": "1970-01-01",
        "x": 1.5,
        "~id": '"a,""\n\r\u2028",1',
        "~table": "t",
        "~version": 2,
        "~deleted": False,
        "~firstUpdateAt": time,
        "~lastUpdateAt": time,
    }
    assert second["f"] is None
    assert second["~id"] == "b,-2"
    assert len(first["~signature"]) == 32
    int(first["~signature"], 16)


def test_batches_have_the_rows_and_types_of_the_table(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", KINDS)
    table.ingest(rows_of_all_kinds())
    stasher.run()
    with Stash.open(stasher.destination).scan("t") as scanned:
        found = pa.Table.from_batches(scanned.batches(), scanned.schema)
    stored = table.query().to_arrow()
    for name in stored.schema.names:
        column = found.column("~~b" if name == "~b" else name)
        assert column.type == stored.column(name).type
        assert str(column.to_pylist()) == str(stored.column(name).to_pylist())


def test_the_signature_depends_on_the_content_only(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", SCHEMA)
    table.ingest(rows(1, 2))
    stasher.run()
    before = documents(stasher.root / "t")
    later = ingest(table, rows(1))
    stasher.instance.create_table("other", SCHEMA).ingest(rows(2))
    stasher.run()
    first, again, second = documents(stasher.root / "t")
    (other,) = documents(stasher.root / "other")
    assert first["~signature"] == again["~signature"] == before[0]["~signature"]
    assert second["~signature"] == other["~signature"] != first["~signature"]
    assert {first["~version"], again["~version"]} == {2, later}


def test_versions_are_those_of_the_rows_files(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", SCHEMA)
    table.ingest(rows(1))
    second = ingest(table, rows(2))
    stasher.run()
    assert {d["~id"]: d["~version"] for d in documents(stasher.root / "t")} == {"1": 2, "2": second}


def test_a_table_of_latest_rows_keeps_the_version_of_each_row(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", SCHEMA, {"sleeper.table.rows": "latest"})
    numbers = [ingest(table, rows(1, 2, 3)), ingest(table, rows(2, value="new"))]
    compact_fully(stasher.instance._ports, "t")
    table.ingest(pa.table({"k": [3], "v": ["gone"], "op": ["d"]}), op_column="op")
    stasher.run()
    found = {d["~id"]: (d["v"], d["~version"]) for d in documents(stasher.root / "t")}
    assert found == {"1": ("value 1", numbers[0]), "2": ("new", numbers[1])}


def test_a_row_of_a_compacted_file_has_the_version_of_its_newest_ingest(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", SCHEMA)
    table.ingest(rows(1))
    second = ingest(table, rows(2))
    compact_fully(stasher.instance._ports, "t")
    third = ingest(table, rows(3))
    stasher.run()
    found = {d["~id"]: d["~version"] for d in documents(stasher.root / "t")}
    assert found == {"1": second, "2": second, "3": third}


def test_a_group_of_aggregated_rows_has_the_largest_version(stasher: Stasher) -> None:
    schema = {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "n", "type": "LongType"}],
    }
    properties = {"sleeper.table.aggregations": "sum(n)"}
    table = stasher.instance.create_table("t", schema, properties)
    table.ingest(pa.table({"k": [1, 2], "n": [1, 1]}))
    second = ingest(table, pa.table({"k": [1], "n": [5]}))
    stasher.run()
    found = {d["~id"]: (d["n"], d["~version"]) for d in documents(stasher.root / "t")}
    assert found == {"1": (6, second), "2": (1, 2)}


def test_versions_survive_a_merge_in_passes(stasher: Stasher) -> None:
    stasher.instance._ports.change_properties({"sleeper.merge.files.max": "2"})
    table = stasher.instance.create_table("t", SCHEMA)
    versions = {str(key): ingest(table, rows(key)) for key in range(5)}
    stasher.run()
    assert {d["~id"]: d["~version"] for d in documents(stasher.root / "t")} == versions


def test_a_large_leaf_is_divided_into_files_of_whole_keys(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = stasher.instance.create_table("t", SCHEMA)
    table.ingest(rows(*range(1000)))
    table.ingest(rows(*range(1000)))
    result = stasher.run(piece_bytes=1000)
    names = sorted(path.name for path in (stasher.root / "t").iterdir())
    assert len(names) == result.tables[0].files > 1
    assert {name.split("-")[1] for name in names} == {"00"}
    found = sorted(int(d["~id"]) for d in documents(stasher.root / "t"))
    assert found == sorted([*range(1000), *range(1000)])


def test_a_stash_has_the_state_at_one_transaction(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come and go, files are compacted and collected, while the table is copied."""
    table = stasher.instance.create_table("t", SCHEMA, {"sleeper.table.gc.delay.minutes": "0"})
    table.ingest(rows(1, 2))
    table.ingest(rows(3))

    def change() -> None:
        table.ingest(rows(4))
        table.delete(keys=[[1]])
        compact_fully(stasher.instance._ports, "t")
        collect_table(stasher.instance._ports, "t")

    before_copying(monkeypatch, change)
    result = stasher.run()
    assert [d["~id"] for d in documents(stasher.root / "t")] == ["1", "2", "3"]
    assert result.tables[0].version == 3
    assert stasher.instance._ports.table("t").state.holds.all() == []


def before_copying(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Runs the action once, after the tables have their cuts."""
    run_before_first(monkeypatch, TaskWriter, "write", action)


def run_before_first(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, action: Callable[[], object]
) -> None:
    original, left = getattr(owner, name), [action]

    def call(*arguments: Any) -> Any:
        if left:
            left.pop()()
        return original(*arguments)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("atomic", [True, False])
def test_an_atomic_stash_has_all_tables_at_one_moment(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    first, second = (stasher.instance.create_table(name, SCHEMA) for name in ("a", "b"))

    def write_both() -> None:
        first.ingest(rows(1))
        second.ingest(rows(1))

    held: list[int] = []

    def hold_then_write(*arguments: Any) -> None:
        create_hold(*arguments)
        held.append(1)
        if len(held) == 1:
            write_both()

    monkeypatch.setattr("sleeper.stash.versions.create_hold", hold_then_write)
    result = stasher.run(atomic=atomic)
    assert [each.rows for each in result.tables] == [0, 0 if atomic else 1]


def test_a_moment_is_sought_until_no_table_changes(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [stasher.instance.create_table(name, SCHEMA) for name in ("a", "b")]
    newest, writes = versions._newest, [0, 1, 0]

    def write_then_read(table: Any) -> int:
        # The writer is between the two readings, three times.
        if writes and table.ref.name == "b":
            tables[writes.pop()].ingest(rows(1))
        return newest(table)

    monkeypatch.setattr(versions, "_newest", write_then_read)
    result = stasher.run(atomic=True)
    assert {each.table: each.rows for each in result.tables} == {"a": 2, "b": 1}


def test_a_moment_that_never_comes_is_an_error(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = stasher.instance.create_table("a", SCHEMA)
    newest = versions._newest

    def read_then_write(opened: Any) -> int:
        number = newest(opened)
        table.ingest(rows(1))
        return number

    monkeypatch.setattr(versions, "_newest", read_then_write)
    monkeypatch.setattr(versions, "_ATTEMPTS", Backoff(3, seconds_total=30))
    with pytest.raises(UnavailableError, match="cannot copy the tables at one moment"):
        stasher.run(atomic=True)
    assert not Path(stasher.destination, "_LATEST").exists()


def test_a_table_that_is_deleted_meanwhile_is_left_out(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        stasher.instance.create_table(name, SCHEMA).ingest(rows(1))

    def delete() -> None:
        stasher.instance.delete_table("b", now=True)
        finish_deletions(stasher.instance._ports)

    before_copying(monkeypatch, delete)
    assert [each.table for each in stasher.run().tables] == ["a"]
    assert {path.name for path in stasher.root.iterdir()} == {"a", "_SUCCESS", "_TABLES"}


def test_only_the_named_tables_are_copied(stasher: Stasher) -> None:
    for name in ("a", "b"):
        stasher.instance.create_table(name, SCHEMA).ingest(rows(1))
    assert [each.table for each in stasher.run("b", "b").tables] == ["b"]
    with pytest.raises(NotFoundError, match="'c'"):
        stasher.run("c")


def test_excluded_tables_are_not_copied(stasher: Stasher) -> None:
    for name in ("a", "tmp_1", "tmp_2", "x[1]", "x1"):
        stasher.instance.create_table(name, SCHEMA).ingest(rows(1))

    def copied(*exclude: str) -> list[str]:
        return [each.table for each in stasher.run(exclude=exclude).tables]

    assert copied("tmp_*", "x1", "none_*") == ["a", "x[1]"]
    # A table's own name excludes it, also if it is a pattern of other names.
    assert copied("tmp_?", "x[1]", "x[1]") == ["a"]
    # Names have upper and lower case.
    assert len(copied("TMP_*")) == 5
    for exclude, reason in (
        (["tmp_3"], "no table is named 'tmp_3'"),
        (["*"], "all tables are excluded by '\\*'"),
        ([""], "has 0 characters"),
        (["t*"] * 101, "101 patterns"),
    ):
        with pytest.raises((InvalidRequestError, NotFoundError), match=reason):
            stasher.run(exclude=exclude)
    with pytest.raises(InvalidRequestError, match="to copy and to exclude were given: 'a' and 'x"):
        stasher.run("a", exclude=["x*"])


def test_a_snapshot_table_without_a_load_has_no_rows(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", SCHEMA, {"sleeper.table.type": "snapshot"})
    assert stasher.run().tables[0].rows == 0
    table.ingest(rows(1))
    table.ingest(rows(2))
    assert stasher.run().tables[0].rows == 1
    assert [d["~id"] for d in documents(stasher.root / "t")] == ["2"]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a:", "a~"], "would share the directory 'a~'"),
        (["_SUCCESS"], "the name of a file of the stash"),
    ],
)
def test_directories_that_would_clash_are_refused(
    stasher: Stasher, names: list[str], reason: str
) -> None:
    for name in names:
        stasher.instance.create_table(name, SCHEMA)
    with pytest.raises(InvalidRequestError, match=reason):
        stasher.run()
    assert not Path(stasher.destination).exists()


@pytest.mark.parametrize("place", ["", "instance", "instance/data", "gs://bucket/x", "memory://x"])
def test_an_unusable_destination_is_refused(stasher: Stasher, place: str, tmp_path: Path) -> None:
    stasher.destination = place if "//" in place or not place else str(tmp_path / place)
    with pytest.raises(InvalidRequestError, match=r"is empty|inside|gcsfs|lasting"):
        stasher.run()


@pytest.mark.parametrize("place", ["hdfs://namenode:8020/stash/", "hdfs:///", "objectstore://x/y"])
def test_a_stash_in_another_file_system_is_the_same(
    stasher: Stasher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    use_hdfs(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    stasher.instance.create_table("a", SCHEMA, split_points=[2]).ingest(rows(1, 2, 3))
    stasher.destination = place
    results = [stasher.run(), stasher.run("a", atomic=True)]
    stash = Stash.open(place)
    assert [root.name for root in stash._destination.roots()] == [each.root for each in results]
    assert [document["~id"] for document in stash.scan("a")] == ["1", "2", "3"]
    assert stash.lock(results[0].root) == results[0].root
    found = [batch for each in stash.splits("a") for batch in stash.split("a", each).batches()]
    assert pa.Table.from_batches(found).column("k").to_pylist() == [1, 2, 3]


def test_stashes_of_one_second_have_different_names(stasher: Stasher) -> None:
    stasher.seconds_between_runs = 0
    assert len({stasher.run().root for _ in range(2)}) == 2


def test_the_latest_is_the_stash_that_was_completed_last(stasher: Stasher) -> None:
    first = stasher.run().root
    stasher.run()
    place = StashDestination(DataRoot(Path(stasher.destination)), "")
    success = Path(stasher.destination) / first / "_SUCCESS"
    started, _, stash_id = success.read_text().splitlines()
    success.write_text(f"{started}\n2199-01-01T00:00:00.000Z\n{stash_id}\n")
    assert place.record_latest() == place.latest() == first
    # A clock that was set back does not make a later stash an earlier one.
    assert stasher.run().root == place.latest()


def test_a_damaged_stash_does_not_stop_the_next(
    stasher: Stasher, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = stasher.run().root, stasher.run().root
    (Path(stasher.destination) / second / "_SUCCESS").write_text("")
    third = stasher.run().root
    place = StashDestination(DataRoot(Path(stasher.destination)), "")
    assert place.latest() == third
    damages = {root.name: root.damage for root in place.roots()}
    assert (damages[first], damages[third]) == (None, None)
    assert f"{second}/_SUCCESS is damaged" in str(damages[second])
    assert f"stash {second} of {stasher.destination} is ignored" in caplog.text


def test_a_stash_that_completes_while_another_is_recorded_is_the_latest(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stasher.run()
    last = stasher.run().root
    place = StashDestination(DataRoot(Path(stasher.destination)), "")
    success = Path(stasher.destination) / last / "_SUCCESS"
    success.rename(success.with_name("later"))
    replacing = DataRoot.replacing

    def complete_first(root: DataRoot, path: str) -> Any:
        with suppress(FileNotFoundError):
            success.with_name("later").rename(success)
        return replacing(root, path)

    monkeypatch.setattr(DataRoot, "replacing", complete_first)
    assert place.record_latest() == place.latest() == last


class Killed(BaseException):
    """The process was killed here."""


def test_a_killed_stash_is_never_taken_for_a_complete_one(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each write, before and after the name of the file exists."""
    stasher.instance.create_table("a", SCHEMA).ingest(rows(1))
    before = stasher.run().root
    left = 0
    replacing = DataRoot.replacing

    def point() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Killed

    @contextmanager
    def watched(self: DataRoot, path: str) -> Iterator[Any]:
        point()
        with replacing(self, path) as sink:
            yield sink
            point()
        point()

    monkeypatch.setattr(DataRoot, "replacing", watched)
    kills = 0
    while True:
        left = kills + 1
        try:
            complete = stasher.run()
            break
        except Killed:
            kills += 1
        stash = Stash.open(stasher.destination)
        for root in stash._destination.roots():
            if root.success is not None:
                assert len(documents(Path(stasher.destination, root.name, "a"))) == 1
        assert stash._destination.success(stash._destination.latest()) is not None
    assert kills == 3 * 6  # the owner, a task, a piece, _TABLES, _SUCCESS, _LATEST
    assert complete.root == stasher.root.name > before


def test_a_failed_piece_leaves_no_file(stasher: Stasher, monkeypatch: pytest.MonkeyPatch) -> None:
    stasher.instance.create_table("t", SCHEMA).ingest(rows(1))

    def fail(*_: object) -> None:
        raise DataError("no")

    monkeypatch.setattr("sleeper.stash.documents.DocumentWriter.lines", fail)
    with pytest.raises(DataError, match="no"):
        stasher.run()
    assert {path.rpartition("/")[2] for path in objects(Path(stasher.destination))} == {"_TABLES"}


def test_zcat_and_the_library_read_the_same(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", SCHEMA)
    table.ingest(rows(1, 2))
    stasher.run()
    (file,) = (stasher.root / "t").iterdir()
    # A file of several members, as other writers make them.
    file.write_bytes(file.read_bytes() + gzip.compress(b"") + file.read_bytes())
    text = subprocess.run(["zcat", file], capture_output=True, check=True).stdout
    with Stash.open(stasher.destination).scan("t") as found:
        assert b"".join(found.lines()) == text == gzip.decompress(file.read_bytes())
    assert [json.loads(line)["~id"] for line in text.splitlines()] == ["1", "2", "1", "2"]


def test_the_size_of_pieces_is_a_property_of_the_table(stasher: Stasher) -> None:
    for name, properties in (("a", {"sleeper.table.stash.piece.bytes": "1024"}), ("b", {})):
        stasher.instance.create_table(name, SCHEMA, properties).ingest(rows(*range(1000)))
    result = stasher.instance.stash(stasher.destination)
    first, second = (each.files for each in result.tables)
    assert first > second == 1
