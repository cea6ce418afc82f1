"""Commands in unusual environments, and the files and output they leave behind."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.api import create_instance
from tests.child_processes import python_path

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "from sleeper.cli.main import main; main()")
ROWS = 200_000

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an instance `inst`, and `rows.parquet`, whose rows its table `rows` holds."""
    created = tmp_path_factory.mktemp("surroundings")
    numbers = pa.array(range(ROWS), pa.int64())
    pq.write_table(pa.table({"k": numbers, "v": numbers}), created / "rows.parquet")
    field = {"type": "LongType"}
    schema = {"rowKeyFields": [{"name": "k", **field}], "valueFields": [{"name": "v", **field}]}
    with create_instance(created / "inst") as instance:
        instance.create_table("rows", schema).ingest(str(created / "rows.parquet"))
    return created


@pytest.fixture
def run(folder: Path) -> Run:
    def command(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        environment = {
            **{name: value for name, value in os.environ.items() if name != "SLEEPER_DEBUG"},
            "PYTHONPATH": python_path(ROOT / "core"),
            "SLEEPER_INSTANCE": str(folder / "inst"),
            **options.pop("environment", {}),
        }
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    return command


def _no_large_files() -> None:
    # Python ignores the signal, so that writing fails as it does on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


def test_commands_leave_nothing_in_the_spill_folder(folder: Path, run: Run) -> None:
    assert run("query", "rows", "--limit", "1").returncode == 0
    assert run("sql", "SELECT * FROM rows ORDER BY v DESC LIMIT 1").returncode == 0
    assert run("ingest", "rows", "rows.parquet", "--job-id", "again").returncode == 0
    assert run("query", "rows", "--columns", "nonsense").returncode == 1
    ours = f"{os.getpid()}@"  # the fixture's, which is at work still
    left = [f.name for f in (folder / "inst" / "spill").iterdir()]
    assert [name for name in left if not name.startswith(ours)] == []


def test_an_output_larger_than_the_disk_is_named_and_removed(folder: Path, run: Run) -> None:
    process = run("query", "rows", "--output", "out.csv", preexec_fn=_no_large_files)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == "error: cannot write out.csv: file too large\n"
    assert not list(folder.glob("*out.csv*"))


def test_an_ingest_that_does_not_fit_on_the_disk_changes_nothing(run: Run) -> None:
    process = run("ingest", "rows", "rows.parquet", "--job-id", "large", preexec_fn=_no_large_files)
    assert process.returncode == 1
    again_command, error = process.stderr.splitlines()
    assert again_command.endswith("sleeper ingest rows rows.parquet --job-id large")
    assert error.startswith("error: ")
    assert "too large" in error.lower()
    again = run("ingest", "rows", "rows.parquet", "--job-id", "large")
    assert again.stderr.startswith(f"{ROWS:,} rows in 1 file into rows")


def test_a_terminal_of_zero_lines_shows_a_report(run: Run) -> None:
    process = run("report", "tables", environment={"PYTHONIOENCODING": "latin-1"})
    assert (process.returncode, process.stderr) == (0, "")
    lines = process.stdout.splitlines()
    assert lines[0] == "1 table"
    assert set(lines[2]) == {"?"}
    assert lines[3].startswith("rows ")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_commands_run_with_closed_standard_streams(
    run: Run, tmp_path: Path, closed: tuple[int, ...]
) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    output = tmp_path / "rows.csv"
    arguments = ("sql", "SELECT min(k) AS k FROM rows", "--output", str(output))
    result = run(*arguments, preexec_fn=close)
    assert (result.returncode, result.stdout) == (0, "")
    assert output.read_text() == '"k"\n0\n'
    assert ("1 row" in result.stderr) == (2 not in closed)
