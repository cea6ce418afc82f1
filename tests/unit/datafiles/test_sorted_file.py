"""Sorted rows that the engine writes as one file, beside the same rows written in steps."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.errors import EngineMemoryError
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.row_sizes import row_bytes
from sleeper.datafiles.verification import ExpectedFile, verify_file
from sleeper.datafiles.write import sorted_file
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.merged import KeyTap
from sleeper.datafiles.write.partitioned import (
    FileStrategy,
    WriteTarget,
    WrittenFile,
    write_sorted,
)
from sleeper.datafiles.write.sorted_file import RowTap, write_sorted_file
from sleeper.errors import DataError
from sleeper.partitions.partition import (
    Partition,
    new_partition_id,
    split_region,
    tree_from_split_points,
)
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema
from sleeper.storage.location import DataRoot

P = PrimitiveType
SCHEMA = Schema(
    (Field("key.word", P.STRING), Field("number", P.INT)),
    (Field("sort", P.LONG),),
    (
        Field("bytes", P.BYTE_ARRAY, nullable=True),
        Field("flag", P.BOOLEAN, nullable=True),
        Field("list", ListType(P.DOUBLE), nullable=True),
        Field("map", MapType(P.STRING, P.BYTE_ARRAY)),
    ),
)
LEAVES = [each for each in tree_from_split_points(SCHEMA, ["a", "b"]) if each.is_leaf]
ROWS = st.lists(
    st.tuples(
        st.text("abé\U0001f600", max_size=15),
        st.integers(-3, 3),
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.binary(max_size=20),
        st.none() | st.booleans(),
        st.none() | st.lists(st.floats(allow_nan=False), max_size=3),
        st.dictionaries(st.text("ab", max_size=15), st.binary(max_size=3), max_size=3),
    ),
    min_size=1,
    max_size=60,
)


@pytest.fixture(autouse=True)
def few_rows_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_file, "KEPT_BYTES_MAX", 0)


def make_table(rows: list[tuple[Any, ...]]) -> pa.Table:
    kind = arrow_schema(SCHEMA)
    # Tests need not give all columns.
    columns = zip(*((*row, None, {})[: len(kind)] for row in rows), strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, kind, strict=True)], kind)


def unsorted_rows(
    folder: Path, table: pa.Table, files: int = 3, memory_bytes: int = 2**30
) -> RowSort:
    """The rows in files whose columns are all optional, in small row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    unsorted = RowSort(SCHEMA, folder, EngineSettings(folder.parent / "spill", memory_bytes))
    optional = pa.schema([field.with_nullable(True) for field in table.schema])
    size = -(-table.num_rows // files)
    for number, start in enumerate(range(0, table.num_rows, size)):
        part, path = table.slice(start, size).cast(optional), folder / f"{number}.parquet"
        pq.write_table(part, path, row_group_size=7)
        unsorted.add_file(path, optional, part.num_rows, part.nbytes)
    return unsorted


def target(folder: Path, leaves: list[Partition] | None = None) -> WriteTarget:
    leaves = leaves or LEAVES
    layout = FileSettings(row_group_rows_max=1_000)
    return WriteTarget(DataRoot(folder), "table", SCHEMA, leaves, 1, layout)


def engine(folder: Path) -> EngineSettings:
    return EngineSettings(folder / "spill")


def references(written: WrittenFile) -> dict[str, int]:
    return {each.partition_id: each.rows for each in written.references}


@settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(ROWS)
def test_file_has_the_rows_and_facts_of_a_file_written_in_steps(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    folder = tmp_path_factory.mktemp("sorted [a]* ?é%20")
    unsorted = unsorted_rows(folder / "in", make_table(rows))
    direct = write_sorted_file(unsorted, target(folder / "direct"))
    assert direct is not None
    steps = unsorted.batches()
    strategy = FileStrategy.ONE_REFERENCE_PER_LEAF
    (other,) = write_sorted(steps, target(folder / "steps"), strategy)
    assert references(direct) == references(other)
    facts = [(f.rows, f.smallest_key, f.largest_key, f.sidecars) for f in (direct.file, other.file)]
    assert facts[0] == facts[1]
    assert verify_file(DataRoot(folder / "direct"), SCHEMA, ExpectedFile(direct.file)) == []
    ours = pq.ParquetFile(folder / "direct" / direct.file.path)
    theirs = pq.ParquetFile(folder / "steps" / other.file.path)
    assert ours.metadata.created_by.startswith("datafusion")
    assert ours.schema_arrow == theirs.schema_arrow
    assert [ours.schema.column(i).max_definition_level for i in range(5)] == [0, 0, 0, 1, 1]
    assert [ours.schema.column(i).path for i in range(5, 8)] == [
        "list.list.list",
        "map.key_value.key",
        "map.key_value.value",
    ]
    # The order of rows with equal keys is free.
    assert sorted(map(repr, ours.read().to_pylist())) == sorted(
        map(repr, theirs.read().to_pylist())
    )
    assert ours.read().select(range(3)).equals(theirs.read().select(range(3)))
    for suffix in (".filter", ".sketches"):
        content = [
            (folder / place / f"{each.file.path}{suffix}").read_bytes()
            for place, each in (("direct", direct), ("steps", other))
        ]
        assert content[0] == content[1]


def test_files_without_rows_are_not_the_sample(tmp_path: Path) -> None:
    table = make_table([("a", n, n, b"x", None) for n in range(100)])
    unsorted = RowSort(SCHEMA, tmp_path, engine(tmp_path))
    for number, rows in enumerate((0, 100, 0)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table.slice(0, rows), path)
        unsorted.add_file(path, table.schema, rows, table.nbytes)
    written = write_sorted_file(unsorted, target(tmp_path / "out"))
    assert written is not None
    assert written.file.rows == 100


def test_leaves_that_are_cut_on_a_later_field_have_their_rows(tmp_path: Path) -> None:
    (root,) = tree_from_split_points(SCHEMA, [])
    halves = split_region(root.region, 1, 0)
    leaves = [Partition(new_partition_id(), half) for half in halves]
    table = make_table([("a", n % 5 - 2, n, b"x", None) for n in range(100)])
    unsorted = unsorted_rows(tmp_path / "in", table)
    written = write_sorted_file(unsorted, target(tmp_path / "out", leaves))
    assert written is not None
    assert references(written) == {leaves[0].id: 40, leaves[1].id: 60}


def test_nothing_divides_or_sorts_the_rows_between_merge_and_writer(tmp_path: Path) -> None:
    table = make_table([("a", 1, n, None, None) for n in range(300)])
    (tmp_path / "spill").mkdir()
    unsorted = unsorted_rows(tmp_path / "in", table, memory_bytes=16_000)
    keys = KeyTap(SCHEMA, FileSettings().key_facts(SCHEMA), lambda _: None, with_sort_keys=True)
    with unsorted.frame() as rows:
        plan = _plan(RowTap(SCHEMA, keys, 10).above(rows))
    steps = [each.split(":")[0].strip() for each in plan]
    assert steps[:2] == ["ProjectionExec", "SortPreservingMergeExec"]
    assert "tap(" in plan[0]
    assert not {"RepartitionExec", "SortExec"} & set(steps)


def _plan(frame: Any) -> list[str]:
    return [each for each in frame.execution_plan().display_indent().splitlines() if each]


def test_wide_row_groups_are_left_to_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_file, "ROW_GROUP_BYTES_MAX", 100_000)
    monkeypatch.setattr("sleeper.datafiles.write.file._ROW_GROUP_ROWS_MIN", 10)
    narrow = [("a", 1, n, b"x", None) for n in range(3_000)]
    wide = [("b", 1, n, b"x" * 20_000, None) for n in range(10)]
    counts: list[int] = []
    for rows, is_written in ((narrow, True), (narrow + wide, False)):
        folder = tmp_path / str(is_written)
        unsorted = unsorted_rows(folder / "in", make_table(rows))
        out = target(folder / "out")
        written = write_sorted_file(unsorted, out, counts.append)
        assert (written is not None) == is_written
        assert len(_files(folder / "out")) == (4 if is_written else 0)
    assert sum(counts) == len(narrow)


def test_a_sort_that_leaves_no_memory_is_left_to_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise EngineMemoryError("out of memory")

    monkeypatch.setattr(sorted_file, "write_tapped", fail)
    unsorted = unsorted_rows(tmp_path / "in", make_table([("a", 1, 2, None, None)]))
    assert write_sorted_file(unsorted, target(tmp_path / "out")) is None


def test_lost_rows_fail_the_write_and_leave_no_file(tmp_path: Path) -> None:
    unsorted = unsorted_rows(
        tmp_path / "in", make_table([("a", 1, n, b"x", None) for n in range(9)])
    )
    unsorted.rows += 1
    with pytest.raises(DataError, match="sorted 9 rows of 10"):
        write_sorted_file(unsorted, target(tmp_path / "out"))
    assert _files(tmp_path / "out") == []


def test_few_rows_are_left_to_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = target(tmp_path / "out")
    monkeypatch.setattr(sorted_file, "KEPT_BYTES_MAX", 2**20)
    few = unsorted_rows(tmp_path / "few", make_table([("a", 1, 2, None, None)]))
    assert write_sorted_file(few, out) is None


def test_bytes_of_rows_contain_views_values_and_numbers() -> None:
    texts = pa.array(["", "x" * 100, None, "é"], pa.string_view())
    fields = [texts, pa.array([1, 2, 3, 4]), pa.array([True] * 4)]
    assert row_bytes([each.slice(1) for each in fields]).tolist() == [125, 25, 27]


def test_bytes_of_lists_and_maps_are_those_of_their_elements() -> None:
    lists = pa.array([[1], None, [], [2, 3]], pa.list_(pa.int64()))
    maps = pa.array([{"a": 1}, {"bc": 2, "": 3}, {}, {"d": 4}], pa.map_(pa.string(), pa.int32()))
    deep = pa.array([[[1]], [[1, 2], []], [], None], pa.list_(pa.list_(pa.int64())))
    expected = {
        "lists": [4 + 8, 4, 4, 4 + 16],
        "maps": [4 + 5 + 4, 4 + 6 + 4 + 4 + 4, 4, 4 + 5 + 4],
        "deep": [4 + 12, 4 + 20 + 4, 4, 4],
    }
    for name, column in (("lists", lists), ("maps", maps), ("deep", deep)):
        assert row_bytes([column]).tolist() == expected[name]
        assert row_bytes([column.slice(1, 2)]).tolist() == expected[name][1:3]


def _files(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]
