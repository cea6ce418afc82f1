"""`sleeper split-points estimate`, whose output a new table takes."""

import base64
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.cli.conftest import Sleeper


def _schema(tmp_path: Path, kind: str) -> Path:
    file = tmp_path / "key.schema.json"
    file.write_text(json.dumps({"rowKeyFields": [{"name": "key", "type": kind}]}))
    return file


def _leaves(sleeper: Sleeper, schema: Path, points: Path) -> int:
    created = sleeper("table", "create", "new", "--schema", schema, "--split-points", points)
    assert created.status == 0, created.stderr
    rows = sleeper("report", "partitions", "--table", "new", "-o", "json").rows
    return len([row for row in rows if row["leaf"]])


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("LongType", [*range(1000)], ["250", "500", "750"]),
        ("StringType", [f"k{i:03}" for i in range(1000)], ["k250", "k500", "k750"]),
        (
            "ByteArrayType",
            [bytes([i, 255]) for i in range(100)],
            [base64.b64encode(bytes([i, 255])).decode() for i in (25, 50, 75)],
        ),
    ],
)
def test_points_divide_parquet_rows_into_equal_leaves(
    sleeper: Sleeper, tmp_path: Path, kind: str, values: list[object], expected: list[str]
) -> None:
    schema, points = _schema(tmp_path, kind), tmp_path / "splits.txt"
    pq.write_table(pa.table({"key": values}), tmp_path / "rows.parquet")
    arguments = ("split-points", "estimate", "--schema", schema, "--leaves", "4")
    printed = sleeper(*arguments, "rows.parquet")
    assert (printed.status, printed.stdout.split()) == (0, expected), printed.stderr
    assert sleeper(*arguments, "rows.parquet", "--output", points).stdout == ""
    assert points.read_text() == printed.stdout
    assert _leaves(sleeper, schema, points) == 4


def test_files_of_several_formats_count_by_their_rows(sleeper: Sleeper, tmp_path: Path) -> None:
    schema = _schema(tmp_path, "DateType")
    (tmp_path / "a.csv").write_text("key\n2026-01-01\n2026-01-02\n2026-01-03\n2026-01-04\n")
    (tmp_path / "b.jsonl").write_text(
        "".join(f'{{"key":"2026-02-0{day}"}}\n' for day in range(1, 5))
    )
    result = sleeper(
        "split-points", "estimate", "--schema", schema, "a.csv", "b.jsonl", "--leaves", "2"
    )
    assert (result.status, result.stdout) == (0, "2026-02-01\n"), result.stderr


def test_the_schema_can_be_that_of_a_table(cities: Sleeper, rows_file: Path) -> None:
    result = cities("split-points", "estimate", "cities", rows_file, "--leaves", "3")
    assert (result.status, result.stdout) == (0, "Oslo\nParis, Texas\n"), result.stderr


def test_strings_of_several_lines_need_base64(sleeper: Sleeper, tmp_path: Path) -> None:
    schema, points = _schema(tmp_path, "StringType"), tmp_path / "splits.txt"
    pq.write_table(pa.table({"key": ["a", "b\nc"]}), tmp_path / "rows.parquet")
    arguments = ("split-points", "estimate", "--schema", schema, "rows.parquet", "--leaves", "2")
    refused = sleeper(*arguments)
    assert (refused.status, refused.stdout, "--base64" in refused.stderr) == (1, "", True)
    assert sleeper(*arguments, "--base64", "--output", points).status == 0
    assert points.read_text() == base64.b64encode(b"b\nc").decode() + "\n"


def test_one_value_gives_no_split_point(sleeper: Sleeper, tmp_path: Path) -> None:
    schema = _schema(tmp_path, "LongType")
    (tmp_path / "rows.csv").write_text("key\n" + "7\n" * 20)
    result = sleeper("split-points", "estimate", "--schema", schema, "rows.csv", "--leaves", "8")
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr == "0 split points of key\n"


@pytest.mark.parametrize(
    ("files", "reason"), [(["none.csv"], "does not exist"), (["empty.csv"], "have no rows")]
)
def test_missing_and_empty_files_are_refused(
    sleeper: Sleeper, tmp_path: Path, files: list[str], reason: str
) -> None:
    (tmp_path / "empty.csv").write_text("key\n")
    schema = _schema(tmp_path, "LongType")
    result = sleeper("split-points", "estimate", "--schema", schema, *files, "--leaves", "8")
    assert (result.status, reason in result.stderr) == (1, True), result.stderr


def test_a_table_without_files_is_wrong_usage(cities: Sleeper) -> None:
    assert cities("split-points", "estimate", "cities", "--leaves", "8").status == 2
