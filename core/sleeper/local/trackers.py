"""The job tracker and the task tracker in SQLite."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sleeper.clock import Clock, system_clock
from sleeper.errors import NotFoundError
from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.process import is_alive
from sleeper.jobs.status import JobStatus, TaskStatus, fold_jobs, fold_tasks
from sleeper.jobs.tracker import RECENT_JOBS
from sleeper.local.database import InstanceDatabase
from sleeper.tables import TableId

# Of repeated events the one with the earlier time is kept.
_ADD_JOB_EVENT = """
INSERT INTO job_events (table_id, job_id, run_id, step, at_ms, task_id, inputs, rows_read,
    rows_written, reasons) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET at_ms = excluded.at_ms, task_id = excluded.task_id,
    inputs = excluded.inputs, rows_read = excluded.rows_read,
    rows_written = excluded.rows_written, reasons = excluded.reasons
WHERE excluded.at_ms < at_ms
"""
_TOUCH_JOB = """
INSERT INTO jobs (table_id, job_id, kind, updated_ms) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET updated_ms = max(updated_ms, excluded.updated_ms)
"""
# An end that the task recorded itself replaces one that another process found. The latest heartbeat
# is kept.
_ADD_TASK_EVENT = """
INSERT INTO task_events (task_id, step, kind, at_ms, process, jobs, rows_read, rows_written,
    reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET at_ms = excluded.at_ms, process = excluded.process,
    jobs = excluded.jobs, rows_read = excluded.rows_read,
    rows_written = excluded.rows_written, reason = excluded.reason
WHERE CASE WHEN step = 'heard' THEN excluded.at_ms > at_ms
    ELSE (excluded.reason IS NOT NULL, excluded.at_ms) < (reason IS NOT NULL, at_ms) END
"""


class LocalJobTracker:
    """Implements `sleeper.jobs.tracker.JobTracker`."""

    def __init__(self, database: InstanceDatabase) -> None:
        self._database = database

    def record(self, *events: JobEvent) -> None:
        """See the port."""
        with self._database.write() as transaction:
            for event in events:
                transaction.execute(_ADD_JOB_EVENT, _job_event_row(event))
                transaction.execute(
                    _TOUCH_JOB, (event.table_id, event.job_id, event.kind.value, event.at_ms)
                )

    def job(self, table_id: TableId, job_id: str) -> JobStatus:
        """See the port."""
        jobs = self._folded("WHERE table_id = ? AND job_id = ?", (table_id, job_id))
        if not jobs:
            raise NotFoundError(f"table {table_id} has no job {job_id!r}")
        return jobs[0]

    def unknown(self, table_id: TableId, job_ids: Sequence[str]) -> tuple[str, ...]:
        """See the port."""
        rows = self._database.read(
            "SELECT e.value AS id FROM json_each(?) AS e LEFT JOIN jobs AS j"
            " ON j.table_id = ? AND j.job_id = e.value WHERE j.job_id IS NULL ORDER BY e.key",
            (json.dumps(list(job_ids)), table_id),
        )
        return tuple(row["id"] for row in rows)

    def recent(
        self,
        kind: JobKind | None = None,
        table_id: TableId | None = None,
        limit: int = RECENT_JOBS,
    ) -> tuple[JobStatus, ...]:
        """See the port."""
        filters = {"kind": kind.value if kind else None, "table_id": table_id}
        conditions = [f"{name} = ?" for name, value in filters.items() if value is not None]
        values = [value for value in filters.values() if value is not None]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._folded(f"{where} ORDER BY updated_ms DESC, job_id LIMIT ?", (*values, limit))

    def remove_before(self, time_ms: int) -> int:
        """See the port."""
        with self._database.write() as transaction:
            transaction.execute(
                "DELETE FROM job_events WHERE (table_id, job_id) IN"
                " (SELECT table_id, job_id FROM jobs WHERE updated_ms < ?)",
                (time_ms,),
            )
            return transaction.execute("DELETE FROM jobs WHERE updated_ms < ?", (time_ms,)).rowcount

    def _folded(self, narrowing: str, values: tuple[object, ...]) -> tuple[JobStatus, ...]:
        rows = self._database.read(
            f"SELECT e.*, j.kind FROM (SELECT * FROM jobs {narrowing}) AS j"
            " JOIN job_events AS e USING (table_id, job_id)",
            values,
        )
        return fold_jobs(_job_event(row) for row in rows)


class LocalTaskTracker:
    """Implements `sleeper.jobs.tracker.TaskTracker`."""

    def __init__(self, database: InstanceDatabase) -> None:
        self._database = database

    def record(self, event: TaskEvent) -> None:
        """See the port."""
        with self._database.write() as transaction:
            transaction.execute(
                _ADD_TASK_EVENT,
                (
                    event.task_id,
                    event.step.value,
                    event.kind,
                    event.at_ms,
                    event.process,
                    event.jobs,
                    event.rows_read,
                    event.rows_written,
                    event.reason,
                ),
            )

    def task(self, task_id: str) -> TaskStatus:
        """See the port."""
        tasks = self._folded("WHERE task_id = ?", (task_id,))
        if not tasks:
            raise NotFoundError(f"task {task_id!r} does not exist")
        return tasks[0]

    def recent(self, kind: str | None = None, limit: int = RECENT_JOBS) -> tuple[TaskStatus, ...]:
        """See the port."""
        where, values = (" AND kind = ?", [kind]) if kind is not None else ("", [])
        return self._folded(
            "WHERE task_id IN (SELECT task_id FROM task_events"
            f" WHERE step <> 'heard'{where} GROUP BY task_id"
            " ORDER BY max(at_ms) DESC, task_id LIMIT ?)",
            (*values, limit),
        )

    def remove_before(self, time_ms: int) -> int:
        """See the port."""
        with self._database.write() as transaction:
            old = transaction.execute(
                "SELECT task_id FROM task_events GROUP BY task_id HAVING max(at_ms) < ?",
                (time_ms,),
            ).fetchall()
            transaction.executemany(
                "DELETE FROM task_events WHERE task_id = ?", [(row["task_id"],) for row in old]
            )
            return len(old)

    def unfinished(self) -> tuple[TaskStatus, ...]:
        """Returns tasks without an end, newest first."""
        return self._folded(
            "WHERE step = 'started' AND task_id NOT IN"
            " (SELECT task_id FROM task_events WHERE step = 'ended')",
            (),
        )

    def _folded(self, where: str, values: Iterable[object]) -> tuple[TaskStatus, ...]:
        rows = self._database.read(f"SELECT * FROM task_events {where}", tuple(values))
        return fold_tasks(_task_event(row) for row in rows)


@dataclass(frozen=True, slots=True)
class DeadRun:
    """A run without an end, whose task died."""

    table_id: TableId
    job_id: str
    kind: JobKind
    run_id: str
    task_id: str


def record_dead_tasks(
    database: InstanceDatabase, clock: Clock = system_clock
) -> tuple[DeadRun, ...]:
    """Records the end of tasks whose process died, and the failure of their open runs.

    A run may have committed without a record of it. A later committed event outranks the failure.
    """
    tasks, jobs = LocalTaskTracker(database), LocalJobTracker(database)
    dead: list[DeadRun] = []
    for task in tasks.unfinished():
        if task.process is None or is_alive(task.process):
            continue
        runs = _open_runs(database, task.task_id)
        reason = f"process {task.process.partition('@')[0]} of the task died"
        # The runs first, so that another call finds the task if this process dies in between.
        jobs.record(*(_failure(run, reason, clock()) for run in runs))
        tasks.record(_end(task, reason, clock()))
        dead.extend(runs)
    return tuple(dead)


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


def _job_event_row(event: JobEvent) -> tuple[object, ...]:
    return (
        event.table_id,
        event.job_id,
        event.run_id,
        event.step.value,
        event.at_ms,
        event.task_id,
        event.inputs,
        event.rows_read,
        event.rows_written,
        json.dumps(event.reasons, separators=(",", ":")),
    )


def _job_event(row: sqlite3.Row) -> JobEvent:
    return JobEvent(
        table_id=TableId(row["table_id"]),
        job_id=row["job_id"],
        kind=JobKind(row["kind"]),
        step=JobStep(row["step"]),
        at_ms=row["at_ms"],
        run_id=row["run_id"],
        task_id=row["task_id"],
        inputs=row["inputs"],
        rows_read=row["rows_read"],
        rows_written=row["rows_written"],
        reasons=tuple(json.loads(row["reasons"])),
    )


def _task_event(row: sqlite3.Row) -> TaskEvent:
    return TaskEvent(
        task_id=row["task_id"],
        kind=row["kind"],
        step=TaskStep(row["step"]),
        at_ms=row["at_ms"],
        process=row["process"],
        jobs=row["jobs"],
        rows_read=row["rows_read"],
        rows_written=row["rows_written"],
        reason=row["reason"],
    )
