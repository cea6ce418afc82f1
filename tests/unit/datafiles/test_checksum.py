"""The checksum sidecar: sections of a file, in both versions of its format."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.remote.file_end import section_ends
from sleeper.datafiles.sidecars.checksum import (
    checksum_from_bytes,
    checksum_in_sections,
    compute_digest,
    read_checksum,
    verify_bytes,
)
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.errors import DataError, StateMovedOnError
from sleeper.files import CHECKSUM_SUFFIX, DataFile
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.location import DataRoot

SCHEMA = Schema((Field("k", PrimitiveType.STRING),), (), (Field("v", PrimitiveType.LONG),))


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    return DataRoot(tmp_path)


def write_file(root: DataRoot, path: str = "f.parquet", rows: int = 1000) -> DataFile:
    writer = DataFileWriter(root, path, SCHEMA, FileSettings(row_group_rows_max=300))
    writer.write([pa.record_batch({"k": [f"{n:06d}" for n in range(rows)], "v": [*range(rows)]})])
    return writer.finish()


def flip(root: DataRoot, path: str, place: int) -> None:
    file = Path(root.url_of(path))
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("rows", [0, 1, 300, 1000])
def test_sections_are_magic_row_groups_and_rest(root: DataRoot, rows: int) -> None:
    file = write_file(root, rows=rows)
    path = Path(root.url_of(file.path))
    checksum = read_checksum(root, file.path)
    assert checksum is not None
    ends = section_ends(pq.read_metadata(path))
    assert [s.end for s in checksum.sections] == [*ends, file.bytes]
    assert [s.start for s in checksum.sections] == [0, *ends]
    content = path.read_bytes()
    assert [s.digest for s in checksum.sections] == [
        compute_digest(content[s.start : s.end]) for s in checksum.sections
    ]
    verify_bytes(root, file.path)


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_part_size_does_not_change_the_checksum(size: int) -> None:
    content = bytes(range(256)) * 2
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    ends = [4, 100, 101, 512]
    assert checksum_in_sections(iter(parts), ends) == checksum_in_sections(iter([content]), ends)
    assert [s.end for s in checksum_in_sections(iter(parts), ends).sections] == ends


def test_sidecar_round_trip(root: DataRoot) -> None:
    checksum = checksum_in_sections(iter([b"some bytes"]), [4, 6])
    assert checksum_from_bytes(checksum.to_bytes(), "x") == checksum


@pytest.mark.parametrize("damage", ["first", "middle", "last", "cut", "longer", "gone"])
def test_error_names_the_damaged_file(root: DataRoot, damage: str) -> None:
    file = write_file(root)
    path = Path(root.url_of(file.path))
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "longer":
        path.write_bytes(content + b"x")
    elif damage == "gone":
        path.unlink()
    else:
        flip(root, file.path, {"first": 0, "middle": file.bytes // 2, "last": -1}[damage])
    kind = StateMovedOnError if damage == "gone" else DataError
    with pytest.raises(kind, match=r"f\.parquet"):
        verify_bytes(root, file.path)


def test_checksum_of_the_whole_file_is_verified(root: DataRoot) -> None:
    file = write_file(root)
    path = Path(root.url_of(file.path))
    sidecar = path.with_name(path.name + CHECKSUM_SUFFIX)
    sidecar.write_text(f"xxh3-128 {compute_digest(path.read_bytes())}\n")
    verify_bytes(root, file.path)
    flip(root, file.path, file.bytes // 2)
    with pytest.raises(DataError, match="bytes 0 to its end"):
        verify_bytes(root, file.path)


@pytest.mark.parametrize("sidecar", ["gone", "damaged"])
def test_pages_are_verified_without_a_checksum(
    root: DataRoot, caplog: pytest.LogCaptureFixture, sidecar: str
) -> None:
    file = write_file(root)
    if sidecar == "gone":
        root.delete([file.path + CHECKSUM_SUFFIX])
    else:
        flip(root, file.path + CHECKSUM_SUFFIX, 30)
    verify_bytes(root, file.path)
    assert f"{file.path}{CHECKSUM_SUFFIX}" in caplog.text
    place = pq.read_metadata(root.url_of(file.path)).row_group(1).column(1).data_page_offset
    flip(root, file.path, place + 60)
    with pytest.raises(DataError, match=r"f\.parquet is damaged"):
        verify_bytes(root, file.path)


@pytest.mark.parametrize("place", [0, 5, 299, 300, 998])
def test_writer_refuses_rows_out_of_order(root: DataRoot, place: int) -> None:
    keys = [f"{n:06d}" for n in range(1000)]
    keys[place], keys[place + 1] = keys[place + 1], keys[place]
    writer = DataFileWriter(root, "f.parquet", SCHEMA, FileSettings(row_group_rows_max=300))
    batch = pa.record_batch({"k": keys, "v": [*range(1000)]})
    parts = [batch.slice(start, 150) for start in range(0, 1000, 150)]
    with pytest.raises(DataError, match="out of order"):
        writer.write(parts)
    writer.abandon()
