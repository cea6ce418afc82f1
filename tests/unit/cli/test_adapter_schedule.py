"""`sleeper adapter schedule`, and runs that are submitted."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sleeper


@pytest.fixture(autouse=True)
def adapter(sleeper: Sleeper, schema_file: Path, tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text("city,year,people\nRome,1900,460000\n")
    assert sleeper("table", "create", "cities", "--schema", schema_file).status == 0
    created = sleeper("adapter", "create", "a", "--source", "cities.csv", "--sink", "cities")
    assert created.status == 0, created.stderr


def test_a_schedule_is_set_listed_and_removed(sleeper: Sleeper) -> None:
    result = sleeper("adapter", "schedule", "a", "cron(0 6 1 1 ? 2199)")
    assert result.stderr == (
        "adapter a runs on schedule cron(0 6 1 1 ? 2199), next at 2199-01-01T06:00:00.000Z\n"
    )
    (listed,) = sleeper("adapter", "list", "--output", "json").rows
    assert listed["schedule"] == "cron(0 6 1 1 ? 2199)"
    assert listed["next"].startswith("2199-01-01T06:00:00")
    (shown,) = sleeper("adapter", "show", "a", "--output", "json").rows
    assert set(shown["schedule"]) == {"expression", "setAt"}
    assert shown["schedule"]["setAt"].endswith("Z")
    assert sleeper("adapter", "schedule", "a", "none").stderr == (
        "removed the schedule of adapter a\n"
    )
    (listed,) = sleeper("adapter", "list", "--output", "json").rows
    assert listed["schedule"] is listed["next"] is None


def test_a_wrong_schedule_or_name_is_refused(sleeper: Sleeper) -> None:
    result = sleeper("adapter", "schedule", "a", "often")
    assert result.status == 1
    assert "error: schedule 'often' is invalid (expected a duration such as 15m" in result.stderr
    result = sleeper("adapter", "schedule", "b", "1h")
    assert result.status == 1
    assert "adapter 'b' does not exist" in result.stderr


def test_a_submitted_run_waits_in_the_queue_under_its_id(sleeper: Sleeper) -> None:
    result = sleeper("adapter", "run", "a", "--submit", "--run-id", "first")
    assert (result.status, result.stderr) == (0, "submitted run first of adapter a\n")
    queues = {row["queue"]: row for row in sleeper("report", "queues", "--output", "json").rows}
    assert queues["adapter"]["visible"] == 1
    (job,) = sleeper("report", "adapter-jobs", "--output", "json").rows
    assert (job["job"], job["state"]) == ("adapter-a:first", "created")
    shown = sleeper("adapter", "show", "a", "--output", "json").rows
    assert [json.loads(json.dumps(row))["run"] for row in shown if "run" in row] == ["first"]
