"""Ingest from the command line."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import UnavailableError
from sleeper.ingest.service import ingest_paths
from tests.unit.cli.conftest import Sleeper


def test_missing_file_error_suggests_a_similar_name(cities: Sleeper, rows_file: Path) -> None:
    result = cities("ingest", "cities", rows_file.with_name("row.csv"))
    assert result.status == 1
    assert result.stderr.endswith("row.csv does not exist; did you mean rows.csv?\n")
    result = cities("ingest", "cities", "no/such/folder.csv")
    assert result.stderr.endswith("no/such/folder.csv does not exist\n")


def test_ingest_adds_rows_and_prints_a_summary_to_stderr(cities: Sleeper, rows_file: Path) -> None:
    result = cities("ingest", "cities", rows_file, "--job-id", "j1")
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr.startswith("3 rows in 1 file into cities: transaction 2, ")
    assert result.stderr.endswith("rows/s (job j1)\n")
    (job,) = cities("report", "ingest-jobs", "--output", "json").rows
    assert (job["job"], job["state"], job["rows_written"]) == ("j1", "committed", 3)


def test_repeated_job_id_adds_no_rows(cities: Sleeper, rows_file: Path) -> None:
    cities("ingest", "cities", rows_file, "--job-id", "j1")
    again = cities("ingest", "cities", rows_file, "--job-id", "j1")
    assert again.status == 0
    assert again.stderr == "job j1 was already committed by transaction 2: nothing changed\n"
    (table,) = cities("table", "list", "--output", "json").rows
    assert table["rows"] == 3


def test_invalid_row_rejects_the_job(cities: Sleeper, rows_file: Path) -> None:
    with rows_file.open("a") as file:
        file.write("Rome,MMXX,9\n")
    result = cities("ingest", "cities", rows_file)
    assert (result.status, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: file {rows_file}")
    assert "'year'" in result.stderr
    (job,) = cities("report", "ingest-jobs", "--output", "json").rows
    assert job["state"] == "rejected"
    (table,) = cities("table", "list", "--output", "json").rows
    assert table["rows"] == 0


def test_rejects_option_ingests_the_valid_rows(
    cities: Sleeper, rows_file: Path, tmp_path: Path
) -> None:
    with rows_file.open("a") as file:
        file.write("Rome,MMXX,9\n")
    rejects = tmp_path / "rejects.jsonl"
    result = cities("ingest", "cities", rows_file, "--rejects", rejects)
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr.endswith(f"1 row rejected: see {rejects}\n")
    (line,) = map(json.loads, rejects.read_text().splitlines())
    assert (line["file"], line["row"]) == (str(rows_file), 4)
    (table,) = cities("table", "list", "--output", "json").rows
    assert table["rows"] == 3


def test_report_counts_rejected_rows(cities: Sleeper, rows_file: Path, tmp_path: Path) -> None:
    with rows_file.open("a") as file:
        file.write("Rome,MMXX,9\nBari,MMXX,9\n")
    cities("ingest", "cities", rows_file, "--rejects", tmp_path / "rejects.jsonl")
    (job,) = cities("report", "ingest-jobs", "--output", "json").rows
    assert (job["rows_written"], job["rows_rejected"]) == (3, 2)


def test_job_without_a_valid_row_is_rejected(cities: Sleeper, tmp_path: Path) -> None:
    path, rejects = tmp_path / "bad.csv", tmp_path / "rejects.jsonl"
    path.write_text("city,year,people\nRome,MMXX,9\nBari,MMXX,9\n")
    result = cities("ingest", "cities", path, "--rejects", rejects)
    assert result.status == 1
    assert "error: no row fits the table: 2 rejected; the first: file" in result.stderr
    assert len(rejects.read_text().splitlines()) == 2
    (job,) = cities("report", "ingest-jobs", "--output", "json").rows
    assert job["state"] == "rejected"
    assert f"{path}, row 1: field 'year'" in job["reason"]


def test_rejects_max_limits_the_rejected_rows(
    cities: Sleeper, rows_file: Path, tmp_path: Path
) -> None:
    with rows_file.open("a") as file:
        file.write("Rome,MMXX,9\nBari,MMXX,9\n")
    command = ("ingest", "cities", rows_file, "--rejects", tmp_path / "rejects.jsonl")
    result = cities(*command, "--rejects-max", 1)
    assert result.status == 1
    assert "error: too many rejected rows (expected at most 1); the first: file" in result.stderr
    assert cities("table", "list", "--output", "json").rows[0]["rows"] == 0
    assert cities(*command, "--rejects-max", 2).status == 0
    assert cities("ingest", "cities", rows_file, "--rejects-max", 2).status == 2


def test_unwritable_rejects_file_is_an_error(
    cities: Sleeper, rows_file: Path, tmp_path: Path
) -> None:
    result = cities("ingest", "cities", rows_file, "--rejects", tmp_path / "no" / "where")
    assert result.status == 1
    where = tmp_path / "no" / "where"
    assert result.stderr == f"error: {where}: no such file or directory\n"
    (table,) = cities("table", "list", "--output", "json").rows
    assert table["rows"] == 0


def test_submit_queues_the_job_and_prints_its_id(cities: Sleeper, rows_file: Path) -> None:
    result = cities("ingest", "cities", rows_file, "--submit", "--job-id", "j9")
    assert (result.status, result.stdout, result.stderr) == (0, "j9\n", "")
    (job,) = cities("report", "ingest-jobs", "--output", "json").rows
    assert (job["job"], job["state"], job["files"]) == ("j9", "created", 1)
    assert len(cities("ingest", "cities", rows_file, "--submit").stdout.strip()) == 32


@pytest.mark.parametrize("more", [[], ["--submit"]])
def test_missing_files_and_tables_are_named(
    cities: Sleeper, tmp_path: Path, more: list[str]
) -> None:
    missing = cities("ingest", "cities", tmp_path / "no.csv", *more)
    assert (missing.status, missing.stdout) == (1, "")
    assert missing.stderr == f"error: file {tmp_path / 'no.csv'} does not exist\n"
    unknown = cities("ingest", "towns", tmp_path / "no.csv", *more)
    assert (unknown.status, unknown.stdout) == (1, "")
    assert "'towns'" in unknown.stderr


def test_repeated_job_keeps_the_rejects_file(
    cities: Sleeper, rows_file: Path, tmp_path: Path
) -> None:
    with rows_file.open("a") as file:
        file.write("Rome,MMXX,9\n")
    rejects = tmp_path / "rejects.jsonl"
    rejects.write_text("of an earlier try\n")
    command = ("ingest", "cities", rows_file, "--job-id", "j1", "--rejects", rejects)
    assert cities(*command).status == 0
    (line,) = rejects.read_text().splitlines()
    assert "already committed" in cities(*command).stderr
    assert rejects.read_text() == f"{line}\n"


def test_batch_submits_files_to_the_batcher(cities: Sleeper, rows_file: Path) -> None:
    result = cities("ingest", "cities", rows_file, "--batch")
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr == "submitted 1 file to the ingest batcher\n"
    assert cities("report", "ingest-jobs", "--output", "json").rows == []
    assert cities("ingest", "cities", "nowhere.csv", "--batch").status == 1
    assert cities("ingest", "cities", rows_file, "--batch", "--submit").status == 2


@pytest.mark.parametrize(
    ("error", "status", "last"),
    [
        (UnavailableError("no answer"), 1, "error: no answer\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_unconfirmed_ingest_prints_a_safe_retry_command(
    cities: Sleeper,
    rows_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
    last: str,
) -> None:
    """The commit succeeded, but its response was lost."""

    def lose_response(*arguments: Any) -> None:
        ingest_paths(*arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("sleeper.ingest.service.ingest_paths", lose_response)
        failed = cities("ingest", "cities", rows_file)
    assert (failed.status, failed.stdout) == (status, "")
    message, _, end = failed.stderr.partition("\n")
    assert end == last
    begin = "ingest not confirmed; to retry without adding rows twice, run: sleeper "
    assert message.startswith(begin)
    again = cities(*shlex.split(message.removeprefix(begin)))
    assert again.status == 0
    assert "was already committed" in again.stderr
    (table,) = cities("table", "list", "--output", "json").rows
    assert table["rows"] == 3


def test_unconfirmed_submit_prints_the_job_id(
    cities: Sleeper, rows_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsent(*_: object) -> None:
        raise UnavailableError("no answer")

    monkeypatch.setattr("sleeper.local.queue.LocalQueue.send", unsent)
    failed = cities("ingest", "cities", rows_file, "--submit", "--job-id", "monday")
    assert failed.status == 1
    assert f"sleeper ingest cities {rows_file} --submit --job-id monday\n" in failed.stderr


def test_rejected_job_prints_no_retry_command(cities: Sleeper, rows_file: Path) -> None:
    rows_file.write_text("city,year,people\nRome,MMXX,9\n")
    assert "job id" not in cities("ingest", "cities", rows_file).stderr


def test_json_output_describes_the_job(cities: Sleeper, rows_file: Path) -> None:
    arguments = ("ingest", "cities", rows_file, "--job-id", "j1", "--output", "json")
    (result,) = cities(*arguments).rows
    assert result.pop("seconds") >= 0
    assert result == {
        "table": "cities",
        "job_id": "j1",
        "transaction": 2,
        "rows": 3,
        "files": 1,
        "rows_rejected": 0,
        "done_before": False,
    }
    (again,) = cities(*arguments).rows
    assert (again["done_before"], again["transaction"]) == (True, 2)
    submitted = cities("ingest", "cities", rows_file, "--job-id", "j2", "--submit", "-o", "json")
    assert submitted.rows == [{"table": "cities", "job_id": "j2"}]
    batched = cities("ingest", "cities", rows_file, "--batch", "-o", "json")
    assert batched.rows == [{"table": "cities", "files": 1}]
