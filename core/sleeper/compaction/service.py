"""Runs the compaction jobs of messages."""

from sleeper.compaction.job import parse_compaction_job
from sleeper.compaction.run import CompactionSettings, run_compaction
from sleeper.datafiles.merge.steps import TableIterators
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.queue import Message
from sleeper.properties.instance import COMPACTION_LEASE_SECONDS, MERGE_MEMORY_BYTES
from sleeper.properties.table import COMPACTION_COMMIT_ASYNC, ITERATOR_GROUP_ROWS_MAX
from sleeper.runs.commit import choose_commit
from sleeper.runs.engine import engine_settings, file_settings
from sleeper.tables import find_table
from sleeper.tracing import span


def run_compaction_message(
    instance: Instance, body: str, task_id: str | None = None
) -> tuple[int, int]:
    """Runs the job of a message. Returns the numbers of rows read and written."""
    job = parse_compaction_job(body)
    table = OpenTable(instance, find_table(instance.tables.index, None, job.table_id))
    properties = table.properties()
    settings = CompactionSettings(
        engine_settings(instance, MERGE_MEMORY_BYTES),
        file_settings(properties),
        properties.get(COMPACTION_LEASE_SECONDS),
        task_id,
        TableIterators(
            table.ref.name, instance.code, lambda: properties.get(ITERATOR_GROUP_ROWS_MAX)
        ),
    )
    with span("compaction", table.ref.name, job_id=job.id) as traced:
        result = run_compaction(
            job,
            table.state,
            instance.storage.root,
            instance.jobs.tracker,
            settings,
            instance.clock,
            commit=choose_commit(table, COMPACTION_COMMIT_ASYNC),
        )
        traced.set("sleeper.rows_read", result.rows_read)
        traced.set("sleeper.rows_written", result.rows_written)
    return result.rows_read, result.rows_written


def run_queued_compaction(instance: Instance, message: Message, task_id: str) -> tuple[int, int]:
    """Runs the job of a message. Returns the numbers of rows read and written."""
    return run_compaction_message(instance, message.body, task_id)
