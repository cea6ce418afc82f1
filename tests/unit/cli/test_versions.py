"""`sleeper undo`, and `sleeper table restore`, `clone` and `reinitialise`."""

from contextlib import closing
from pathlib import Path

import pytest

from sleeper.opening import open_instance
from sleeper.tables import TableRef, TableState, new_table_id
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


def test_a_table_is_reinitialised_with_split_points(loaded: Sleeper, tmp_path: Path) -> None:
    points = tmp_path / "points.txt"
    points.write_text("B\nQ\n")
    options = ("--yes", "--split-points", points)
    assert loaded("table", "reinitialise", "cities", *options).status == 0
    (row,) = loaded("table", "list", "--output", "json").rows
    assert (row["rows"], row["leaves"]) == (0, 4)
    points.write_text("Q\nB\n")
    refused = loaded("table", "reinitialise", "cities", *options)
    assert refused.stderr == "error: split points must be in ascending order: 'B' follows 'Q'\n"


def test_a_table_is_cloned(loaded: Sleeper) -> None:
    result = loaded("table", "clone", "cities", "towns", "--as-of", "2")
    assert result.stderr.startswith("cloned version 2 of cities as towns: 1 file, ")
    assert loaded("delete", "cities", "--all").status == 0
    assert len(loaded("query", "towns", "--format", "json").rows) == 2
    again = loaded("table", "clone", "cities", "towns")
    assert again.stderr == "error: table 'towns' already exists\n"


def test_an_unfinished_clone_is_listed_and_deleted(loaded: Sleeper, tmp_path: Path) -> None:
    with closing(open_instance(str(tmp_path / "here"))) as instance:
        unfinished = TableRef(new_table_id(), "towns", state=TableState.CREATING)
        instance.tables.index.create(unfinished)
    listed = loaded("table", "list", "--output", "json").rows
    assert [(row["name"], row["state"]) for row in listed] == [
        ("cities", "active"),
        ("towns", "creating"),
    ]
    assert "1 table, 1 being created" in loaded("table", "list").stdout
    assert loaded("table", "delete", "towns", "--yes").status == 0
    assert "1 table, 1 being deleted" in loaded("table", "list").stdout
    assert loaded("table", "delete", "towns", "--yes").status == 1
