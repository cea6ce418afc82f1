"""Key files and sets of keys: which rows of a batch have one of the keys."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datafusion import DataFrame, SessionContext

from sleeper.datafiles import key_files
from sleeper.datafiles.arrow import arrow_schema, view_schema
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.key_files import KeyFileCache, keys_schema
from sleeper.datafiles.merge.deletes import open_deleted
from sleeper.datafiles.merge.frame import undeleted_predicate
from sleeper.datafiles.merge.key_sets import key_columns, listed_keys
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.write import key_file
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.key_file import write_key_file
from sleeper.errors import DataError, StateMovedOnError
from sleeper.files import KeyFile
from sleeper.partitions.region import key_region
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.location import DataRoot
from tests.seeds import choose_seed

PATH = "t/data/deletes/1767225600000-00000000000000aa.parquet"
TEXTS = ["", "\0", "a", "a\0", "ab", "b", "é", "\uffff", "\U0010ffff", "a long text, not in a view"]
VALUES: dict[PrimitiveType, list[Any]] = {
    PrimitiveType.STRING: TEXTS,
    PrimitiveType.BYTE_ARRAY: [text.encode() for text in TEXTS],
    PrimitiveType.INT: [-(2**31), -1, 0, 1, 2**31 - 1, *range(5, 90)],
    PrimitiveType.LONG: [-(2**63), -1, 0, 1, 2**63 - 1, *range(5, 90)],
}
INT, LONG, TEXT = PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.STRING
KINDS = [(LONG,), (INT,), (TEXT,), (PrimitiveType.BYTE_ARRAY,), (TEXT, INT), (INT, TEXT, LONG)]
Key = tuple[Any, ...]


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "_ROW_GROUP_KEYS", 7)


def make_schema(kinds: Sequence[PrimitiveType]) -> Schema:
    return Schema(
        tuple(Field(f"k{i}", kind) for i, kind in enumerate(kinds)), (), (Field("value", LONG),)
    )


def write(folder: Path, schema: Schema, keys: Sequence[Key]) -> tuple[DataRoot, KeyFile]:
    root = DataRoot(folder / "root")
    (folder / "spill").mkdir()
    engine = EngineSettings(folder / "spill")
    rows = RowSort(keys_schema(schema), folder / "spill", engine)
    kind = arrow_schema(keys_schema(schema))
    for start in range(0, len(keys), 40):
        columns = zip(*keys[start : start + 40], strict=True)
        arrays = [pa.array(c, t) for c, t in zip(columns, kind.types, strict=True)]
        rows.add_batches([pa.record_batch(arrays, schema=kind)])
    file = write_key_file(root, PATH, rows, FileSettings())
    assert file is not None
    return root, file


def batch(schema: Schema, rows: Sequence[Key]) -> list[pa.Array]:
    types = [view_schema(schema).field(f.name).type for f in schema.row_keys]
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return [pa.array(c, t) for c, t in zip(columns, types, strict=True)]


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: "-".join(k.value for k in kinds))
def test_rows_with_a_key_of_the_set_are_found(
    tmp_path: Path, kinds: tuple[PrimitiveType, ...]
) -> None:
    chosen = random.Random(f"{choose_seed()} {kinds}")
    schema = make_schema(kinds)

    def some(count: int) -> list[Key]:
        return [tuple(chosen.choice(VALUES[k]) for k in kinds) for _ in range(count)]

    keys = some(60)
    root, file = write(tmp_path, schema, keys + keys[:20])
    assert file.keys == len(set(keys))
    assert all(file.region.contains(key) for key in keys)
    source = KeyFileCache(10**6).open(root, schema, file)
    types = [arrow_schema(schema).field(f.name).type for f in schema.row_keys]
    in_memory = listed_keys(keys, types)
    for count in (1, 2, 3, 30, 200):
        for _ in range(6):
            rows = some(count) + [chosen.choice(keys) for _ in range(chosen.choice([0, 1, count]))]
            for are_in_order in (True, False):
                ordered = sorted(rows) if are_in_order else rows
                expected = [row in set(keys) for row in ordered]
                columns = key_columns(batch(schema, ordered), are_in_order)
                for each in (source, in_memory):
                    found = columns.find(each)
                    assert (
                        found.tolist() if found is not None else [False] * len(rows)
                    ) == expected


def test_a_lookup_reads_one_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = make_schema((LONG,))
    root, file = write(tmp_path, schema, [(k,) for k in range(0, 1000, 2)])
    source = KeyFileCache(10**6).open(root, schema, file)
    read: list[int] = []
    read_range = key_files.read_range
    monkeypatch.setattr(
        key_files, "read_range", lambda *each: read.append(each[3] - each[2]) or read_range(*each)
    )
    assert key_columns(batch(schema, [(502,)]), True).find(source) is not None
    assert key_columns(batch(schema, [(503,)]), True).find(source) is None
    assert len(read) == 1
    assert (
        key_columns(batch(schema, [(k,) for k in range(510, 640)]), True).find(source).sum() == 65
    )
    assert len(read) < 5


def test_the_cache_is_bounded(tmp_path: Path) -> None:
    schema = make_schema((LONG,))
    root, file = write(tmp_path, schema, [(k,) for k in range(1000)])
    for limit in (0, 2000):
        cache = KeyFileCache(limit)
        source = cache.open(root, schema, file)
        rows = [(k,) for k in range(-5, 2000)]
        found = key_columns(batch(schema, rows), True).find(source)
        assert found is not None
        assert found.sum() == 1000
        assert cache.bytes <= limit


def test_a_missing_or_damaged_key_file_is_an_error(tmp_path: Path) -> None:
    schema = make_schema((LONG,))
    root, file = write(tmp_path, schema, [(k,) for k in range(100)])
    deleted = [(file.region, file)]
    path = Path(root.url_of(PATH))
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    rows = open_deleted(schema, deleted, root, KeyFileCache(10**6))
    with pytest.raises(DataError, match=r"aa\.parquet is damaged"):
        rows.keep(*batch(schema, [(1,)]))
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"aa\.parquet is damaged"):
        open_deleted(schema, deleted, root, KeyFileCache(10**6))
    path.unlink()
    with pytest.raises(StateMovedOnError, match="missing"):
        open_deleted(schema, deleted, root, KeyFileCache(10**6))


def session_of(schema: Schema, rows: Sequence[Key]) -> DataFrame:
    names = [field.name for field in schema.row_keys]
    table = pa.Table.from_arrays(batch(schema, rows), names)
    return SessionContext().from_arrow(table)


def test_no_key_is_no_file(tmp_path: Path) -> None:
    schema = keys_schema(make_schema((TEXT,)))
    root = DataRoot(tmp_path)
    nothing = RowSort(schema, tmp_path, EngineSettings(tmp_path))
    assert write_key_file(root, PATH, nothing, FileSettings()) is None
    assert not Path(root.url_of(PATH)).exists()


def test_the_number_of_dropped_rows_is_counted(tmp_path: Path) -> None:
    schema = make_schema((LONG,))
    root, file = write(tmp_path, schema, [(k,) for k in range(0, 100, 2)])
    dropped: list[int] = []
    deleted = [
        (file.region, file),
        (key_region(schema, (2,)), None),
        (key_region(schema, (3,)), None),
    ]
    rows = open_deleted(schema, deleted, root, KeyFileCache(10**6))
    frame = session_of(schema, [(k,) for k in (*range(8), 101, 103)]).filter(
        undeleted_predicate(rows, view_schema(schema), dropped.append)
    )
    kept = pa.Table.from_batches(frame.collect())["k0"].to_pylist()
    assert kept == [1, 5, 7, 101, 103]
    assert sum(dropped) == 5
