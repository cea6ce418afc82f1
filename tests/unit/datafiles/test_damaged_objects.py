"""Random damage to sidecars, footers and snapshots: errors of this product, and no row is lost.

Each test runs for a bounded time and prints its seed.
"""

import contextlib
import hashlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from obstore.store import LocalStore

from sleeper.datafiles.leaf_keys import sample_keys
from sleeper.datafiles.remote.file_end import read_file_end, select_row_groups
from sleeper.datafiles.sidecars.checksum import checksum_from_bytes
from sleeper.datafiles.sidecars.key_filter import key_filter_from_bytes
from sleeper.datafiles.sidecars.sketches import (
    build_sketches,
    sketches_from_bytes,
    sketches_to_bytes,
)
from sleeper.datafiles.verification import ExpectedFile, verify_file
from sleeper.datafiles.write.file import FileSettings
from sleeper.errors import DataError, SleeperError
from sleeper.files import CHECKSUM_SUFFIX, FILTER_SUFFIX, SIDECAR_SUFFIXES, DataFile
from sleeper.partitions.region import Range, whole_region
from sleeper.query.request import Query, make_key_regions
from sleeper.query.run import run_query
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.database import Database
from sleeper.statestore.snapshots import SnapshotStore
from tests.seeds import choose_seed
from tests.tables.data_table import DataTable, list_rows, make_engine

P = PrimitiveType
SCHEMA = Schema((Field("s", P.STRING), Field("n", P.LONG)), (), (Field("v", P.STRING),))
ROWS = [(f"é{n:04d}", n, f"v{n}") for n in range(300)]
SECONDS = 1.0


def damage(content: bytes, chance: random.Random) -> bytes:
    """The content with some bits flipped, or cut, or with bytes lost, doubled or overwritten."""
    changed_content = bytearray(content)
    place, size = chance.randrange(len(content)), chance.randrange(1, 9)
    kind = chance.randrange(5)
    if kind == 0:
        for _ in range(chance.choice([1, 1, 1, 4])):
            changed_content[chance.randrange(len(changed_content))] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del changed_content[place:]
    elif kind == 2:
        del changed_content[place : place + size]
    elif kind == 3:
        changed_content[place:place] = changed_content[place : place + size]
    else:
        changed_content[place : place + size] = chance.randbytes(size)
    return bytes(changed_content)


@pytest.fixture
def chances() -> Iterator[random.Random]:
    """Chances for `SECONDS`."""
    seed = choose_seed()
    return _until(time.monotonic() + SECONDS, random.Random(seed))


def _until(end: float, chance: random.Random) -> Iterator[random.Random]:
    while time.monotonic() < end:
        yield chance


@pytest.fixture
def table(tmp_path: Path) -> DataTable:
    data_table = DataTable(tmp_path, SCHEMA, file_settings=FileSettings(row_group_rows_max=100))
    data_table.add_rows(ROWS)
    return data_table


def find_file(table: DataTable) -> DataFile:
    with table.store.reading() as state:
        (file,) = state.files.all()
    return file


def test_damaged_sketch_is_a_data_error(chances: Iterator[random.Random]) -> None:
    samples = [[r[0] for r in ROWS], [r[1] for r in ROWS]]
    content = sketches_to_bytes(SCHEMA, build_sketches(samples))
    within = Range("é0100", "é0200")
    for chance in chances:
        try:
            first, _ = sketches_from_bytes(SCHEMA, damage(content, chance), "f.sketches")
        except DataError:
            continue
        first.share(within)
        first.points(within)


@pytest.mark.parametrize("suffix", [FILTER_SUFFIX, CHECKSUM_SUFFIX])
def test_damaged_filter_or_checksum_is_a_data_error(
    table: DataTable, chances: Iterator[random.Random], suffix: str
) -> None:
    content = table.root.read(find_file(table).path + suffix)
    read: Callable[[bytes, str], Any] = {
        FILTER_SUFFIX: key_filter_from_bytes,
        CHECKSUM_SUFFIX: checksum_from_bytes,
    }[suffix]
    for chance in chances:
        changed_content = damage(content, chance)
        if changed_content != content:
            with pytest.raises(DataError, match=f"f{suffix}"):
                read(changed_content, f"f{suffix}")


def test_damaged_sidecars_lose_no_rows(
    table: DataTable, tmp_path: Path, chances: Iterator[random.Random]
) -> None:
    path = Path(table.root.url_of(find_file(table).path))
    sidecars = {suffix: path.with_name(path.name + suffix) for suffix in SIDECAR_SUFFIXES}
    contents = {suffix: sidecar.read_bytes() for suffix, sidecar in sidecars.items()}
    for chance in chances:
        for suffix, sidecar in sidecars.items():
            sidecar.write_bytes(damage(contents[suffix], chance))
        engine = make_engine(tmp_path, verifies_checksums=True)
        key = chance.choice(ROWS)
        query = Query(make_key_regions(SCHEMA, [key[:2]]))
        assert list_rows(run_query(query, table.query_table, engine).read_all()) == [key]


def test_damaged_footer_raises_sleeper_errors(
    table: DataTable, chances: Iterator[random.Random]
) -> None:
    file = find_file(table)
    path = Path(table.root.url_of(file.path))
    content = path.read_bytes()
    start = len(content) * 2 // 3
    regions = (*make_key_regions(SCHEMA, [ROWS[7][:2]]), whole_region(SCHEMA))
    for chance in chances:
        path.write_bytes(content[:start] + damage(content[start:], chance))
        damaged_file = DataFile(file.path, file.rows, path.stat().st_size, (), ())
        with contextlib.suppress(DataError):
            end = read_file_end(table.root, SCHEMA, damaged_file, verify=True)
            assert select_row_groups(end, regions)
            assert path.read_bytes() == content


def test_query_of_a_damaged_footer_raises_sleeper_errors(
    table: DataTable, tmp_path: Path, chances: Iterator[random.Random]
) -> None:
    path = Path(table.root.url_of(find_file(table).path))
    content = path.read_bytes()
    start = len(content) * 2 // 3
    for chance in chances:
        path.write_bytes(content[:start] + damage(content[start:], chance))
        for verifies in (False, True):
            engine = make_engine(tmp_path, verifies_checksums=verifies)
            try:
                rows = list_rows(run_query(Query(), table.query_table, engine).read_all())
            except SleeperError:
                continue
            assert rows == ROWS or not verifies


def test_key_sample_of_a_damaged_file_is_valid_or_raises(
    table: DataTable, chances: Iterator[random.Random]
) -> None:
    file = find_file(table)
    path = Path(table.root.url_of(file.path))
    content = path.read_bytes()
    for chance in chances:
        path.write_bytes(damage(content, chance))
        with contextlib.suppress(SleeperError):
            sample_keys(table.root, SCHEMA, file, whole_region(SCHEMA))


def test_verification_of_a_damaged_file_finds_faults(
    table: DataTable, chances: Iterator[random.Random]
) -> None:
    file = find_file(table)
    path = Path(table.root.url_of(file.path))
    content = path.read_bytes()
    for chance in chances:
        changed_content = damage(content, chance)
        path.write_bytes(changed_content)
        assert changed_content == content or verify_file(table.root, SCHEMA, ExpectedFile(file))


@pytest.mark.parametrize("is_renamed", [False, True])
def test_damaged_snapshot_is_skipped(
    tmp_path: Path,
    table: DataTable,
    chances: Iterator[random.Random],
    caplog: pytest.LogCaptureFixture,
    is_renamed: bool,
) -> None:
    """Renamed, so that its checksum fits: the state within it is damaged."""
    caplog.set_level(logging.ERROR)
    folder = tmp_path / "snapshots"
    store = LocalStore(folder, mkdir=True)
    snapshots = SnapshotStore(store, "t")
    number = snapshots.save(Database(table.state_path))
    (path,) = (folder / "t" / "snapshots").iterdir()
    content = path.read_bytes()
    state = zstandard.ZstdDecompressor().decompress(content)
    for chance in chances:
        path.unlink()
        if is_renamed:
            changed_content = zstandard.ZstdCompressor().compress(damage(state, chance))
            checksum = hashlib.sha256(changed_content).hexdigest()[:16]
        else:
            changed_content, checksum = damage(content, chance), path.name.split("-")[2][:16]
        path = path.with_name(f"{number:019d}-{'0' * 8}-{checksum}.db.zst")
        path.write_bytes(changed_content)
        into = tmp_path / "copy.db"
        try:
            result = SnapshotStore(store, "t").install_newest(into)
        except SleeperError:
            result = None
        assert is_renamed or changed_content == content or result is None
        into.unlink(missing_ok=True)
