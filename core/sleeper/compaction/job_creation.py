"""Creation of compaction jobs for the tables of an instance."""

import logging

from sleeper.compaction.plan import CreationReport, create_compaction_jobs
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.queue import QueueName
from sleeper.runs.commit_route import is_committer_behind
from sleeper.tables.table_ref import TableRef

logger = logging.getLogger(__name__)


def compact_table(instance: Instance, name: str, full: bool = False) -> CreationReport:
    """Creates the compaction jobs that the table needs now and sends them to the queue.

    `full` takes all files of every leaf. InvalidRequestError if the table is offline.
    """
    ref = instance.tables.index.by_name(name)
    if not ref.online:
        raise InvalidRequestError(f"table {name!r} is offline: it is not compacted")
    return create_compaction_jobs_of(instance, ref, full)


def create_compaction_jobs_of(
    instance: Instance, ref: TableRef, full: bool = False
) -> CreationReport:
    """Creates and sends the jobs of one table; none while the committer is behind."""
    if is_committer_behind(instance):
        logger.warning("no compaction jobs are created meanwhile", extra={"table": ref.id})
        return CreationReport(0, 0, 0, 0, is_waiting=True)
    table = OpenTable(instance, ref)
    send = instance.jobs.queue(QueueName.COMPACTION).send_all
    return create_compaction_jobs(
        ref.id,
        table.state,
        table.properties(),
        instance.jobs.tracker,
        send,
        instance.clock,
        full,
        instance.code,
    )
