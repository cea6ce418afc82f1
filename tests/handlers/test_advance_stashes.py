"""Stashes are planned and completed, and tasks are started for them."""

from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.admin.tables import delete_table
from sleeper.jobs.queue import QueueName
from sleeper.stash.message import run_stash_message
from sleeper.stash.reader import Stash
from sleeper.stash.record import StashRecord, StashRequest
from sleeper.stash.schedules import schedule_stash
from sleeper.stash.start import start_stash
from sleeper.workers import lambda_function
from tests.handlers import functions
from tests.handlers.conftest import Lambda, add_rows, make_table, metrics_in
from tests.handlers.fake_launcher import FakeLauncher
from tests.ports import with_ports

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
COUNTS = ("started", "planned", "completed", "failed", "pruned", "waiting", "problems")
NOTHING = dict.fromkeys(COUNTS, 0)


def submit(aws: Lambda, destination: Path) -> StashRecord:
    """Submits a stash of one table with two rows."""
    make_table(aws.instance, "t")
    add_rows(aws.instance, "t", 1, 2)
    return start_stash(aws.instance, StashRequest(str(destination), submitted=True))


def test_a_submitted_stash_is_planned_and_completed(
    aws: Lambda, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert aws.call(functions.advance_stashes) == NOTHING
    record = submit(aws, tmp_path / "stash")
    assert aws.call(functions.advance_stashes) == NOTHING | {"planned": 1}
    assert aws.call(functions.advance_stashes) == NOTHING
    (message,) = aws.instance.jobs.queue(QueueName.STASH).receive(10)
    assert run_stash_message(aws.instance, message) == (2, 2)
    assert metrics_in(capsys.readouterr().out) == []
    assert aws.call(functions.advance_stashes) == NOTHING | {"completed": 1}
    (metric,) = metrics_in(capsys.readouterr().out)
    assert (metric["StashesCompleted"], metric["kind"]) == ([1.0], "stash")
    assert aws.call(functions.advance_stashes) == NOTHING
    with Stash.open(str(tmp_path / "stash")).scan("t") as rows:
        assert [row["k"] for row in rows] == [1, 2]
    assert not record.is_running()


def test_a_due_stash_is_started_and_planned(
    aws: Lambda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(aws, tmp_path / "other")
    aws.call(functions.advance_stashes)
    schedule_stash(aws.instance, str(tmp_path / "stash"), "1h", ("t",))
    schedule_stash(aws.instance, str(tmp_path / "other"), "1h")
    assert aws.call(functions.advance_stashes) == NOTHING
    later = replace(aws.instance, clock=lambda: aws.instance.clock() + HOUR_MS)
    monkeypatch.setattr(lambda_function, "_opened", lambda _: later)
    started = {"started": 1, "planned": 1, "waiting": 1}
    assert aws.call(functions.advance_stashes) == NOTHING | started
    assert aws.call(functions.advance_stashes) == NOTHING | {"waiting": 1}


def test_schedules_that_missed_their_time_and_tables_that_are_left_out_are_counted(
    aws: Lambda,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("a", "b"):
        make_table(aws.instance, name)
    schedule_stash(aws.instance, str(tmp_path / "stash"), "1h", ("a",))
    delete_table(aws.instance, "a")
    schedule_stash(aws.instance, str(tmp_path / "other"), "1h")
    make_table(aws.instance, "_LATEST")
    ten_minutes_ms = 600_000
    later = replace(aws.instance, clock=lambda: aws.instance.clock() + HOUR_MS + ten_minutes_ms)
    monkeypatch.setattr(lambda_function, "_opened", lambda _: later)
    found = {"started": 1, "planned": 1, "problems": 2}
    assert aws.call(functions.advance_stashes) == NOTHING | found
    (metric,) = metrics_in(capsys.readouterr().out)
    assert (metric["StashesMissed"], metric["StashesFailed"]) == ([1.0], [1.0])


def test_a_stash_that_hangs_fails_and_is_counted_once(
    aws: Lambda,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    submit(aws, tmp_path / "stash")
    later = replace(aws.instance, clock=lambda: aws.instance.clock() + 2 * DAY_MS)
    monkeypatch.setattr(lambda_function, "_opened", lambda _: later)
    assert aws.call(functions.advance_stashes) == NOTHING | {"failed": 1}
    (metric,) = metrics_in(capsys.readouterr().out)
    assert metric["StashesFailed"] == [1.0]
    assert aws.call(functions.advance_stashes) == NOTHING
    assert not (tmp_path / "stash" / "_LATEST").exists()


def test_a_task_is_started_for_each_message(
    aws: Lambda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(aws, tmp_path / "stash")
    aws.call(functions.advance_stashes)
    launcher = FakeLauncher()
    deployed = with_ports(aws.instance, jobs={"launcher": lambda _: launcher})
    monkeypatch.setattr(lambda_function, "_opened", lambda _: deployed)
    monkeypatch.setenv("SLEEPER_TASK_KIND", "stash")
    started = aws.call(functions.start_tasks)
    assert started == {"running": 0, "started": 1, "failures": 0}
