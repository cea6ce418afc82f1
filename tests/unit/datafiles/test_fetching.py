"""Inputs of a merge fetched from S3: rows, damage, disk space and cleanup."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.remote import extracts
from sleeper.datafiles.remote.extracts import FileRegions, fetch_inputs
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.errors import DataError, StateMovedOnError
from sleeper.files import DataFile
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.location import DataRoot
from tests.unit.query.test_extracts import DistantRoot

SCHEMA = Schema((Field("key", PrimitiveType.LONG),), (), (Field("v", PrimitiveType.STRING),))
FROM_250_TO_550 = (Region((Range(250, 550),)),)


@pytest.fixture
def root(tmp_path: Path) -> DistantRoot:
    (tmp_path / "spill").mkdir()
    return DistantRoot(tmp_path / "bucket")


@pytest.fixture
def spill(tmp_path: Path) -> Path:
    return tmp_path / "spill"


def open_files() -> list[Path]:
    links = Path("/proc/self/fd").iterdir()
    return [link.readlink() for link in links if link.is_symlink()]


def write_file(root: DataRoot, name: str, rows: int = 1000) -> DataFile:
    writer = DataFileWriter(root, name, SCHEMA, FileSettings(row_group_rows_max=100))
    writer.write([pa.record_batch({"key": [*range(rows)], "v": [f"v{n}" for n in range(rows)]})])
    return writer.finish()


def test_extracts_have_all_or_the_selected_row_groups(
    root: DistantRoot, spill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extracts, "_FILES_PER_BATCH", 2)
    files = [write_file(root, f"{n}.parquet") for n in range(5)]
    selected: FileRegions = [(f, FROM_250_TO_550 if n % 2 else None) for n, f in enumerate(files)]
    with fetch_inputs(root, SCHEMA, selected, spill) as local_copies:
        assert not [file for file in open_files() if file.parent == spill]
        for file, regions in selected:
            rows = pq.read_table(local_copies[file.path].path)
            assert rows["key"].to_pylist() == [
                *(range(1000) if regions is None else range(200, 600))
            ]
            assert local_copies[file.path].bytes <= file.bytes
        assert len(list(spill.iterdir())) == 5
    assert list(spill.iterdir()) == []


@pytest.mark.parametrize("regions", [None, FROM_250_TO_550])
@pytest.mark.parametrize("is_fetched", [True, False])
def test_damaged_row_groups_fail(
    root: DistantRoot,
    spill: Path,
    monkeypatch: pytest.MonkeyPatch,
    regions: tuple[Region, ...] | None,
    is_fetched: bool,
) -> None:
    whole, file = write_file(root, "whole.parquet"), write_file(root, "damaged.parquet")
    path = Path(root.url_of(file.path))
    metadata = pq.read_metadata(path)
    place = metadata.row_group(3).column(1).data_page_offset + 50
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    if not is_fetched:
        space = shutil.disk_usage(spill)._replace(free=0)
        monkeypatch.setattr(extracts.shutil, "disk_usage", lambda _: space)
    with (
        pytest.raises(
            DataError, match=r"damaged\.parquet is damaged: bytes \d+ to \d+ do not match"
        ),
        fetch_inputs(root, SCHEMA, [(whole, regions), (file, regions)], spill),
    ):
        pass
    assert list(spill.iterdir()) == []


@pytest.mark.parametrize("failure", [None, ValueError("of the merge")])
def test_damage_is_the_error_of_a_merge(
    tmp_path: Path, spill: Path, failure: Exception | None
) -> None:
    spill.mkdir()
    root = DataRoot(tmp_path / "folder")
    file = write_file(root, "damaged.parquet")
    path = Path(root.url_of(file.path))
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    merges: list[str] = []

    def merge() -> None:
        with fetch_inputs(root, SCHEMA, [(file, None)], spill):
            merges.append(file.path)
            if failure is not None:
                raise failure

    with pytest.raises(DataError, match=r"damaged\.parquet is damaged: bytes 4 to"):
        merge()
    assert merges == [file.path]


@pytest.mark.parametrize("fault", ["little room", "full"])
def test_full_disk_prevents_fetching(
    root: DistantRoot, spill: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(extracts, "_FILES_PER_BATCH", 1)
    files = [write_file(root, f"{n}.parquet") for n in range(2)]
    if fault == "little room":
        with fetch_inputs(root, SCHEMA, [(files[0], None)], spill) as local_copies:
            one = local_copies[files[0].path].bytes
        space = shutil.disk_usage(spill)._replace(free=6 * one)
        monkeypatch.setattr(extracts.shutil, "disk_usage", lambda _: space)
    else:
        calls: list[Any] = []
        put = extracts._write_at

        def full(*arguments: Any) -> None:
            calls.append(arguments)
            if len(calls) > 6:
                raise OSError(28, "No space left on device")
            put(*arguments)

        monkeypatch.setattr(extracts, "_write_at", full)
    with fetch_inputs(root, SCHEMA, [(file, None) for file in files], spill) as local_copies:
        assert local_copies == {}
        assert list(spill.iterdir()) == []


def test_missing_or_torn_file_raises_and_leaves_nothing(root: DistantRoot, spill: Path) -> None:
    first, second = (write_file(root, f"{n}.parquet") for n in range(2))
    place = Path(root.url_of(second.path))
    place.write_bytes(place.read_bytes()[:-50])
    for error in (DataError, StateMovedOnError):
        with (
            pytest.raises(error, match=second.path),
            fetch_inputs(root, SCHEMA, [(first, None), (second, None)], spill),
        ):
            raise AssertionError
        assert list(spill.iterdir()) == []
        place.unlink(missing_ok=True)
