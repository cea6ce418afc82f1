"""Tasks that died without saying so, and the runs that they left open."""

from dataclasses import dataclass

from sleeper.clock import Clock, system_clock
from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.process import is_alive
from sleeper.jobs.status import TaskStatus
from sleeper.local.database import InstanceDatabase
from sleeper.local.trackers import LocalJobTracker, LocalTaskTracker
from sleeper.tables.table_ref import TableId


@dataclass(frozen=True, slots=True)
class DeadRun:
    """A run that its task's death left without an end."""

    table_id: TableId
    job_id: str
    kind: JobKind
    run_id: str
    task_id: str


def record_dead_tasks(
    database: InstanceDatabase, clock: Clock = system_clock
) -> tuple[DeadRun, ...]:
    """Records the end of tasks whose process is gone, and their open runs as failed.

    A run whose commit was applied but not recorded is among them: a committed event that
    comes later outranks the failure. Repeating it finds nothing new.
    """
    tasks, jobs = LocalTaskTracker(database), LocalJobTracker(database)
    found: list[DeadRun] = []
    for task in tasks.unfinished():
        if task.process is None or is_alive(task.process):
            continue
        runs = _open_runs(database, task.task_id)
        reason = f"process {task.process.partition('@')[0]} of the task died"
        # The runs first: if this process dies in between, the task is found again.
        jobs.record(*(_failure(run, reason, clock()) for run in runs))
        tasks.record(_end(task, reason, clock()))
        found.extend(runs)
    return tuple(found)


def _open_runs(database: InstanceDatabase, task_id: str) -> list[DeadRun]:
    rows = database.read(
        """SELECT s.table_id, s.job_id, s.run_id, j.kind
        FROM job_events AS s JOIN jobs AS j USING (table_id, job_id)
        WHERE s.task_id = ? AND s.step = 'started' AND NOT EXISTS (
            SELECT 1 FROM job_events AS e
            WHERE (e.table_id, e.job_id, e.run_id) = (s.table_id, s.job_id, s.run_id)
              AND e.step IN ('committed', 'failed', 'rejected'))
        ORDER BY s.at_ms""",
        (task_id,),
    )
    return [
        DeadRun(
            table_id=TableId(row["table_id"]),
            job_id=row["job_id"],
            kind=JobKind(row["kind"]),
            run_id=row["run_id"],
            task_id=task_id,
        )
        for row in rows
    ]


def _failure(run: DeadRun, reason: str, now: int) -> JobEvent:
    return JobEvent(
        table_id=run.table_id,
        job_id=run.job_id,
        kind=run.kind,
        step=JobStep.FAILED,
        at_ms=now,
        run_id=run.run_id,
        task_id=run.task_id,
        reasons=(reason,),
    )


def _end(task: TaskStatus, reason: str, now: int) -> TaskEvent:
    return TaskEvent(
        task_id=task.task_id, kind=task.kind, step=TaskStep.ENDED, at_ms=now, reason=reason
    )
