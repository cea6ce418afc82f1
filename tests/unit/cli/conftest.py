"""Fixtures that run the `sleeper` command in this process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sleeper.cli.main import app

SCHEMA = {
    "rowKeyFields": [{"name": "city", "type": "StringType"}],
    "sortKeyFields": [{"name": "year", "type": "IntType"}],
    "valueFields": [{"name": "people", "type": "LongType", "nullable": True}],
}


@dataclass(frozen=True)
class CommandResult:
    """The exit status and output of a command."""

    status: int
    stdout: str
    stderr: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Returns the objects on standard output, which must be JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]


Sleeper = Callable[..., CommandResult]


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sleeper:
    """Creates an instance and returns a function that runs commands on it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLEEPER_DEBUG", raising=False)
    monkeypatch.setenv("SLEEPER_INSTANCE", str(tmp_path / "here"))

    def run(*arguments: object) -> CommandResult:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        return CommandResult(result.exit_code, result.stdout, result.stderr)

    assert run("instance", "create", "--id", "me").status == 0
    return run


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return path


@pytest.fixture
def cities(sleeper: Sleeper, schema_file: Path) -> Sleeper:
    """Creates a table `cities` with two leaves."""
    points = schema_file.with_name("splits.txt")
    points.write_text("M\n")
    created = sleeper(
        "table", "create", "cities", "--schema", schema_file, "--split-points", points
    )
    assert (created.status, created.stdout) == (0, "")
    return sleeper


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text('city,year,people\nOslo,2001,500\nAthens,2001,700\n"Paris, Texas",1999,\n')
    return path
