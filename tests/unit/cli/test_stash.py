"""`sleeper stash`: what it prints, and its exit statuses."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sleeper.cli.main import app
from sleeper.stash.layout import root_name
from tests.unit.cli.conftest import SCHEMA, Sleeper


@pytest.fixture
def here(tmp_path: Path, sleeper: Sleeper) -> Path:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "a.csv").write_text("city,year,people\nParis,2020,5\n")
    assert sleeper("table", "create", "cities", "--schema", tmp_path / "schema.json").status == 0
    assert sleeper("ingest", "cities", tmp_path / "a.csv").status == 0
    return tmp_path


def test_a_failed_stash_names_the_command_that_continues_it(sleeper: Sleeper, here: Path) -> None:
    """A file stands where the table's directory would be."""
    destination = here / "stash"
    (data,) = here.rglob("*.parquet")
    shutil.move(data, here / "moved")
    failed = sleeper("stash", "run", "--destination", destination)
    assert failed.status == 1
    (listed,) = sleeper("stash", "status", "--output", "json").rows
    name = listed["stash"]
    assert f"can be continued: sleeper stash recover {name}\n" in failed.stderr
    assert (listed["state"], listed["tasks"], listed["destination"]) == (
        "interrupted",
        "0/1",
        str(destination),
    )
    assert "table 'cities'" in listed["reason"]
    assert "interrupted: table 'cities'" in sleeper("stash", "status", name).stdout
    shutil.move(here / "moved", data)
    again = sleeper("stash", "recover")
    assert (again.status, again.stdout) == (0, f"{name}\n")
    assert again.stderr.startswith("1 row of 1 table in 1 file, ")
    latest = sleeper("stash", "latest", "--destination", destination)
    assert latest.stdout == f"{name}\n"
    (listed,) = sleeper("stash", "status", "--output", "json").rows
    assert (listed["state"], listed["format"]) == ("complete", "json")
    table = sleeper("stash", "status", name, "--output", "json").rows[0]
    assert (table["table"], table["state"], table["rows"]) == ("cities", "done", 1)
    refused = sleeper("stash", "recover", name)
    assert refused.stderr == f"error: stash {name} was completed (make another one)\n"


def test_files_are_described_and_printed_as_they_are_stored(sleeper: Sleeper, here: Path) -> None:
    destination = here / "stash"
    sleeper("stash", "run", "--destination", destination, "--exclude", "tmp_*")
    (path,) = destination.rglob("*.json.gz")
    place = ("--destination", destination)
    described = sleeper("stash", "describe", "cities", *place, "--count-rows", "--output", "json")
    (split,) = sleeper("stash", "splits", "cities", *place).stdout.splitlines()
    assert described.rows == [
        {
            "report": "stashed-files",
            "uri": path.as_uri(),
            "bytes": path.stat().st_size,
            "rows": 1,
            "split": split,
        }
    ]
    text = sleeper("stash", "describe", "cities", *place).stdout
    assert text.startswith(
        f"cities at transaction 2 in {path.parent.as_uri()}: 1 file, 1 row, json"
    )
    for more in ([], ["--split", split]):
        scan = ["stash", "scan", "cities", "--destination", str(destination), "--raw"]
        assert CliRunner().invoke(app, [*scan, *more]).stdout_bytes == path.read_bytes()


def test_a_damaged_stash_is_listed_with_a_warning(sleeper: Sleeper, here: Path) -> None:
    destination = here / "stash"
    name = sleeper("stash", "run", "--destination", destination, "--format", "parquet").stdout[:-1]
    (table,) = sleeper("stash", "tables", "--destination", destination, "--output", "json").rows
    assert table["format"] == "parquet"
    (destination / name / "_SUCCESS").write_text("")
    listed = sleeper("stash", "list", "--destination", destination, "--output", "json")
    assert [(each["stash"], each["isComplete"]) for each in listed.rows] == [(name, False)]
    assert listed.stderr.startswith(f"warning: stash {name} is ignored: ")


def test_a_submitted_stash_is_cancelled(sleeper: Sleeper, here: Path) -> None:
    destination = here / "stash"
    made = sleeper("stash", "run", "--destination", destination, "--submit")
    name = made.stdout.strip()
    assert made.stderr.startswith("submitted: workers make it")
    second = sleeper("stash", "run", "--destination", destination)
    assert second.status == 1
    assert f"error: stash {name} of {destination} is being made since" in second.stderr
    assert sleeper("stash", "cancel").stderr == f"cancelled stash {name} of {destination}\n"
    (listed,) = sleeper("stash", "status", "--output", "json").rows
    assert listed["state"] == "cancelled"
    nothing = sleeper("stash", "cancel")
    assert nothing.stderr == "error: the instance has no stash that has not ended\n"
    other = sleeper("stash", "status", root_name(0), "--destination", here / "elsewhere")
    assert other.stderr == "error: the instance has no stash 1970-01-01-00-00-00\n"
