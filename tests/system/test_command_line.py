"""The `sleeper` command as users run it: a process a command, on real data."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo.flights import UNKNOWN_AIRCRAFT, PreparedData, prepare
from sleeper.jobs.status import TaskStatus
from sleeper.opening import open_instance
from tests.child_processes import python_path

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "from sleeper.cli.main import main; main()")
FLIGHTS_OF_JANUARY = 27_004
FLIGHTS_OF_FEBRUARY = 24_951

Process = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class CommandLine:
    """Runs commands on one instance."""

    instance: Path

    @property
    def environment(self) -> dict[str, str]:
        remaining = {name: value for name, value in os.environ.items() if name != "SLEEPER_DEBUG"}
        return {
            **remaining,
            "PYTHONPATH": python_path(ROOT / "core"),
            "SLEEPER_INSTANCE": str(self.instance),
        }

    def __call__(self, *arguments: object, status: int = 0) -> Process:
        process = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == status, process.stderr
        assert "Traceback" not in process.stderr
        return process

    def rows(self, *arguments: object) -> list[dict[str, Any]]:
        """Parses standard output as JSON lines; other text fails."""
        return [json.loads(line) for line in self(*arguments).stdout.splitlines()]

    def start(self, *arguments: object, **pipes: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([*COMMAND, *map(str, arguments)], env=self.environment, **pipes)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory, data: PreparedData) -> Path:
    """An instance with a table of flights, two months of them, which tests only copy."""
    command = CommandLine(tmp_path_factory.mktemp("created") / "instance")
    assert command("instance", "create").stdout == ""
    flights = data.table("flights")
    command("table", "create", "flights", "--schema", flights.schema_file)
    command("ingest", "flights", *flights.files[:2], "--job-id", "winter")
    return command.instance


@pytest.fixture
def sleeper(created: Path, tmp_path: Path) -> CommandLine:
    """On a copy of the instance."""
    return CommandLine(Path(shutil.copytree(created, tmp_path / "instance")))


@pytest.fixture(scope="module")
def flights(created: Path, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """The same for tests that do not mind each other."""
    folder = tmp_path_factory.mktemp("shared") / "instance"
    return CommandLine(Path(shutil.copytree(created, folder)))


def test_flights_are_ingested_compacted_and_queried(
    sleeper: CommandLine, data: PreparedData
) -> None:
    expected = FLIGHTS_OF_JANUARY + FLIGHTS_OF_FEBRUARY
    (job,) = sleeper.rows("report", "ingest-jobs", "--output", "json")
    assert (job["job"], job["state"], job["rows_written"]) == ("winter", "committed", expected)

    again = sleeper("ingest", "flights", *data.table("flights").files[:2], "--job-id", "winter")
    assert "was already committed" in again.stderr
    submission = sleeper("ingest", "flights", data.table("flights").files[2], "--submit")
    job_id = submission.stdout.strip()
    sleeper("table", "set", "flights", "sleeper.table.partition.splitting.threshold=30000")

    ran = sleeper("run", "--until-idle", "--workers", "2")
    assert ran.stdout == ""
    assert "no work left" in ran.stderr

    jobs = {row["job"]: row for row in sleeper.rows("report", "ingest-jobs", "--output", "json")}
    assert jobs[job_id]["state"] == "committed"
    expected += jobs[job_id]["rows_written"]
    partitions = sleeper.rows("report", "partitions", "--table", "flights", "--output", "json")
    leaves = [row for row in partitions if row["leaf"]]
    assert len(leaves) >= 4
    assert sum(row["rows"] + row["rows_above"] for row in leaves) == pytest.approx(expected, 0.01)
    (count,) = sleeper.rows("sql", "SELECT count(*) AS n FROM flights", "--format", "json")
    assert count["n"] == expected
    tasks = sleeper.rows("report", "tasks", "--output", "json")
    assert len(tasks) >= 2
    assert {task["state"] for task in tasks} == {"ended"}
    tree = sleeper("report", "partitions", "--table", "flights").stdout
    assert "├─" in tree
    assert "█" in tree

    old = sleeper.rows("query", "flights", "--as-of", "2", "--key", "N14228", "--format", "json")
    new = sleeper.rows("query", "flights", "--key", "N14228", "--format", "json")
    assert 0 < len(old) < len(new)
    assert [row["sched_dep"] for row in new] == sorted(row["sched_dep"] for row in new)


def test_an_invalid_message_becomes_a_rejected_job(sleeper: CommandLine, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.parquet"
    wrong.write_bytes(b"PAR1 and nothing else")
    job_id = sleeper("ingest", "flights", wrong, "--submit").stdout.strip()
    ran = sleeper("run", "--until-idle", "--workers", "1", status=1)
    assert f"ingest {job_id} of flights: rejected after" in ran.stderr
    assert ", 1 failure, 0 dead letters," in ran.stderr
    jobs = {row["job"]: row for row in sleeper.rows("report", "ingest-jobs", "--output", "json")}
    assert jobs[job_id]["state"] == "rejected"
    assert str(wrong) in jobs[job_id]["reason"]
    assert sleeper.rows("report", "dead-letters", "--output", "json") == []


@pytest.mark.parametrize("row_format", ["table", "csv", "json", "parquet"])
def test_closing_the_output_pipe_ends_the_query_without_an_error(
    flights: CommandLine, row_format: str
) -> None:
    query = flights.start(
        *("query", "flights", "--format", row_format),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert query.stdout is not None
    assert query.stdout.read(4)
    query.stdout.close()
    _, output = query.communicate(timeout=60)
    assert (query.returncode, output) == (0, b"")


def test_parquet_is_written_to_a_pipe(flights: CommandLine, tmp_path: Path) -> None:
    target = tmp_path / "flights.parquet"
    with target.open("wb") as file:
        query = flights.start(
            *("query", "flights", "--key", UNKNOWN_AIRCRAFT, "--format", "parquet"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output, errors = query.communicate(timeout=60)
        file.write(output)
    assert query.returncode == 0
    flights("table", "create", "unknown", "--schema", _schema_file(flights, tmp_path))
    back = flights("ingest", "unknown", target)
    assert back.stderr.split(" ")[0] == errors.decode().split(" ")[0]


def _schema_file(flights: CommandLine, folder: Path) -> Path:
    path = folder / "copy.schema.json"
    rows = flights.rows("table", "properties", "flights", "--output", "json")
    path.write_text(next(r["value"] for r in rows if r["property"] == "sleeper.table.schema"))
    return path


def _run_on_terminal(command: CommandLine, *arguments: object) -> tuple[int, str]:
    """Returns the exit status and the standard error of a command on a terminal."""
    ours, theirs = pty.openpty()
    process = command.start(*arguments, stdout=subprocess.DEVNULL, stderr=theirs, stdin=theirs)
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        output += part
    os.close(ours)
    return process.wait(timeout=60), output.decode(errors="replace")


def test_a_terminal_sees_progress(flights: CommandLine, data: PreparedData) -> None:
    status, output = _run_on_terminal(flights, "ingest", "flights", data.table("flights").files[3])
    assert status == 0
    assert "ingest into flights" in output
    assert "28,330 rows in 1 file into flights" in output


def test_parquet_to_a_terminal_is_refused(flights: CommandLine) -> None:
    ours, theirs = pty.openpty()
    query = flights.start(
        "query", "flights", "--format", "parquet", stdout=theirs, stderr=subprocess.PIPE
    )
    _, output = query.communicate(timeout=60)
    os.close(theirs)
    os.close(ours)
    assert query.returncode == 2
    assert b"cannot write Parquet to a terminal" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stops_cleanly_when_it_is_interrupted(
    flights: CommandLine, number: signal.Signals
) -> None:
    previous = len(_tasks(flights.instance))
    run = flights.start("run", "--workers", "1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _wait_until(lambda: len(_tasks(flights.instance)) > previous)
    run.send_signal(number)
    output, errors = run.communicate(timeout=60)
    assert (run.returncode, output) == (0, b"")
    assert b"Traceback" not in errors
    assert errors.splitlines()[-1:] == [b"stopped"] or b"\nstopped\n" in b"\n" + errors
    assert not any(task.running for task in _tasks(flights.instance))


def _tasks(instance: Path) -> list[TaskStatus]:
    """Returns the tasks, without a process that reports them."""
    opened = open_instance(instance)
    try:
        return list(opened.jobs.tasks.recent())
    finally:
        opened.close()


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
