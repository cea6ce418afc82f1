"""Compactions that let a table be published: of common keys, and of files without a default."""

import threading

from sleeper.compaction.plan import CreationReport, create_rewrite_jobs, create_table_jobs
from sleeper.iceberg.publishable import find_uncompacted, versions_without_defaults
from sleeper.instance import OpenTable
from sleeper.jobs.event import new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.runs.retry_policy import LOCAL_RETRY_POLICIES
from sleeper.workers.worker import Worker, WorkerSettings

_WORKER = WorkerSettings(
    "publish", (QueueName.COMPACTION,), idle_stop_seconds=0.0, retry_policies=LOCAL_RETRY_POLICIES
)


def compact_to_publish(table: OpenTable) -> int:
    """Creates the jobs without which a table cannot be published. Returns their number.

    A local instance's queued compaction jobs run in this process; other instances run them in
    their tasks.
    """
    instance = table.instance
    created = _create_jobs(table)
    if created is None:
        return 0
    if instance.background is not None:
        Worker(instance, new_task_id(), threading.Event(), _WORKER).run()
    return created.created


def _create_jobs(table: OpenTable) -> CreationReport | None:
    with table.state.reading() as state:
        if find_uncompacted(state) is not None:
            return create_table_jobs(table.instance, table.ref, full=True)
        versions = versions_without_defaults(state)
        paths = [each.path for each in state.files.all() if each.schema_version in versions]
    return create_rewrite_jobs(table.instance, table.ref, paths) if paths else None
