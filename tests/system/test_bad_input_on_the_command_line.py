"""Bad input on the command line: status 1, one line on standard error, the job tracked."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sleeper.cli.main import app
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from tests.system.bad_days import SCHEMA, count_rows, make_table, write


def failing(instance: Instance, *arguments: object) -> str:
    """Runs a command that fails and returns its standard error."""
    result = CliRunner().invoke(app, ["--instance", instance.where, *map(str, arguments)])
    assert result.exit_code == 1, (result.exit_code, result.stdout, result.stderr)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_a_bad_file_fails_the_command_and_is_reported(instance: Instance, tmp_path: Path) -> None:
    make_table(instance)
    bad = write(tmp_path / "bad.parquet", [("a", 1), (None, 2)])
    assert "bad.parquet" in failing(instance, "ingest", "rows", bad, "--job-id", "j")
    report = ["--instance", instance.where, "report", "ingest-jobs", "--output", "json"]
    (line,) = CliRunner().invoke(app, report).stdout.splitlines()
    job = json.loads(line)
    assert (job["job"], job["state"]) == ("j", "rejected")
    assert "'k'" in job["reason"]
    assert not count_rows(instance)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["ingest", "none", "FILE"], "none"),
        (["ingest", "rows", "missing.parquet"], "missing.parquet"),
        (["ingest", "rows", "missing.parquet", "--submit"], "missing.parquet"),
        (["ingest", "\udcff", "FILE"], "is not Unicode text"),
        (["ingest", "rows", "FILE", "--job-id", "\udcff"], "'\\udcff' is not Unicode text"),
        (["query", "none"], "none"),
        (["query", "rows", "--range", "b:a"], "'k'"),
        (["query", "rows", "--as-of", "99"], "99"),
        (["query", "rows", "--columns", "nonsense"], "nonsense"),
        (["sql", "SELECT * FROM nonsense"], "nonsense"),
        (["table", "set", "rows", "sleeper.table.nonsense=1"], "sleeper.table.nonsense"),
        (["table", "get", "rows", "sleeper.table.nonsense"], "sleeper.table.nonsense"),
        (["table", "delete", "none"], "none"),
        (["table", "create", "rows", "--schema", "SCHEMA"], "rows"),
        (["table", "create", "new", "--schema", "BAD"], "row key"),
        (["compact", "none"], "none"),
    ],
)
def test_an_invalid_request_prints_one_line_and_changes_nothing(
    instance: Instance, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    make_table(instance)
    files = {
        "FILE": write(tmp_path / "a.parquet", [("a", 1)]),
        "SCHEMA": tmp_path / "schema.json",
        "BAD": tmp_path / "bad.json",
    }
    files["SCHEMA"].write_text(SCHEMA)
    files["BAD"].write_text('{"rowKeyFields": []}')
    with instance.table("rows").state.reading() as state:
        original = state.number
    assert reason in failing(instance, *(files.get(a, a) for a in arguments))
    with instance.table("rows").state.reading() as state:
        assert state.number == original
    assert [ref.name for ref in instance.tables.index.list()] == ["rows"]
    assert all(job.job_id for job in instance.jobs.tracker.recent(JobKind.INGEST))
