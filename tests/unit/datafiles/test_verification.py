"""Verification finds and locates every kind of damage."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.verification import ExpectedFile, FileFault, verify_file
from sleeper.files import DataFile
from sleeper.partitions.partition import ROOT_PARTITION_ID, Partition, tree_from_split_points
from sleeper.partitions.region import whole_region
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests import foreign_arrays
from tests.tables.data_table import DataTable
from tests.unit.conftest import MakeTable

SCHEMA = Schema(
    (Field("a", PrimitiveType.LONG), Field("b", PrimitiveType.STRING)),
    (),
    (Field("v", PrimitiveType.STRING),),
)
ROWS = [(i // 10, f"é{i:05d}") for i in range(1000)]


@pytest.fixture
def table_with_file(make_table: MakeTable) -> tuple[DataTable, DataFile]:
    table = make_table(schema=SCHEMA)
    (file,) = table.ingest(ROWS, row_group_rows=100)
    return table, file


def verify(table: DataTable, file: DataFile, **expected: Any) -> list[FileFault]:
    return verify_file(table.root, SCHEMA, ExpectedFile(file, **expected))


def rewrite_file(table: DataTable, file: DataFile, rows: list[tuple[int | None, str]]) -> None:
    """Puts other rows in the file's place, a hundred a row group."""
    columns = [list(c) for c in zip(*rows, strict=True)]
    values = ["v"] * len(rows)
    kind = pa.schema([f.with_nullable(True) for f in arrow_schema(SCHEMA)])
    path = table.root.url_of(file.path)
    pq.write_table(pa.table([*columns, values], schema=kind), path, row_group_size=100)


def test_whole_file_has_no_fault_and_all_rows_are_read(
    table_with_file: tuple[DataTable, DataFile],
) -> None:
    table, file = table_with_file
    row_counts: list[int] = []
    root = Partition(ROOT_PARTITION_ID, whole_region(SCHEMA))
    expected = ExpectedFile(file, ((root, 1000),))
    assert verify_file(table.root, SCHEMA, expected, row_counts.append) == []
    assert sum(row_counts) == 1000


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
def test_flipped_bit_of_a_page_is_reported_with_its_row_group(
    table_with_file: tuple[DataTable, DataFile], column: int, place: float
) -> None:
    table, file = table_with_file
    path = Path(table.root.url_of(file.path))
    chunk = pq.ParquetFile(path).metadata.row_group(7).column(column)
    content = bytearray(path.read_bytes())
    # The chunk's end is its data page, its start a header or a dictionary.
    at = chunk.data_page_offset + int(40 + place * (chunk.total_compressed_size - 60) / 2)
    content[at] ^= 1
    path.write_bytes(content)
    (fault,) = verify(table, file)
    assert (fault.path, fault.row_group) == (file.path, 7)
    assert "cannot be read" in fault.fault


def test_wrong_row_count_is_reported(table_with_file: tuple[DataTable, DataFile]) -> None:
    table, file = table_with_file
    rewrite_file(table, file, ROWS[:-1])
    assert [f.fault for f in verify(table, file)] == ["it has 999 rows: the state says 1000"]


@pytest.mark.parametrize(("at", "group"), [(0, 0), (99, 0), (100, 1), (550, 5), (998, 9)], ids=str)
def test_rows_out_of_order_are_reported_with_their_row_group(
    table_with_file: tuple[DataTable, DataFile], at: int, group: int
) -> None:
    table, file = table_with_file
    rows = list(ROWS)
    rows[at], rows[at + 1] = rows[at + 1], rows[at]
    rewrite_file(table, file, rows)
    (fault,) = verify(table, file)
    result = (at + 1) // 100
    assert (fault.fault, fault.row_group) == ("its rows are not in key order", result)


def test_keys_outside_the_bounds_are_reported(table_with_file: tuple[DataTable, DataFile]) -> None:
    table, file = table_with_file
    narrow = replace(file, largest_key=(99, "é00998"))
    (fault,) = verify(table, narrow)
    assert (fault.row_group, "'b'" in fault.fault) == (9, True)
    wide = replace(file, smallest_key=(1, "é00000"))
    assert [f.row_group for f in verify(table, wide)] == [0]


def test_null_keys_are_reported(table_with_file: tuple[DataTable, DataFile]) -> None:
    table, file = table_with_file
    rewrite_file(table, file, [*ROWS[:500], (None, "é00500"), *ROWS[501:]])
    assert any("has nulls" in f.fault and f.row_group == 5 for f in verify(table, file))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("text-not-utf8", "row 2: field 'text': "),
        ("key-not-utf8", "row 2: field 'key': "),
        ("list-not-utf8", "row 2: field 'tags': "),
        ("decimal-digits", "row 2: field 'amount': "),
        ("map-with-equal-keys", "row 2: field 'counts': [('a', 2), ('a', 3)]: duplicate key"),
    ],
)
def test_stored_values_that_no_field_has_are_reported_with_their_row(
    make_table: MakeTable, name: str, fault: str
) -> None:
    table = make_table(schema=foreign_arrays.SCHEMA)
    good, bad = foreign_arrays.GOOD, foreign_arrays.BAD[name].rows()
    (file,) = table.ingest_sorted(pa.Table.from_batches([good]))
    rows = pa.Table.from_arrays(bad.columns, schema=good.schema)
    pq.write_table(rows, table.root.url_of(file.path), row_group_size=1)
    faults = verify_file(table.root, foreign_arrays.SCHEMA, ExpectedFile(file))
    assert [each.row_group for each in faults if each.fault.startswith(fault)] == [1]


def test_rows_in_another_partition_are_reported(
    table_with_file: tuple[DataTable, DataFile],
) -> None:
    table, file = table_with_file
    leaves = [p for p in tree_from_split_points(SCHEMA, [50]) if p.is_leaf]
    good = tuple((leaf, 500) for leaf in leaves)
    assert verify(table, file, partitions=good) == []
    bad = ((leaves[0], 499), (leaves[1], 501))
    assert [f.fault for f in verify(table, file, partitions=bad)] == [
        f"500 of its rows are in partition {leaves[0].id}: the state says 499",
        f"500 of its rows are in partition {leaves[1].id}: the state says 501",
    ]


@pytest.mark.parametrize("damage", ["gone", "empty", "torn", "text"])
def test_file_without_complete_footer_is_reported(
    table_with_file: tuple[DataTable, DataFile], damage: str
) -> None:
    table, file = table_with_file
    path = Path(table.root.url_of(file.path))
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "torn": content[:-50], "text": b"PAR1 no PAR1"}[damage])
    (fault,) = verify(table, file)
    expected = "it is not there" if damage == "gone" else "its footer cannot be read"
    assert fault.fault.startswith(expected)


@pytest.mark.parametrize("damage", ["gone", "torn"])
@pytest.mark.parametrize("suffix", [".sketches", ".filter"])
def test_unreadable_sidecar_is_reported_by_name(
    table_with_file: tuple[DataTable, DataFile], suffix: str, damage: str
) -> None:
    table, file = table_with_file
    path = Path(table.root.url_of(file.path + suffix))
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:30])
    (fault,) = verify(table, file)
    assert fault.path == file.path + suffix


def test_key_filter_that_excludes_keys_is_reported(
    table_with_file: tuple[DataTable, DataFile],
) -> None:
    table, file = table_with_file
    assert ".filter" in file.sidecars
    (other,) = table.ingest([(a + 1000, "x") for a in range(1000)])
    root = table.root.folder
    (root / (file.path + ".filter")).write_bytes((root / (other.path + ".filter")).read_bytes())
    (fault,) = verify(table, file)
    assert (fault.fault, fault.row_group) == ("its key filter denies keys that it holds", 0)


def test_wrong_columns_are_reported(table_with_file: tuple[DataTable, DataFile]) -> None:
    table, file = table_with_file
    pq.write_table(pa.table({"a": [1], "b": [2]}), table.root.url_of(file.path))
    (fault,) = verify(table, file)
    assert fault.fault.startswith("its columns are a int64, b int64: expected a int64, b string")
