"""`sleeper run` with a scripted runner."""

from dataclasses import replace

import pytest

from sleeper.workers import runner
from sleeper.workers.run_status import RunStatus
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
    """Statuses that the runner reports and errors that it raises."""
    script: list[RunStatus | BaseException] = []

    def run_instance(instance, until_idle, workers, listener):
        for item in script:
            if isinstance(item, BaseException):
                raise item
            listener(item)

    monkeypatch.setattr(runner, "run_instance", run_instance)
    return script


def test_run_prints_status_periodically_and_a_summary(
    sleeper: Sleeper, statuses: list[object]
) -> None:
    statuses += [replace(BUSY, seconds=1.0), BUSY, replace(BUSY, seconds=12.0), DONE]
    result = sleeper("run", "--until-idle")
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "ingest 1 running, 2 waiting",
        "3 compaction jobs created, 1 leaf queued for splitting, 1,200 files collected, "
        "1 worker died in 12.3 s; no work left",
    ]


def test_pending_exports_are_shown(sleeper: Sleeper, statuses: list[object]) -> None:
    statuses += [replace(BUSY, exports=1_234), replace(DONE, exports=1)]
    result = sleeper("run", "--until-idle")
    progress, summary = result.stderr.splitlines()
    assert progress == "ingest 1 running, 2 waiting; 1,234 exports pending"
    assert "1 worker died, 1 export pending in 12.3 s; no work left" in summary


def test_interrupted_run_exits_with_status_0(sleeper: Sleeper, statuses: list[object]) -> None:
    statuses += [BUSY, KeyboardInterrupt()]
    result = sleeper("run")
    assert result.status == 0
    assert result.stderr.splitlines()[1:] == [
        "stopped",
        "0 compaction jobs created, 0 leaves queued for splitting, 0 files collected in 11.0 s; "
        "work may remain",
    ]


def test_interrupted_run_until_idle_exits_with_status_130(
    sleeper: Sleeper, statuses: list[object]
) -> None:
    statuses += [KeyboardInterrupt()]
    result = sleeper("run", "--until-idle")
    assert (result.status, result.stderr) == (130, "interrupted\n")
