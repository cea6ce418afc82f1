"""`sleeper stash prune`, `schedule` and `request`."""

from pathlib import Path

import pytest

from sleeper.stash.layout import Success
from tests.unit.cli.conftest import Sleeper

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A destination of two complete stashes, and one whose `_SUCCESS` is damaged."""
    for day in (1, 2):
        root = tmp_path / "stash" / f"2001-01-0{day}-00-00-00"
        root.mkdir(parents=True)
        success = Success(day * DAY_MS, day * DAY_MS, "test")
        (root / "_SUCCESS").write_bytes(success.to_bytes())
        (root / "_TABLES").write_text("{}")
        (tmp_path / "stash" / "_LATEST").write_text(root.name)
    damaged = tmp_path / "stash" / "2001-01-03-00-00-00"
    damaged.mkdir()
    (damaged / "_SUCCESS").write_text("")
    return tmp_path / "stash"


def test_old_stashes_are_deleted_and_listed(sleeper: Sleeper, place: Path) -> None:
    command = ("stash", "prune", "--destination", place, "--older-than", "7d")
    tried = sleeper(*command, "--dry-run")
    assert tried.stdout.startswith(f"{place}: would delete 1 stash older than 7d\n")
    result = sleeper(*command, "--output", "json")
    assert result.status == 0
    (deleted,) = result.rows
    assert deleted == {
        "report": "pruned-stashes",
        "stash": "2001-01-01-00-00-00",
        "isComplete": True,
        "oldSince": "1970-01-03T00:00:00.000Z",
        "files": 1,
        "bytes": 2,
        "otherFiles": 0,
    }
    assert result.stderr.startswith(f"warning: stash 2001-01-03-00-00-00 of {place} is kept: ")
    assert sleeper(*command).stdout == f"{place}: deleted 0 stashes older than 7d\n"


def test_a_wrong_age_is_refused(sleeper: Sleeper, place: Path) -> None:
    result = sleeper("stash", "prune", "--destination", place, "--older-than", "7")
    assert result.status == 1
    assert result.stderr == "error: age '7' is invalid (expected a duration such as 7d)\n"


def test_a_schedule_is_set_listed_and_removed(
    sleeper: Sleeper, schema_file: Path, place: Path
) -> None:
    sleeper("table", "create", "cities", "--schema", schema_file)
    command = ("stash", "schedule", "--destination", place)
    options = (
        "--table",
        "cities",
        "--atomic",
        "--only-if-requested",
        "--keep",
        "7d",
        "--format",
        "parquet",
    )
    result = sleeper(*command, "cron(0 6 1 1 ? 2199)", *options)
    assert result.stderr == (
        f"stashes of {place} are made on schedule cron(0 6 1 1 ? 2199), next at "
        "2199-01-01T06:00:00.000Z\n"
    )
    request = ("stash", "request", "--destination", place, "--by", "alice")
    requested = "requested the next scheduled stash of"
    assert sleeper(*request).stderr == f"alice has {requested} {place}\n"
    assert sleeper(*request).stderr == f"alice has already {requested} {place}\n"
    (listed,) = sleeper("stash", "schedule", "--output", "json").rows
    assert listed == {
        "report": "stash-schedules",
        "destination": str(place),
        "schedule": "cron(0 6 1 1 ? 2199)",
        "next": "2199-01-01T06:00:00.000Z",
        "last": None,
        "state": None,
        "onlyIfRequested": True,
        "requestedBy": ["alice"],
        "tables": ["cities"],
        "exclude": None,
        "atomic": True,
        "format": "parquet",
        "keep": "7d",
    }
    assert "alice" in sleeper("stash", "schedule").stdout
    assert sleeper(*request, "--withdraw").stderr == "withdrew the request of alice\n"
    assert sleeper(*request, "--withdraw").stderr == "alice has no request\n"
    assert sleeper(*command, "none").stderr == f"removed the schedule of {place}\n"
    assert sleeper("stash", "schedule").stdout == "0 schedules\n"


def test_wrong_schedules_and_requests_are_refused(sleeper: Sleeper, place: Path) -> None:
    result = sleeper("stash", "schedule", "1d")
    assert result.status == 2
    assert "a schedule needs --destination" in result.stderr
    assert sleeper("stash", "schedule", "--exclude", "tmp_*").status == 2
    result = sleeper("stash", "schedule", "--destination", place, "often")
    assert result.status == 1
    assert result.stderr.startswith("error: schedule 'often' is invalid (expected a duration")
    for command in (("request",), ("request", "--withdraw"), ("schedule", "none")):
        result = sleeper("stash", *command, "--destination", place)
        assert result.status == 1
        assert f"destination {place} has no schedule" in result.stderr


def test_a_daily_stash_is_the_default(sleeper: Sleeper, place: Path) -> None:
    result = sleeper("stash", "schedule", "--destination", place, "--exclude", "tmp_*")
    (listed,) = sleeper("stash", "schedule", "--output", "json").rows
    assert (listed["tables"], listed["exclude"]) == (None, ["tmp_*"])
    assert "on schedule cron(0 0 * * ? *), next at 2" in result.stderr
    assert result.stderr.endswith("T00:00:00.000Z\n")


def test_a_user_without_a_name_gives_one(
    sleeper: Sleeper, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper("stash", "schedule", "--destination", place)
    monkeypatch.setenv("LOGNAME", "alice")
    assert sleeper("stash", "request", "--destination", place).stderr.startswith("alice has")
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31)
    result = sleeper("stash", "request", "--destination", place)
    assert result.status == 2
    assert "the user has no name" in result.stderr
