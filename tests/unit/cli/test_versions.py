"""`sleeper undo`, `sleeper table restore` and `sleeper table reinitialise`."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sleeper


@pytest.fixture
def loaded(cities: Sleeper, tmp_path: Path) -> Sleeper:
    file = tmp_path / "rows.csv"
    file.write_text("city,year,people\nLima,2000,1\nOslo,2000,2\n")
    assert cities("ingest", "cities", file, "--job-id", "load").status == 0
    return cities


def count(cities: Sleeper) -> int:
    return len(cities("query", "cities", "--format", "json").rows)


def test_an_old_version_is_restored(loaded: Sleeper) -> None:
    assert loaded("delete", "cities", "--key", "Lima").status == 0
    result = loaded("table", "restore", "cities", "--to", "2", "--id", "r")
    assert result.stderr == "restored version 2 of cities: transaction 4 (restore r)\n"
    again = loaded("table", "restore", "cities", "--to", "2", "--id", "r")
    assert again.stderr == "restore r is already done: transaction 4\n"
    newest = loaded("table", "restore", "cities", "--to", "4")
    assert newest.stderr == "nothing to restore: version 4 of cities is the newest\n"
    future = loaded("table", "restore", "cities", "--to", "9")
    assert future.stderr == "error: version 9 does not exist yet: the newest is 4\n"
    assert loaded("table", "restore", "cities").status == 2
    assert count(loaded) == 2


def test_a_job_is_undone(loaded: Sleeper) -> None:
    assert loaded("undo", "load").stderr == "undid job load in cities: transaction 3\n"
    assert count(loaded) == 0
    again = loaded("undo", "load", "--table", "cities")
    assert again.stderr == "nothing to undo: no row of job load is in cities\n"
    assert "no table has an ingest or import with the id 'x'" in loaded("undo", "x").stderr


def test_a_table_is_reinitialised(loaded: Sleeper) -> None:
    result = loaded("table", "reinitialise", "cities", "--yes", "--id", "e")
    assert result.stderr == "removed all rows of cities: transaction 3\n"
    assert count(loaded) == 0
    again = loaded("table", "reinitialise", "cities", "--yes", "--id", "e")
    assert again.stderr == "reinitialisation e is already done: transaction 3\n"
    assert loaded("table", "reinitialise", "none").status == 1
