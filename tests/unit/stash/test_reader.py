"""Reading of stashes: the latest or a locked one, splits, and damaged or missing files."""

import gzip
import json
import shutil
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
from sleeper.stash import LockedStash, Stash, gzip_lines
from sleeper.stash.layout import StashFormat, Success
from sleeper.storage.location import DataRoot
from tests.unit.stash.conftest import SCHEMA, Stasher


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": keys, "v": ["v"] * len(keys)})


def keys(stash: Stash | LockedStash) -> list[str]:
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


def test_a_locked_view_reads_one_stash(stasher: Stasher, stash: Stash) -> None:
    view = stash.locked()
    old = view.splits("t")
    stasher.instance.table("t").ingest(rows(4))
    stasher.instance.create_table("new", SCHEMA)
    newest = stasher.run().root
    assert (view.tables(), stash.tables()) == (["empty", "t"], ["empty", "new", "t"])
    assert keys(view) == ["0", "1", "2", "3"]
    assert [len(list(view.split("t", each))) for each in old] == [1, 1, 1, 1]
    assert view.stash_time() < stash.stash_time()
    assert view.describe_table("t").stash == view.name < newest
    with pytest.raises(InvalidRequestError, match=f"is one of stash {newest}"):
        view.split("t", stash.splits("t")[0])
    assert keys(stash.locked(view.name)) == keys(view)
    stash.lock(view.name)
    # A view of a locked object is of the same stash.
    assert stash.locked().name == view.name
    shutil.rmtree(Path(stasher.destination) / view.name)
    with pytest.raises(DataError, match=f"stash {view.name} .* was deleted meanwhile"):
        view.scan("t")


@pytest.mark.parametrize("format", StashFormat)
def test_files_have_addresses_sizes_and_rows(stasher: Stasher, format: StashFormat) -> None:
    stasher.format = format
    stasher.instance.create_table("eu:t", SCHEMA, split_points=[2]).ingest(rows(0, 1, 2))
    stasher.instance.create_table("empty", SCHEMA)
    stasher.run()
    view = Stash.open(stasher.destination).locked()
    table = view.describe_table("eu:t", count_rows=True)
    paths = sorted((stasher.root / "eu~t").iterdir())
    assert [each.uri for each in table.files] == [path.as_uri() for path in paths]
    assert [each.bytes for each in table.files] == [path.stat().st_size for path in paths]
    assert [each.rows for each in table.files] == [2, 1]
    assert [each.split for each in table.files] == view.splits("eu:t")
    assert (table.rows, table.version, table.format) == (3, 2, format)
    assert table.bytes == view.describe_tables()[1].bytes
    plain = view.describe_table("eu:t")
    assert (plain.rows, [each.rows for each in plain.files]) == (3, [None, None])
    assert view.describe_table("empty").files == ()
    with pytest.raises(NotFoundError, match="no table 't'"):
        view.describe_table("t")


def test_the_bytes_of_a_split_are_those_of_its_file(
    stasher: Stasher, stash: Stash, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = stash.splits("t")[0]
    file = min((stasher.root / "t").iterdir())
    stored = file.read_bytes()
    for ahead in (7, 2**20):
        monkeypatch.setattr("sleeper.stash.files._READ_AHEAD_BYTES", ahead)
        for offset, length in ((0, None), (3, 20), (9, 0), (len(stored), 5), (len(stored) + 9, 1)):
            end = None if length is None else offset + length
            with stash.open_split("t", split, offset, length) as found:
                assert found.read() == stored[offset:end]
            with stash.open_split("t", split, offset, length) as found:
                assert b"".join(iter(lambda: found.read(4), b"")) == stored[offset:end]
    with stash.open_split("t", split) as found:
        assert json.loads(gzip.GzipFile(fileobj=found).read())["~id"] == "0"
    for offset, length in ((-1, None), (0, -1)):
        with pytest.raises(InvalidRequestError, match="expected none below 0"):
            stash.open_split("t", split, offset, length)
    with pytest.raises(InvalidRequestError, match="is not one of table 'empty'"):
        stash.open_split("empty", split)
    file.unlink()
    with pytest.raises(NotFoundError, match="was its stash deleted"):
        stash.open_split("t", split)


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


ANSWERS = Path(__file__).with_name("answers.jsonl").read_bytes().splitlines(keepends=True)
"""The rows that EmoDB's documentation shows of a table `answer:testclient1`."""


def write_original(destination: Path) -> Path:
    """Writes a stash as EmoDB does, with names from its documentation. Returns its root."""
    root = destination / "2015-02-21-00-00-00"
    # The last line of a file may have no end, and a file may have several members.
    first, second, third = ANSWERS
    files = {
        "answer~testclient1": {
            "-0d-bdd29a20d201740e-1294.json.gz": [first],
            "-4d-bdd29a20d201740e-1417.json.gz": [second, third.rstrip()],
        },
        # A later program of EmoDB named files after a hash of their first row.
        "catalog~testclient1~": {"-9d5ed678fe57bcca610140957afab571.gz": [b'{"~id":"x"}\n'] * 2},
    }
    for directory, contents in files.items():
        (root / directory).mkdir(parents=True)
        for ending, lines in contents.items():
            members = b"".join(gzip.compress(line) for line in lines)
            (root / directory / f"{directory}{ending}").write_bytes(members)
    times = "2015-02-21T00:00:00.000Z\n2015-02-21T03:00:00.000Z"
    (root / "_SUCCESS").write_text(f"{times}\n2015-02-21-00-00-00")
    (destination / "_LATEST").write_text(root.name)
    # One that is being written.
    (destination / "2015-02-22-00-00-00" / "answer~testclient1").mkdir(parents=True)
    return root


def test_a_stash_of_emodb_is_read_without_a_list_of_tables(tmp_path: Path) -> None:
    root = write_original(tmp_path)
    stash = Stash.open(str(tmp_path))
    answers = "answer:testclient1"
    assert stash.tables() == [answers, "catalog:testclient1:"]
    assert (stash.exists("catalog:testclient1:"), stash.exists("other")) == (True, False)
    with stash.scan(answers) as found:
        documents = list(found)
    assert documents == [json.loads(line) for line in ANSWERS]
    assert documents[0]["about"]["~id"] == "65bdfafd-a06c-5d5f-9098-757c1e0ec0e8"
    assert b"".join(stash.scan(answers).lines()) == b"".join(ANSWERS).rstrip()
    splits = stash.splits(answers)
    sizes = [sum(1 for _ in stash.split(answers, split)) for split in splits]
    assert sizes == [1, 2]
    with stash.open_split(answers, splits[1]) as stored:
        assert gzip.decompress(stored.read()) == b"".join(ANSWERS[1:]).rstrip()
    assert sum(1 for _ in stash.locked().scan("catalog:testclient1:")) == 2
    described = stash.describe_table(answers, count_rows=True)
    assert (described.version, described.rows) == (None, 3)
    assert [each.rows for each in described.files] == sizes
    assert described.uri == (root / "answer~testclient1").as_uri()
    assert stash.describe_table(answers).rows is None
    for read in (lambda: stash.scan(answers).batches(), stash.describe_tables):
        with pytest.raises(InvalidRequestError, match="was made by EmoDB"):
            read()
    with pytest.raises(NotFoundError, match="no table 'answer'"):
        stash.scan("answer")


def test_files_of_other_programs_are_no_part_of_a_stash_of_emodb(tmp_path: Path) -> None:
    root = write_original(tmp_path)
    stash = Stash.open(str(tmp_path))
    folder = root / "answer~testclient1"
    for path in (folder / "notes.json.gz", folder / ".x.crc", root / "manifest.json.gz"):
        path.write_bytes(b"not read")
    assert len(stash.tables()) == 2
    assert sum(1 for _ in stash.scan("answer:testclient1")) == 3
    # Rows that cannot be read are not left out.
    other = folder / "answer~testclient1-8d-bdd29a20d201740e-870.json.sz"
    other.write_bytes(b"snappy")
    with pytest.raises(DataError, match=r"answer~testclient1-8d.*\.sz' is not gzipped"):
        stash.tables()
    other.unlink()
    # A stash of this product whose list of tables is missing has piece names of its own.
    (folder / "answer~testclient1-00-0123abcd-0.json.gz").write_bytes(b"")
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
