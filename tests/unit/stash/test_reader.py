"""Reading of stashes: the latest or a locked one, splits, and damaged or missing files."""

import gzip
import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.errors import DataError, InvalidRequestError, NotFoundError, UnavailableError
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    schema_to_json,
)
from sleeper.stash import Stash, gzip_lines
from sleeper.stash.layout import StashFormat, Success
from sleeper.storage.location import DataRoot
from tests.unit.stash.conftest import SCHEMA, Stasher


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": keys, "v": ["v"] * len(keys)})


def keys(stash: Stash) -> list[str]:
    with stash.scan("t") as found:
        return [document["~id"] for document in found]


@pytest.fixture
def stash(stasher: Stasher) -> Stash:
    """A stash of table `t`, which has four leaves with a row each, and of an empty one."""
    stasher.instance.create_table("t", SCHEMA, split_points=[1, 2, 3]).ingest(rows(0, 1, 2, 3))
    stasher.instance.create_table("empty", SCHEMA)
    stasher.run()
    return Stash.open(stasher.destination)


def test_a_locked_stash_stays_the_same(stasher: Stasher, stash: Stash) -> None:
    first = stash.lock()
    stasher.instance.table("t").ingest(rows(4))
    second = stasher.run().root
    assert keys(stash) == ["0", "1", "2", "3"]
    assert stash.stash_time() == datetime.strptime(first, "%Y-%m-%d-%H-%M-%S").replace(tzinfo=UTC)
    stash.unlock()
    assert keys(stash) == ["0", "1", "2", "3", "4"]
    time = datetime.strptime(first, "%Y-%m-%d-%H-%M-%S")
    for form in (first, time, time.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=2)))):
        assert stash.lock(form) == first
        assert len(keys(stash)) == 4
    assert stash.lock(second) == second
    with pytest.raises(NotFoundError, match="no complete stash 2001-01-01-00-00-00"):
        stash.lock("2001-01-01-00-00-00")
    with pytest.raises(InvalidRequestError, match="'yesterday' is not the name of a stash"):
        stash.lock("yesterday")


def test_splits_are_read_from_the_stash_they_came_from(stasher: Stasher, stash: Stash) -> None:
    splits = stash.splits("t")
    stasher.instance.table("t").delete(ranges=[(None, None)])
    stasher.run()
    assert stash.splits("t") == []
    found = [[d["~id"] for d in stash.split("t", each)] for each in splits]
    assert found == [["0"], ["1"], ["2"], ["3"]]
    for other in ("", "x", "!", splits[0][:-4], "Li4vLi4vdC94Lmpzb24uZ3o"):
        with pytest.raises(InvalidRequestError, match=r"not a split|not the name of a stash"):
            stash.split("t", other)
    with pytest.raises(InvalidRequestError, match="is not one of table 'empty'"):
        stash.split("empty", splits[0])


def test_a_missing_table_is_an_error_and_an_empty_one_has_no_rows(stash: Stash) -> None:
    assert stash.tables() == ["empty", "t"]
    assert (stash.exists("empty"), stash.exists("tt")) == (True, False)
    assert list(stash.scan("empty")) == list(stash.scan("empty").batches()) == []
    assert stash.splits("empty") == []
    for read in (stash.scan, stash.splits):
        with pytest.raises(NotFoundError, match=r"has no table 'tt'; did you mean t\?"):
            read("tt")


def test_a_destination_without_a_complete_stash_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="the folder does not exist"):
        Stash.open(str(tmp_path / "none"))
    (tmp_path / "2026-01-01-00-00-00").mkdir()
    stash = Stash.open(tmp_path.as_uri())
    with pytest.raises(NotFoundError, match="has no complete stash"):
        stash.tables()
    (tmp_path / "_LATEST").write_text("rubbish")
    with pytest.raises(NotFoundError, match="names no stash: 'rubbish'"):
        stash.stash_time()


def test_rows_are_read_once_and_closed(stash: Stash) -> None:
    found = stash.scan("t")
    next(found)
    with pytest.raises(InvalidRequestError, match="can be read once"):
        next(found.batches())
    found.close()
    found.close()
    assert list(found) == []


def test_damaged_and_missing_files_are_errors(stasher: Stasher, stash: Stash) -> None:
    file = min((stasher.root / "t").iterdir())
    whole = file.read_bytes()
    for content in (whole[:-9], b"no gzip", gzip.compress(b"no json\n")):
        file.write_bytes(content)
        with pytest.raises(DataError, match="damaged"), stash.scan("t") as found:
            for _ in found.batches():
                pass
    file.write_bytes(gzip.compress(b"no json\n"))
    with pytest.raises(DataError, match="damaged"):
        keys(stash)
    split = stash.splits("t")[0]
    file.unlink()
    with pytest.raises(NotFoundError, match="was its stash deleted"):
        next(stash.split("t", split))
    for read in (stash.splits, stash.scan):
        with pytest.raises(DataError, match="table t has 3 files of 4"):
            read("t")
    (stasher.root / "_TABLES").unlink()
    with pytest.raises(DataError, match="no list of tables"):
        stash.tables()


def write_original(destination: Path) -> None:
    """Writes a stash as EmoDB does."""
    root = destination / "2015-02-21-00-00-00"
    content = (b'{"n":1.5,"~id":"a","~table":"answer:client"}\n', b'{"~id":"b"}\n')
    for directory, shards in (("answer~client", 2), ("catalog~acme~", 1)):
        (root / directory).mkdir(parents=True)
        for shard in range(shards):
            file = root / directory / f"{directory}-{shard:02x}-bdd29a20d201740e-1294.json.gz"
            # Files of several members.
            file.write_bytes(b"".join(map(gzip.compress, content)))
    times = "2015-02-21T00:00:00.000Z\n2015-02-21T03:00:00.000Z"
    (root / "_SUCCESS").write_text(f"{times}\n2015-02-21-00-00-00")
    (destination / "_LATEST").write_text(root.name)


def test_a_stash_of_emodb_is_read_without_a_list_of_tables(tmp_path: Path) -> None:
    write_original(tmp_path)
    stash = Stash.open(str(tmp_path))
    assert stash.tables() == ["answer:client", "catalog:acme:"]
    assert (stash.exists("catalog:acme:"), stash.exists("other")) == (True, False)
    splits = stash.splits("answer:client")
    assert len(splits) == 2
    assert [row["~id"] for row in stash.split("answer:client", splits[0])] == ["a", "b"]
    with stash.scan("answer:client") as found:
        documents = list(found)
    assert [row["~id"] for row in documents] == ["a", "b", "a", "b"]
    assert documents[0] == {"n": 1.5, "~id": "a", "~table": "answer:client"}
    for read in (lambda: stash.scan("answer:client").batches(), stash.describe_tables):
        with pytest.raises(InvalidRequestError, match="was made by EmoDB"):
            read()
    with pytest.raises(NotFoundError, match="no table 'answer'"):
        stash.scan("answer")
    file = tmp_path / stash.lock() / "answer~client" / "notes.json.gz"
    file.write_bytes(gzip.compress(b""))
    with pytest.raises(DataError, match="no list of tables"):
        stash.tables()


@pytest.mark.parametrize("format", StashFormat)
def test_decimals_keep_their_digits(stasher: Stasher, format: StashFormat) -> None:
    long, short = DecimalType(38, 10), DecimalType(5, 0)
    fields: dict[str, FieldType] = {
        "x": long,
        "~x": short,
        "l": ListType(long),
        "m": MapType(PrimitiveType.STRING, long),
    }
    schema = Schema(
        (Field("k", PrimitiveType.LONG),),
        (),
        (
            *(Field(name, kind, nullable=True) for name, kind in fields.items()),
            Field("d", PrimitiveType.DOUBLE, nullable=True),
        ),
    )
    table = stasher.instance.create_table("t", json.loads(schema_to_json(schema)))
    value = Decimal("12345678901234567890.1234567891")
    row = {"k": 2**62 + 1, "x": value, "~x": Decimal(7), "l": [value, -value], "d": 0.5}
    empty = dict.fromkeys((*fields, "d"))
    rows = [{**row, "m": [("a", value)]}, {"k": 2**62 + 2, **empty}]
    table.ingest(pa.Table.from_pylist(rows, table.arrow_schema))
    stasher.format = format
    stasher.run()
    with Stash.open(stasher.destination).scan("t") as found:
        first, second = found
    assert (first["k"], first["x"], first["l"], first["d"]) == (2**62 + 1, value, row["l"], 0.5)
    assert isinstance(first["~~x"], Decimal)
    assert first["~~x"] == 7
    assert (first["m"], first["~table"]) == ({"a": value}, "t")
    assert (second["x"], second["l"]) == (None, None)


def test_a_lost_connection_resumes_where_it_was(
    stash: Stash, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, failures = DataRoot.open_ranges, [True, True]

    class Failing:
        def __init__(self, file: object) -> None:
            self.file = file

        def close(self) -> None:
            self.file.close()  # type: ignore[attr-defined]

        def read(self, size: int) -> bytes:
            if failures and self.file.tell():  # type: ignore[attr-defined]
                failures.pop()
                raise UnavailableError("connection lost")
            content: bytes = self.file.read(size)  # type: ignore[attr-defined]
            return content

    monkeypatch.setattr(DataRoot, "open_ranges", lambda *a: Failing(opened(*a)))
    monkeypatch.setattr(gzip_lines, "_RANGE_BYTES", 10)
    assert keys(stash) == ["0", "1", "2", "3"]
    assert not failures


def test_lines_may_be_cut_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f'{{"n":{n}}}'.encode() + b"\n" for n in range(50)]
    members = (gzip.compress(b"".join(lines)[at : at + 61]) for at in range(0, 600, 61))
    (tmp_path / "f").write_bytes(b"".join(members) + b"\0" * 7)
    for size in (1, 7, 1000):
        monkeypatch.setattr(gzip_lines, "_RANGE_BYTES", size)
        blocks = gzip_lines.read_blocks(DataRoot(tmp_path), "f")
        assert b"".join(blocks) == b"".join(lines)


def test_a_damaged_success_is_an_error() -> None:
    success = Success(1_000, 2_500, "id")
    assert Success.from_bytes(success.to_bytes(), "f") == success
    with pytest.raises(DataError, match="f is damaged"):
        Success.from_bytes(b"2026\n", "f")
