"""Tables that are created like files, and ingests of irregular files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sleeper.cli.main import app
from tests.unit.cli.conftest import Sleeper

LATIN = 'city;day;celsius;note\nOslo;1;-3,5;"a;b"\nSão Paulo;2;;été\n'.encode("cp1252")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a folder of files with different columns, delimiters and encodings."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.csv").write_bytes(LATIN)
    (folder / "b.csv.gz").write_bytes(gzip.compress(b"day,city,wind\r\n3,Oslo,4\r\n"))
    (folder / "c.tsv").write_text("city\tday\nRome\t4\n")
    (folder / "d.jsonl").write_text('{"city": "Pune", "day": 5, "wind": 1.5}\n')
    pq.write_table(pa.table({"city": ["Lima"], "day": [6], "wet": [True]}), folder / "e.parquet")
    (folder / "empty.csv").write_text("")
    return folder


def test_folder_of_files_becomes_a_table_with_two_commands(sleeper: Sleeper, folder: Path) -> None:
    created = sleeper("table", "create", "t", "--like", f"{folder}/*", "--key", "city,day")
    assert created.status == 0, created.stderr
    schema = json.loads(created.stdout)
    assert schema["rowKeyFields"] == [
        {"name": "city", "type": "StringType"},
        {"name": "day", "type": "LongType"},
    ]
    assert [(f["name"], f["type"], f["nullable"]) for f in schema["valueFields"]] == [
        ("celsius", "StringType", True),
        ("note", "StringType", True),
        ("wind", "DoubleType", True),
        ("wet", "BooleanType", True),
    ]
    assert "a.csv: csv, delimiter ';', encoding cp1252, header, 2 rows\n" in created.stderr
    assert "b.csv.gz: csv, delimiter ',', encoding utf-8, header, 1 row\n" in created.stderr
    assert "empty.csv: csv, empty\n" in created.stderr
    assert created.stderr.splitlines()[-1] == f"next: sleeper ingest t '{folder}/*'"
    ingested = sleeper("ingest", "t", f"{folder}/*")
    assert ingested.status == 0, ingested.stderr
    rows = sleeper("query", "t", "--format", "json").rows
    assert [(r["city"], r["day"], r["wind"]) for r in rows] == [
        ("Lima", 6, None),
        ("Oslo", 1, None),
        ("Oslo", 3, 4),
        ("Pune", 5, 1.5),
        ("Rome", 4, None),
        ("São Paulo", 2, None),
    ]
    assert [r["note"] for r in rows if r["note"]] == ["a;b", "été"]


def test_dry_run_prints_the_schema_and_creates_nothing(sleeper: Sleeper, folder: Path) -> None:
    arguments = ("--like", folder / "a.csv", "--key", "city", "--sort", "day")
    result = sleeper("table", "create", "t", *arguments, "--type", "day=IntType", "--dry-run")
    assert result.status == 0
    assert json.loads(result.stdout)["sortKeyFields"] == [{"name": "day", "type": "IntType"}]
    assert "São Paulo" in result.stderr
    assert "created" not in result.stderr
    assert sleeper("table", "list", "--output", "json").rows == []


def test_dates_and_numbers_of_other_countries_get_a_hint(sleeper: Sleeper, tmp_path: Path) -> None:
    rows = tmp_path / "de.csv"
    rows.write_text("ort;tag;preis;name\nUlm;24.12.2025;1.234,50;a\nBonn;1.2.2026;2,75;b\n")
    result = sleeper("table", "create", "t", "--like", rows, "--key", "ort", "--dry-run")
    assert "column 'tag' looks like dates such as 24.12.2025, and becomes text" in result.stderr
    assert "column 'preis' looks like numbers with a decimal comma" in result.stderr
    assert "'name' looks" not in result.stderr
    assert "'ort' looks" not in result.stderr


def test_printed_schema_creates_the_same_table(
    sleeper: Sleeper, folder: Path, tmp_path: Path
) -> None:
    sleeper("table", "create", "one", "--like", folder, "--key", "city", "--sort", "day")
    printed = sleeper("table", "show", "one", "--schema").stdout
    (tmp_path / "again.json").write_text(printed)
    assert sleeper("table", "create", "two", "--schema", tmp_path / "again.json").status == 0
    assert sleeper("table", "show", "two", "--schema").stdout == printed
    # Changed fields have ids, which a new table keeps.
    sleeper("table", "drop-field", "one", "note")
    sleeper("table", "add-field", "one", "n", "LongType", "--default", "7")
    printed = sleeper("table", "show", "one", "--schema").stdout
    (tmp_path / "changed.json").write_text(printed)
    assert sleeper("table", "create", "three", "--schema", tmp_path / "changed.json").status == 0
    assert sleeper("table", "show", "three", "--schema").stdout == printed


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--schema", "s.json", "--like", "a.csv"),
        ("--schema", "s.json", "--key", "a"),
        ("--schema", "s.json", "--dry-run"),
        ("--schema", "s.json", "--delimiter", ";"),
        ("--like", "a.csv", "--key", "a", "--type", "a"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    sleeper: Sleeper, folder: Path, arguments: tuple[str, ...]
) -> None:
    assert sleeper("table", "create", "t", *arguments).status == 2


def test_missing_key_lists_the_columns(sleeper: Sleeper, folder: Path) -> None:
    result = sleeper("table", "create", "t", "--like", folder / "c.tsv")
    assert result.status == 1
    assert result.stderr.endswith(
        "error: no row key is named (expected some of the columns city StringType, day LongType)\n"
    )


def test_file_without_a_header_is_ingested_again_as_it_was_created(
    sleeper: Sleeper, tmp_path: Path
) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("Oslo|1\nLima|2\n")
    said = ("--format", "csv")
    created = sleeper("table", "create", "a", "--like", path, "--key", "column0", *said)
    assert created.stderr.endswith(f"next: sleeper ingest a {path} --format csv\n")
    assert sleeper("ingest", "a", path, *said).status == 0
    assert [r["column1"] for r in sleeper("query", "a", "--format", "json").rows] == [2, 1]
    said = ("--format", "csv", "--delimiter", "|", "--columns", "city,day")
    created = sleeper("table", "create", "b", "--like", path, "--key", "city", *said)
    assert f"next: sleeper ingest b {path} --format csv --delimiter '|'" in created.stderr
    assert sleeper("ingest", "b", path, *said).status == 0
    assert [r["city"] for r in sleeper("query", "b", "--format", "json").rows] == ["Lima", "Oslo"]


def test_submitted_job_is_read_with_its_options(sleeper: Sleeper, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_bytes("city~day~note\nŁódź~1~é\n".encode("cp1250"))
    said = ("--format", "csv", "--delimiter", "~", "--encoding", "cp1250")
    path = tmp_path / "*.txt"
    sleeper("table", "create", "t", "--like", path, "--key", "city", *said)
    assert sleeper("ingest", "t", path, "--submit", *said, "--job-id", "j").status == 0
    assert sleeper("run", "--until-idle").status == 0
    (row,) = sleeper("query", "t", "--format", "json").rows
    assert row == {"city": "Łódź", "day": 1, "note": "é"}
    other = sleeper("ingest", "t", path, "--format", "csv", "--job-id", "j")
    assert "job id j was used" in other.stderr
    assert sleeper("ingest", "t", path, *said, "--job-id", "j").status == 0


def test_pattern_without_a_file_is_an_error(sleeper: Sleeper, cities: Sleeper) -> None:
    for more in ((), ("--submit",), ("--batch",)):
        result = cities("ingest", "cities", "no/*.csv", *more)
        assert result.status == 1
        assert "no file matches" in result.stderr
        assert result.stderr.rstrip().endswith("no/*.csv")


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_standard_input_is_ingested(
    cities: Sleeper, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    arguments = ("ingest", "cities", "-", "--format", "csv", "--job-id", "j")
    for _ in range(2):
        result = CliRunner().invoke(app, arguments, input=compress(b"city;year\nOslo;1\n"))
        assert result.exit_code == 0, result.stderr
    assert "already committed" in result.stderr
    assert [r["city"] for r in cities("query", "cities", "--format", "json").rows] == ["Oslo"]
    assert not list((tmp_path / "here").rglob("standard-input*"))
    refused = cities("ingest", "cities", "-")
    assert "file - has no known format (expected --format" in refused.stderr
    assert cities(*arguments, "--submit").status == 2


def test_nested_columns_are_json_or_kept_as_text(sleeper: Sleeper, tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"id": 1, "v": {"a": [1, null], "b": "x\\"y"}}\n{"id": 2, "v": "plain"}\n')
    nested = pa.table({"id": [3, 4], "v": [{"a": 1.5, "b": None}, None]})
    pq.write_table(nested, tmp_path / "b.parquet")
    created = sleeper("table", "create", "j", "--like", tmp_path / "b.parquet", "--key", "id")
    assert "JSONType" in created.stdout + created.stderr
    said = ("--nested", "json")
    created = sleeper(
        "table", "create", "t", "--like", tmp_path / "b.parquet", "--key", "id", *said
    )
    assert created.status == 0
    for name in ("a.jsonl", "b.parquet"):
        result = sleeper("ingest", "t", tmp_path / name)
        assert result.status == 1
        assert name in result.stderr
        assert "'v'" in result.stderr
        assert "--nested json" in result.stderr
        assert sleeper("ingest", "t", tmp_path / name, *said).status == 0
    found = [r["v"] for r in sleeper("query", "t", "--format", "json").rows]
    assert found == ['{"a": [1, null], "b": "x\\"y"}', "plain", '{"a":1.5,"b":null}', None]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_nullable_columns_may_be_missing(cities: Sleeper, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"city": ["Oslo"], "year": [1]}), path)
    else:
        path.write_text(
            "city,year\nOslo,1\n" if name.endswith("csv") else '{"city":"Oslo","year":1}\n'
        )
    assert cities("ingest", "cities", path).status == 0
    assert cities("query", "cities", "--format", "json").rows == [
        {"city": "Oslo", "year": 1, "people": None}
    ]


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["create", "dry-run"])
def test_damaged_pages_are_reported_with_the_name_of_the_file(
    sleeper: Sleeper, tmp_path: Path, more: list[str]
) -> None:
    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"k": range(1000)}), path, use_dictionary=False)
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    content = path.read_bytes()
    path.write_bytes(content[:start] + b"\xff" * 30 + content[start + 30 :])
    result = sleeper("table", "create", "t", "--like", path, "--key", "k", *more)
    assert (result.status, f"error: file {path}: cannot be read: " in result.stderr) == (1, True)
