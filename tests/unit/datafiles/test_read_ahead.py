"""Iterators whose items other threads produce, and text that they read."""

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from sleeper.datafiles.sources import text
from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.read_ahead import map_ahead, read_ahead
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, MapType, PrimitiveType, Schema

SCHEMA = Schema(
    (Field("id", PrimitiveType.LONG),),
    (),
    (Field("props", MapType(PrimitiveType.STRING, PrimitiveType.LONG), nullable=True),),
)


def fail_after(items: int) -> Iterator[int]:
    yield from range(items)
    raise ValueError("broken")


@pytest.mark.parametrize("threads", [1, 2])
def test_items_stay_in_order(threads: int) -> None:
    assert list(read_ahead(iter(range(50)), threads)) == list(range(50))
    assert list(map_ahead(lambda n: -n, range(50), threads)) == [-n for n in range(50)]
    assert list(read_ahead(iter(()), threads)) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_errors_come_after_the_items_before_them(threads: int) -> None:
    for items in (read_ahead(fail_after(3), threads), map_ahead(abs, fail_after(3), threads)):
        found: list[int] = []
        with pytest.raises(ValueError, match="broken"):
            found.extend(items)
        assert found == [0, 1, 2][: len(found)]
    items = map_ahead(lambda n: 1 // (2 - n), range(9), threads)
    assert (next(items), next(items)) == (0, 1)
    with pytest.raises(ZeroDivisionError):
        next(items)


def test_closed_iterators_leave_no_thread() -> None:
    before = threading.active_count()
    ahead = read_ahead(iter(range(50)), 2)
    mapped = map_ahead(abs, ahead, 2)
    assert next(mapped) == 0
    mapped.close()
    ahead.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.jsonl.zst", "rows.csv.zst"])
@pytest.mark.parametrize("rejects_rows", [True, False])
def test_threads_read_the_same_rows_and_faults(
    tmp_path: Path, name: str, rejects_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_LINES_BYTES", 400)
    monkeypatch.setattr(text, "_BLOCK_BYTES", 400)
    if "csv" in name:
        lines = ["id,props", *(f'{n},"{{""a"": {n}}}"' for n in range(300))]
        lines[200], lines[77] = "1,2,3", 'x,"{}"'
    else:
        lines = [f'{{"id": {n}, "props": {{"a": {n}}}}}' for n in range(300)]
        lines[200], lines[77] = "{", '{"id": "x"}'
    content = "\n".join(lines).encode()
    path = tmp_path / name
    path.write_bytes(zstandard.compress(content) if name.endswith(".zst") else content)
    results = [read_with(path, threads, rejects_rows) for threads in (1, 2)]
    assert results[0] == results[1]
    assert "row 77" in results[0][1] or "row 78" in results[0][1] or rejects_rows


def read_with(path: Path, threads: int, rejects_rows: bool) -> tuple[list[object], str]:
    """Returns the rows, and the rejected ones or the error."""
    rejects = Rejects(io.StringIO()) if rejects_rows else None
    checker = RowChecker(SCHEMA, "rows", rejects, threads=threads, line_bytes_max=400)
    read = read_csv if "csv" in path.name else read_json_lines
    rows: list[object] = []
    try:
        for batch in read(path, checker):
            rows += batch.to_pylist()
    except InvalidRequestError as error:
        return rows, str(error)
    assert rejects is not None
    assert len(rows) == 298
    assert rejects.count == 2
    return rows, rejects.sink.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["rows.csv.zst", "rows.jsonl.zst"])
def test_cut_off_zstandard_file_is_refused(tmp_path: Path, name: str) -> None:
    lines = [f"{n}," if "csv" in name else f'{{"id": {n}}}' for n in range(100_000)]
    content = zstandard.compress(
        "\n".join(["id,props", *lines] if "csv" in name else lines).encode()
    )
    path = tmp_path / name
    path.write_bytes(content[: len(content) // 2])
    read = read_csv if "csv" in name else read_json_lines
    with pytest.raises(InvalidRequestError, match=f"{name}: (not a readable CSV|cannot be read)"):
        list(read(path, RowChecker(SCHEMA, str(path), None)))


def test_frames_of_zstandard_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.zst"
    path.write_bytes(zstandard.compress(b'{"id": 1}\n') + zstandard.compress(b'{"id": 2}\n'))
    (batch,) = read_json_lines(path, RowChecker(SCHEMA, str(path), None))
    assert batch.column("id") == pa.array([1, 2])
