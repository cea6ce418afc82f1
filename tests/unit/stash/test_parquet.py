"""Stashes in Parquet have the documents of those in JSON, with the types of the table."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.errors import DataError, InvalidRequestError, NotFoundError, UnavailableError
from sleeper.stash import Stash, documents
from sleeper.stash.layout import StashFormat, parse_tables
from sleeper.storage.location import DataRoot
from tests.unit.stash.conftest import SCHEMA, Stasher
from tests.unit.stash.test_run import KINDS, rows_of_all_kinds


@pytest.fixture
def stasher(stasher: Stasher) -> Stasher:
    stasher.format = StashFormat.PARQUET
    return stasher


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": keys, "v": ["v"] * len(keys)})


def read(stash: Stash) -> pa.Table:
    with stash.scan("t") as scanned:
        return pa.Table.from_batches(scanned.batches(), scanned.schema)


def test_both_formats_have_the_same_documents_and_batches(stasher: Stasher) -> None:
    table = stasher.instance.create_table("t", KINDS, split_points=["b"])
    table.ingest(rows_of_all_kinds())
    found = []
    for stasher.format in StashFormat:
        result = stasher.run()
        stash = Stash.open(stasher.destination)
        splits = stash.splits("t")
        assert (len(splits), result.tables[0].format) == (2, stasher.format)
        text = b"".join(stash.scan("t").lines())
        found.append((text, list(map(str, stash.scan("t"))), read(stash)))
        with stash.split("t", splits[1]) as second:
            assert [document["k"] for document in second] == ["b"]
    (json_lines, json_documents, json_batches), (lines, documents, batches) = found
    assert (lines, documents) == (json_lines, json_documents)
    assert batches.schema.equals(json_batches.schema)
    assert str(batches.to_pylist()) == str(json_batches.to_pylist())


def test_other_programs_read_typed_columns(stasher: Stasher) -> None:
    stasher.instance.create_table("a:b", SCHEMA).ingest(rows(1, 2))
    stasher.run()
    (file,) = (stasher.root / "a~b").iterdir()
    assert file.name.endswith("-0.parquet")
    found = pq.read_table(file)
    assert {name: str(found.schema.field(name).type) for name in found.column_names} == {
        "~id": "string",
        "k": "int64",
        "v": "string",
        "~table": "string",
        "~version": "int64",
        "~signature": "string",
        "~deleted": "bool",
        "~firstUpdateAt": "timestamp[us, tz=UTC]",
        "~lastUpdateAt": "timestamp[us, tz=UTC]",
    }
    assert found.column("~table").to_pylist() == ["a:b"] * 2
    (described,) = parse_tables((stasher.root / "_TABLES").read_bytes(), "")
    assert (described.rows, described.files, described.bytes) == (2, 1, file.stat().st_size)


def test_a_list_of_tables_without_formats_is_of_json(stasher: Stasher) -> None:
    stasher.instance.create_table("t", SCHEMA)
    stasher.format = StashFormat.JSON
    stasher.run()
    content = (stasher.root / "_TABLES").read_bytes()
    assert b"format" not in content
    assert parse_tables(content, "")[0].format is StashFormat.JSON


def test_an_unknown_format_is_refused(stasher: Stasher) -> None:
    with pytest.raises(InvalidRequestError, match=r"'csv' \(expected json or parquet\)"):
        stasher.instance.stash(stasher.destination, format="csv")
    stasher.instance.create_table("t", SCHEMA).ingest(rows(1))
    result = stasher.instance.stash(stasher.destination, format="parquet")
    assert result.tables[0].format is StashFormat.PARQUET


def test_row_groups_are_limited(stasher: Stasher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_ROW_GROUP_BYTES", 1)
    stasher.instance.create_table("t", SCHEMA).ingest(rows(*range(9_000)))
    stasher.run()
    (file,) = (stasher.root / "t").iterdir()
    assert pq.read_metadata(file).num_row_groups > 1
    assert read(Stash.open(stasher.destination)).column("k").to_pylist() == list(range(9_000))


def test_damaged_and_missing_files_are_errors(stasher: Stasher) -> None:
    stasher.instance.create_table("t", SCHEMA).ingest(rows(*range(100)))
    stasher.run()
    stash = Stash.open(stasher.destination)
    (file,) = (stasher.root / "t").iterdir()
    whole = file.read_bytes()
    other = io.BytesIO()
    pq.write_table(rows(1), other)
    middle = len(whole) // 8
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (whole[:-9], b"no parquet", b"", other.getvalue(), flipped):
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"{file.name} is damaged"):
            read(stash)
    (split,) = stash.splits("t")
    file.unlink()
    with pytest.raises(NotFoundError, match="was its stash deleted"):
        next(stash.split("t", split))


def test_a_lost_connection_resumes_where_it_was(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stasher.instance.create_table("t", SCHEMA).ingest(rows(*range(100)))
    stasher.run()
    opened, failures = DataRoot.open_ranges, [UnavailableError("lost")] * 2

    class Failing(io.RawIOBase):
        def __init__(self, file: io.RawIOBase) -> None:
            self.file = file

        def seek(self, *to: Any) -> int:
            return self.file.seek(*to)

        def tell(self) -> int:
            return self.file.tell()

        def read(self, size: int = -1) -> bytes | None:
            if failures:
                raise failures.pop()
            # Fewer bytes than asked for are not the end.
            return self.file.read(min(size, 50))

        def close(self) -> None:
            self.file.close()
            super().close()

    monkeypatch.setattr(DataRoot, "open_ranges", lambda *a: Failing(opened(*a)))
    assert read(Stash.open(stasher.destination)).num_rows == 100
    assert not failures


def test_a_read_that_never_succeeds_is_unavailable(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stasher.instance.create_table("t", SCHEMA).ingest(rows(1))
    stasher.run()
    monkeypatch.setenv("SLEEPER_RETRY_SECONDS", "0.1")

    def fail(*_: object) -> bytes:
        raise UnavailableError("bucket is gone")

    monkeypatch.setattr("sleeper.stash.files.ResumingFile.read", fail)
    with pytest.raises(UnavailableError, match="bucket is gone"):
        read(Stash.open(str(Path(stasher.destination))))
