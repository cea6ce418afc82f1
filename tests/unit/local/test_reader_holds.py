"""Reads of processes that may not write in the instance's folder, with and without holds."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.local.holds import HOLDS_FILE, READERS_FOLDER

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
KEYS = [0, 1, 2, 3]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[sleeper.Instance]:
    with sleeper.create_instance(tmp_path / "i") as instance:
        properties = {"sleeper.table.gc.delay.minutes": "0"}
        table = instance.create_table("rows", SCHEMA, properties, split_points=[2])
        table.ingest(rows(KEYS))
        yield instance


def rows(keys: list[int]) -> pa.Table:
    return pa.table({"k": keys, "v": [str(key) for key in keys]})


def replace_files(writer: sleeper.Instance, tmp_path: Path) -> int:
    """Replaces the files of the table's first ingest. Returns how many a collection leaves."""
    table, before = writer.table("rows"), set(tmp_path.rglob("*.parquet"))
    table.ingest(rows(KEYS))
    table.compact(full=True)
    writer.run_until_idle()
    table.gc()
    return len(before & set(tmp_path.rglob("*.parquet")))


def make_readers_folder(tmp_path: Path, mode: int) -> Path:
    folder = tmp_path / "i" / READERS_FOLDER
    folder.mkdir()
    folder.chmod(mode)
    return folder


def test_a_read_only_process_keeps_its_version_if_the_owner_lets_it(
    writer: sleeper.Instance, tmp_path: Path
) -> None:
    folder = make_readers_folder(tmp_path, 0o777)
    with (
        sleeper.open_instance(tmp_path / "i", read_only=True) as reading,
        reading.table("rows").reader() as reader,
    ):
        assert replace_files(writer, tmp_path) == 1
        assert sorted(reader.query().to_arrow()["k"].to_pylist()) == KEYS
        modes = {stat.S_IMODE(os.stat(path).st_mode) for path in folder.iterdir()}
        assert modes == {0o666}
        (hold,) = writer._ports.table("rows").state.holds.all()
        assert hold.is_floor
    assert list(writer._ports.table("rows").state.holds.all()) == []
    assert writer.table("rows").gc().files > 0


def test_the_owner_releases_holds_of_readers(writer: sleeper.Instance, tmp_path: Path) -> None:
    make_readers_folder(tmp_path, 0o777)
    state = writer._ports.table("rows").state
    with (
        sleeper.open_instance(tmp_path / "i", read_only=True) as reading,
        reading.table("rows").reader(),
    ):
        (hold,) = state.holds.all()
        state.holds.extend(hold.id, hold.expiry_ms + 1)
        assert [each.expiry_ms for each in state.holds.all()] == [hold.expiry_ms + 1]
        state.holds.release([hold.id])
        assert list(state.holds.all()) == []
        assert not (tmp_path / "i" / HOLDS_FILE).exists()


def test_a_read_only_process_without_holds_fails_if_its_files_are_collected(
    writer: sleeper.Instance, tmp_path: Path
) -> None:
    with (
        sleeper.open_instance(tmp_path / "i", read_only=True) as reading,
        reading.table("rows").reader() as reader,
    ):
        assert replace_files(writer, tmp_path) == 0
        with pytest.raises(InvalidRequestError, match="no longer readable"):
            reader.query().to_arrow()
        reader.refresh()
        assert reader.query().to_arrow().num_rows == 2 * len(KEYS)
