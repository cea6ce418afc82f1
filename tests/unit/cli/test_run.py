"""`sleeper run` with a scripted runner."""

from dataclasses import replace

import pytest

from sleeper.jobs.queue import QueueName
from sleeper.workers import runner
from sleeper.workers.run_status import JobOutcome, JobReport, JobTotals, RunStatus
from tests.unit.cli.conftest import Sleeper

BUSY = RunStatus(
    {"ingest": 2, "compaction": 0}, {"ingest": 1, "compaction": 0}, workers=2, seconds=11.0
)
DONE = RunStatus(
    done={"compaction": 3, "splitting": 1, "deletion": 1},
    files_collected=1_200,
    workers_died=1,
    seconds=12.34,
    idle=True,
)


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[RunStatus | BaseException]:
    """Statuses that the runner reports and errors that it raises."""
    script: list[RunStatus | BaseException] = []

    def run_instance(instance, until_idle, workers, listener, on_job):
        for item in script:
            if isinstance(item, BaseException):
                raise item
            (on_job if isinstance(item, JobReport) else listener)(item)

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
        "0 ingests, 3 compactions, 1 split, 0 queries, 1 delete, 0 failures, 0 dead letters, "
        "1,200 files collected, 1 worker died in 12.3 s; no work left",
    ]


INGEST = JobReport(QueueName.INGEST, "m1", JobOutcome.DONE, 1_230, "j1", "flights", 2_000)
FAILED = replace(INGEST, outcome=JobOutcome.FAILED, reason="the disk is full", retry_ms=5_000)
REJECTED = replace(INGEST, outcome=JobOutcome.REJECTED, reason="no such file", message_id="m2")


def test_each_job_has_a_line_with_its_time(sleeper: Sleeper, statuses: list[object]) -> None:
    split = replace(INGEST, queue=QueueName.SPLITTING, job="root", rows=0)
    statuses += [FAILED, INGEST, split, REJECTED, replace(DONE, failures=1, seconds=1.0)]
    result = sleeper("run", "--until-idle")
    assert result.stderr.splitlines()[:-1] == [
        "ingest j1 of flights: failed after 1.2 s: the disk is full; next try in 5 s",
        "ingest j1 of flights: 2,000 rows in 1.2 s",
        "split root of flights: done in 1.2 s",
        "ingest j1 of flights: rejected after 1.2 s: no such file",
    ]


@pytest.mark.parametrize("failed", [{"failures": 1}, {"dead_letters": 1}])
def test_exit_status_is_1_if_a_job_failed(
    sleeper: Sleeper, statuses: list[object], failed: dict[str, int]
) -> None:
    statuses += [replace(DONE, **failed)]
    assert sleeper("run", "--until-idle").status == 1


def test_summary_is_json_on_standard_output(sleeper: Sleeper, statuses: list[object]) -> None:
    statuses += [INGEST, replace(DONE, done={"ingest": 1}, problems=("no space",), seconds=1.0)]
    result = sleeper("run", "--until-idle", "--output", "json")
    (row,) = result.rows
    assert (row["report"], row["ingests"], row["failures"]) == ("run", 1, 0)
    assert (row["idle"], row["problems"]) == (True, ["no space"])
    assert result.stderr == "ingest j1 of flights: 2,000 rows in 1.2 s\n"


def test_failures_are_jobs_whose_last_run_failed() -> None:
    totals = JobTotals()
    for report in (FAILED, FAILED, REJECTED, INGEST):
        totals.add(report)
    assert (totals.failures, totals.done) == (1, {"ingest": 1})
    totals.add(replace(REJECTED, outcome=JobOutcome.DROPPED))
    assert totals.failures == 0


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
        "0 ingests, 0 compactions, 0 splits, 0 queries, 0 failures, 0 dead letters, "
        "0 files collected in 11.0 s; work may remain",
    ]


def test_interrupted_run_until_idle_exits_with_status_130(
    sleeper: Sleeper, statuses: list[object]
) -> None:
    statuses += [KeyboardInterrupt()]
    result = sleeper("run", "--until-idle")
    assert (result.status, result.stderr) == (130, "interrupted\n")
