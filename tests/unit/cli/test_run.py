"""`sleeper run`, with a runner that does nothing of its own."""

from dataclasses import replace

import pytest

from sleeper.workers import runner
from sleeper.workers.runner import RunStatus
from tests.unit.cli.conftest import Sleeper

BUSY = RunStatus(
    {"ingest": 2, "compaction": 0}, {"ingest": 1, "compaction": 0}, workers=2, seconds=11.0
)
DONE = RunStatus(
    compactions_created=3,
    splits_sent=1,
    files_collected=1_200,
    workers_died=1,
    seconds=12.34,
    idle=True,
)


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[RunStatus | BaseException]:
    """What the runner tells, or raises."""
    script: list[RunStatus | BaseException] = []

    def run_instance(instance, until_idle, workers, listener):
        for each in script:
            if isinstance(each, BaseException):
                raise each
            listener(each)

    monkeypatch.setattr(runner, "run_instance", run_instance)
    return script


def test_a_run_tells_what_it_is_at_now_and_then_and_what_it_did(
    sleeper: Sleeper, statuses: list[object]
) -> None:
    statuses += [replace(BUSY, seconds=1.0), BUSY, replace(BUSY, seconds=12.0), DONE]
    done = sleeper("run", "--until-idle")
    assert (done.status, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "ingest 1 running, 2 waiting",
        "3 compaction jobs created, 1 leaf queued for splitting, 1,200 files collected, "
        "1 worker died in 12.3 s; no work left",
    ]


def test_interrupting_a_run_that_goes_on_for_ever_is_its_end(
    sleeper: Sleeper, statuses: list[object]
) -> None:
    statuses += [BUSY, KeyboardInterrupt()]
    done = sleeper("run")
    assert done.status == 0
    assert done.stderr.splitlines()[1:] == [
        "stopped",
        "0 compaction jobs created, 0 leaves queued for splitting, 0 files collected in 11.0 s; "
        "work may remain",
    ]


def test_interrupting_a_run_until_idle_is_an_interrupt(
    sleeper: Sleeper, statuses: list[object]
) -> None:
    statuses += [KeyboardInterrupt()]
    done = sleeper("run", "--until-idle")
    assert (done.status, done.stderr) == (130, "interrupted\n")
