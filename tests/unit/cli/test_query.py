"""Queries and SQL from the command line."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sleeper.cli.main import app
from tests.unit.cli.conftest import Sleeper


@pytest.fixture
def full(cities: Sleeper, rows_file: Path) -> Sleeper:
    assert cities("ingest", "cities", rows_file).status == 0
    return cities


def test_key_option_accepts_quoted_values(full: Sleeper) -> None:
    result = full("query", "cities", "--key", '"Paris, Texas"', "--format", "json")
    assert result.status == 0
    assert result.rows == [{"city": "Paris, Texas", "year": 1999, "people": None}]
    assert result.stderr.startswith("1 row, ")
    assert result.stderr.endswith(" ms\n")


def test_overlapping_keys_and_ranges_print_each_row_once(full: Sleeper) -> None:
    result = full(
        *("query", "cities", "--key", "Oslo", "--range", "B:P", "--range", ":B"),
        *("--columns", "city", "--format", "csv"),
    )
    assert result.stdout == '"city"\n"Athens"\n"Oslo"\n'


def test_limit_zero_prints_no_rows(full: Sleeper) -> None:
    result = full("query", "cities", "--limit", "0", "--format", "json")
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr.startswith("0 rows, ")


def test_query_as_of_reads_an_old_version(full: Sleeper, rows_file: Path) -> None:
    full("ingest", "cities", rows_file, "--job-id", "again")
    assert len(full("query", "cities", "--as-of", "2", "--format", "json").rows) == 3
    assert len(full("query", "cities", "--format", "json").rows) == 6
    assert len(full("query", "cities", "--as-of", "0s", "--format", "json").rows) == 6
    for wrong, message in (
        ("99", "version 99"),
        ("0", "as of 0"),
        ("soon", "as of 'soon'"),
        ("2d", "as of 2d: the table did not exist"),
    ):
        refused = full("query", "cities", "--as-of", wrong)
        assert (refused.status, refused.stdout) == (1, "")
        assert message in refused.stderr


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl", "rows.txt"])
def test_suffix_of_the_output_file_selects_the_format(
    full: Sleeper, tmp_path: Path, name: str
) -> None:
    target = tmp_path / name
    result = full("query", "cities", "--columns", "city", "--output", target)
    assert (result.status, result.stdout) == (0, "")
    read = {
        ".parquet": lambda: pq.read_table(target)["city"].to_pylist(),
        ".csv": lambda: [line.strip('"') for line in target.read_text().splitlines()[1:]],
        ".jsonl": lambda: [json.loads(line)["city"] for line in target.read_text().splitlines()],
        ".txt": lambda: target.read_text().splitlines()[2:],
    }
    assert read[target.suffix]() == ["Athens", "Oslo", "Paris, Texas"]


def test_format_name_as_output_writes_to_stdout(full: Sleeper, tmp_path: Path) -> None:
    result = full("query", "cities", "--columns", "city", "--limit", "1", "--output", "json")
    assert result.rows == [{"city": "Athens"}]
    assert full("sql", "SELECT 1 AS one", "-o", "csv").stdout == '"one"\n1\n'
    assert not (tmp_path / "json").exists()
    assert full("sql", "SELECT 1 AS one", "-o", "./json", "--format", "json").stdout == ""
    assert (tmp_path / "json").read_text() == '{"one":1}\n'


def test_failed_query_keeps_the_output_file(full: Sleeper, tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    previous = target.read_text()
    assert full("query", "cities", "--columns", "town", "--output", target).status == 1
    assert target.read_text() == previous
    assert list(tmp_path.glob(".*.part")) == []


def test_unwritable_output_file_is_named(full: Sleeper, tmp_path: Path) -> None:
    target = tmp_path / "no" / "rows.csv"
    result = full("query", "cities", "--output", target)
    assert (result.status, result.stdout) == (1, "")
    assert result.stderr == f"error: cannot write {target}: no such file or directory\n"


def test_sql_as_of_reads_old_versions(full: Sleeper, rows_file: Path) -> None:
    full("ingest", "cities", rows_file, "--job-id", "again")
    statement = "SELECT count(*) AS n FROM cities"
    old = full("sql", statement, "--as-of", "2", "--format", "json")
    assert (old.status, old.rows) == (0, [{"n": 3}])
    assert full("sql", statement, "--as-of", "cities=3", "--format", "json").rows == [{"n": 6}]
    (read,) = full("sql", statement, "--explain", "--as-of", "2", "--output", "json").rows
    assert (read["version"], read["files_of"]) == (2, 1)
    for wrong, message in (("99", "version 99"), ("towns=2", "'towns'"), ("x", "as of 'x'")):
        refusals = full("sql", statement, "--as-of", wrong)
        assert (refusals.status, refusals.stdout) == (1, "")
        assert message in refusals.stderr


def test_sql_reads_all_tables(full: Sleeper) -> None:
    result = full(
        "sql", "SELECT sum(people) AS p FROM cities WHERE year = 2001", "--format", "json"
    )
    assert result.rows == [{"p": 1200}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query", "towns"], "'towns'"),
        (["query", "cities", "--key", "a,b"], "key 'a,b' has 2 values"),
        (["query", "cities", "--columns", "town"], "no field 'town'"),
        (["sql", "SELEC 1"], "SELEC"),
        (["sql", "SELECT * FROM towns"], "towns"),
    ],
)
def test_invalid_queries_fail_with_one_line(
    full: Sleeper, arguments: list[str], message: str
) -> None:
    result = full(*arguments)
    assert (result.status, result.stdout) == (1, "")
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_explain_prints_the_files_read(full: Sleeper) -> None:
    statement = "SELECT people FROM cities WHERE city = 'Oslo'"
    result = full("sql", "--explain", statement, "--output", "json")
    (row,) = result.rows
    assert (row["report"], row["table"], row["leaves"], row["leaves_of"]) == (
        *("explanation", "cities"),
        *(1, 2),
    )
    assert full("sql", "--explain", statement, "--format", "json").rows[0]["files"] == 1
    assert full("sql", "--explain", statement).stdout.startswith("1 row in ")
    assert full("sql", "--explain", statement, "--output", "x.csv").status == 2
    assert "invalid SQL" in full("sql", "--explain", "SELEC 1").stderr


@pytest.mark.parametrize("command", [("query", "cities"), ("sql", "SELECT * FROM cities")])
def test_unknown_endings_of_output_files_are_refused(
    full: Sleeper, tmp_path: Path, command: tuple[str, ...]
) -> None:
    for name in ("rows.xlsx", "rows.parqet"):
        result = full(*command, "--output", tmp_path / name)
        assert result.status == 2
        assert f"unknown ending {Path(name).suffix}" in result.stderr
        assert list(tmp_path.glob("rows.[xp]*")) == []
    assert full(*command, "--output", tmp_path / "a.xlsx", "--format", "csv").status == 0


def test_huge_limits_are_refused(full: Sleeper) -> None:
    for command in (("query", "cities"), ("report", "ingest-jobs"), ("table", "history", "cities")):
        result = full(*command, "--limit", 10**30)
        assert (result.status, result.stdout) == (2, "")
        assert "--limit" in result.stderr


def test_sql_reads_the_statement_of_a_file_or_of_standard_input(
    full: Sleeper, tmp_path: Path
) -> None:
    statement = "SELECT count(*) AS n\nFROM cities\n"
    file = tmp_path / "count.sql"
    file.write_text(statement)
    for option in ("-f", "--file"):
        assert full("sql", option, file, "--format", "json").rows == [{"n": 3}]
    read = CliRunner().invoke(app, ["sql", "-", "--format", "json"], input=statement)
    assert read.stdout == '{"n":3}\n'
    missing = full("sql", "--file", tmp_path / "none.sql")
    assert (missing.status, "none.sql" in missing.stderr) == (1, True)
    for wrong in ([], ["SELECT 1", "--file", file]):
        assert full("sql", *wrong).status == 2


def test_strings_of_a_region_are_plain_unless_it_says_otherwise(full: Sleeper) -> None:
    plain = '{"city":{"min":"Oslo","max":"P"}}'
    encoded = '{"city":{"min":"T3Nsbw==","max":"UA=="},"stringsBase64Encoded":true}'
    for region in (plain, encoded):
        result = full("query", "cities", "--region", region, "--columns", "city", "-o", "json")
        assert (result.status, result.rows) == (0, [{"city": "Oslo"}]), result.stderr
    refused = full("query", "cities", "--region", "[]")
    assert (refused.status, "must be a JSON object" in refused.stderr) == (1, True)


def test_parameters_of_a_statement(full: Sleeper) -> None:
    statement = "SELECT city FROM cities WHERE city = $name"
    found = full("sql", statement, "--param", "name=Oslo", "--format", "json")
    assert {row["city"] for row in found.rows} == {"Oslo"}
    text = "SELECT $a AS a, $b AS b, $c AS c, $d AS d"
    options = ["--param", "a=1", "--param", "b=x=y", "--param", 'c="1"', "--param", "d=NaN"]
    (row,) = full("sql", text, *options, "--format", "json").rows
    assert row == {"a": 1, "b": "x=y", "c": "1", "d": "NaN"}
    for wrong, message in ((["name"], "NAME=VALUE"), (["name=1", "name=2"], "given twice")):
        arguments = [each for value in wrong for each in ("--param", value)]
        refused = full("sql", statement, *arguments)
        assert refused.status == 2
        assert message in refused.stderr
    missing = full("sql", statement)
    assert (missing.status, "$name has no value" in missing.stderr) == (1, True)


def test_an_option_of_sql_is_explained(full: Sleeper) -> None:
    result = full("query", "cities", "--where", "people > 5")
    assert result.status == 2
    assert "conditions on values: sleeper sql" in " ".join(result.stderr.split())
    assert "Possible options" not in result.stderr
