"""The job tracker and the task tracker in SQLite."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sleeper.errors import DataError, NotFoundError
from sleeper.jobs.event import JobEvent, JobKind, JobRunRef, JobStep, TaskEvent, TaskStep
from sleeper.jobs.process import is_alive
from sleeper.jobs.status import JobStatus, TaskStatus, fold_jobs, fold_tasks
from sleeper.jobs.tracker import RECENT_JOBS
from sleeper.json_codec import JsonCodec
from sleeper.local.database import InstanceDatabase
from sleeper.tables import TableId

_JOB_EVENTS, _TASK_EVENTS = JsonCodec(JobEvent), JsonCodec(TaskEvent)
# Of repeated events the one with the earlier time is kept.
_ADD_JOB_EVENT = """
INSERT INTO job_events (table_id, job_id, run_id, step, at_ms, task_id, inputs, rows_read,
    rows_written, reasons)
VALUES (:table_id, :job_id, :run_id, :step, :at_ms, :task_id, :inputs, :rows_read, :rows_written,
    :reasons)
ON CONFLICT DO UPDATE SET at_ms = excluded.at_ms, task_id = excluded.task_id,
    inputs = excluded.inputs, rows_read = excluded.rows_read,
    rows_written = excluded.rows_written, reasons = excluded.reasons
WHERE excluded.at_ms < at_ms
"""
# The members of some events, whose columns the first such event adds: an older version reads a
# database without them.
_DETAILS = {"bytes": "INTEGER", "number": "INTEGER", "source": "TEXT", "rows_rejected": "INTEGER"}
_ADD_DETAILS = """
UPDATE job_events SET bytes = :bytes, number = :number, source = :source,
    rows_rejected = :rows_rejected
WHERE (table_id, job_id, run_id, step, at_ms) = (:table_id, :job_id, :run_id, :step, :at_ms)
"""
_TOUCH_JOB = """
INSERT INTO jobs VALUES (:table_id, :job_id, :kind, :at_ms)
ON CONFLICT DO UPDATE SET updated_ms = max(updated_ms, excluded.updated_ms)
"""
# An end that the task recorded itself replaces one that another process found. The latest heartbeat
# is kept.
_ADD_TASK_EVENT = """
INSERT INTO task_events VALUES (:task_id, :step, :kind, :at_ms, :process, :jobs, :rows_read,
    :rows_written, :reason)
ON CONFLICT DO UPDATE SET at_ms = excluded.at_ms, process = excluded.process,
    jobs = excluded.jobs, rows_read = excluded.rows_read,
    rows_written = excluded.rows_written, reason = excluded.reason
WHERE CASE WHEN step = 'heard' THEN excluded.at_ms > at_ms
    ELSE (excluded.reason IS NOT NULL, excluded.at_ms) < (reason IS NOT NULL, at_ms) END
"""


@dataclass(frozen=True, slots=True)
class LocalJobTracker:
    """Implements `sleeper.jobs.tracker.JobTracker`."""

    database: InstanceDatabase

    def record(self, *events: JobEvent) -> None:
        with self.database.write() as transaction:
            for event in events:
                values = _JOB_EVENTS.to_json(event)
                values["reasons"] = json.dumps(event.reasons, separators=(",", ":"))
                transaction.execute(_ADD_JOB_EVENT, values)
                if not _DETAILS.keys().isdisjoint(values):
                    _add_columns(transaction)
                    transaction.execute(_ADD_DETAILS, dict.fromkeys(_DETAILS) | values)
                transaction.execute(_TOUCH_JOB, values)

    def job(self, table_id: TableId, job_id: str) -> JobStatus:
        jobs = self._folded("WHERE table_id = ? AND job_id = ?", (table_id, job_id))
        if not jobs:
            raise NotFoundError(f"table {table_id} has no job {job_id!r}")
        return jobs[0]

    def unknown(self, table_id: TableId, job_ids: Sequence[str]) -> tuple[str, ...]:
        rows = self.database.read(
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
        filters = {"kind": kind.value if kind else None, "table_id": table_id}
        conditions = [f"{name} = ?" for name, value in filters.items() if value is not None]
        values = [value for value in filters.values() if value is not None]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._folded(f"{where} ORDER BY updated_ms DESC, job_id LIMIT ?", (*values, limit))

    def remove_before(self, time_ms: int) -> int:
        with self.database.write() as transaction:
            transaction.execute(
                "DELETE FROM job_events WHERE (table_id, job_id) IN"
                " (SELECT table_id, job_id FROM jobs WHERE updated_ms < ?)",
                (time_ms,),
            )
            return transaction.execute("DELETE FROM jobs WHERE updated_ms < ?", (time_ms,)).rowcount

    def _folded(self, narrowing: str, values: tuple[object, ...]) -> tuple[JobStatus, ...]:
        rows = self.database.read(
            f"SELECT e.*, j.kind FROM (SELECT * FROM jobs {narrowing}) AS j"
            " JOIN job_events AS e USING (table_id, job_id)",
            values,
        )
        return fold_jobs(_job_event(row) for row in rows)


@dataclass(frozen=True, slots=True)
class LocalTaskTracker:
    """Implements `sleeper.jobs.tracker.TaskTracker`."""

    database: InstanceDatabase

    def record(self, event: TaskEvent) -> None:
        with self.database.write() as transaction:
            transaction.execute(_ADD_TASK_EVENT, _TASK_EVENTS.to_json(event))

    def task(self, task_id: str) -> TaskStatus:
        tasks = self._folded("WHERE task_id = ?", (task_id,))
        if not tasks:
            raise NotFoundError(f"task {task_id!r} does not exist")
        return tasks[0]

    def recent(self, kind: str | None = None, limit: int = RECENT_JOBS) -> tuple[TaskStatus, ...]:
        where, values = (" AND kind = ?", [kind]) if kind is not None else ("", [])
        return self._folded(
            "WHERE task_id IN (SELECT task_id FROM task_events"
            f" WHERE step <> 'heard'{where} GROUP BY task_id"
            " ORDER BY max(at_ms) DESC, task_id LIMIT ?)",
            (*values, limit),
        )

    def remove_before(self, time_ms: int) -> int:
        with self.database.write() as transaction:
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
            "WHERE task_id NOT IN (SELECT task_id FROM task_events WHERE step = 'ended')",
            (),
        )

    def _folded(self, where: str, values: Iterable[object]) -> tuple[TaskStatus, ...]:
        rows = self.database.read(f"SELECT * FROM task_events {where}", tuple(values))
        return fold_tasks(
            _TASK_EVENTS.from_json(dict(row), "task event", DataError) for row in rows
        )


def record_dead_tasks(database: InstanceDatabase) -> tuple[JobRunRef, ...]:
    """Records the end of tasks whose process died, and the failure of their open runs.

    The time of both is that of the task's last heartbeat, because nobody saw the end.
    A run may have committed without a record of it. A later committed event outranks the failure.
    """
    tasks, jobs = LocalTaskTracker(database), LocalJobTracker(database)
    dead: list[JobRunRef] = []
    for task in tasks.unfinished():
        if task.process is None or is_alive(task.process):
            continue
        runs = _open_runs(database, task.task_id)
        reason = f"process {task.process.partition('@')[0]} of the task died"
        # The runs first, so that another call finds the task if this process dies in between.
        seen_ms = task.last_seen_ms
        jobs.record(
            *(
                run.event(JobStep.FAILED, max(seen_ms, started_ms), reasons=(reason,))
                for run, started_ms in runs
            )
        )
        tasks.record(TaskEvent(task.task_id, task.kind, TaskStep.ENDED, seen_ms, reason=reason))
        dead.extend(run for run, _ in runs)
    return tuple(dead)


def _open_runs(database: InstanceDatabase, task_id: str) -> list[tuple[JobRunRef, int]]:
    """Returns the runs of a task without an end, each with the time of its start."""
    rows = database.read(
        """SELECT s.table_id, s.job_id, s.run_id, j.kind, s.at_ms
        FROM job_events AS s JOIN jobs AS j USING (table_id, job_id)
        WHERE s.task_id = ? AND s.step = 'started' AND NOT EXISTS (
            SELECT 1 FROM job_events AS e
            WHERE (e.table_id, e.job_id, e.run_id) = (s.table_id, s.job_id, s.run_id)
              AND e.step IN ('committed', 'failed', 'rejected'))
        ORDER BY s.at_ms""",
        (task_id,),
    )
    return [
        (
            JobRunRef(r["table_id"], r["job_id"], JobKind(r["kind"]), r["run_id"], task_id),
            r["at_ms"],
        )
        for r in rows
    ]


def _add_columns(transaction: sqlite3.Connection) -> None:
    """Adds the columns of details, unless the table has them."""
    present = {row["name"] for row in transaction.execute("PRAGMA table_info (job_events)")}
    for name, kind in _DETAILS.items():
        if name not in present:
            transaction.execute(f"ALTER TABLE job_events ADD COLUMN {name} {kind}")


def _job_event(row: sqlite3.Row) -> JobEvent:
    values = {**dict(row), "reasons": json.loads(row["reasons"])}
    return _JOB_EVENTS.from_json(values, "job event", DataError)
