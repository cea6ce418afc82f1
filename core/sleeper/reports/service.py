"""Reports on an instance: asks its ports and its tables' states."""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from sleeper.errors import NotFoundError, SleeperError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.reports.dead_letters import gather_queues, list_dead_letters
from sleeper.reports.files import gather_files
from sleeper.reports.jobs import gather_jobs
from sleeper.reports.kind import ReportKind
from sleeper.reports.metric import Metric, gather_table_metrics
from sleeper.reports.output import Listing
from sleeper.reports.partitions import gather_partitions
from sleeper.reports.queries import QueriesReport, gather_queries
from sleeper.reports.state import StateReport, gather_state
from sleeper.reports.tables import TableReport, gather_table, gather_tables
from sleeper.reports.tasks import gather_tasks
from sleeper.runs import heartbeat
from sleeper.statestore.reading.file_queries import Totals
from sleeper.statestore.store import StateStore
from sleeper.tables.table_ref import TableId, TableRef

logger = logging.getLogger(__name__)

_ALL_ROWS = 2**62
_JOB_KINDS = {
    ReportKind.INGEST_JOBS: JobKind.INGEST,
    ReportKind.BULK_IMPORT_JOBS: JobKind.BULK_IMPORT,
    ReportKind.BULK_EXPORT_JOBS: JobKind.BULK_EXPORT,
    ReportKind.COMPACTION_JOBS: JobKind.COMPACTION,
}


def report(
    instance: Instance, kind: ReportKind, table_name: str | None = None, limit: int | None = None
) -> tuple[Listing, ...]:
    """What there is to say, of one table if it is named. `limit` bounds each listing's rows.

    NotFoundError if there is no table of that name.
    """
    chosen = instance.tables.index.by_name(table_name) if table_name is not None else None
    rows_max = _ALL_ROWS if limit is None else limit
    kinds = [k for k in ReportKind if k is not ReportKind.ALL] if kind is ReportKind.ALL else [kind]
    return tuple(
        listing for each in kinds for listing in _listings(instance, each, chosen, rows_max)
    )


def report_table(instance: Instance, name: str) -> TableReport:
    """What a table is, and what it holds."""
    table = instance.table(name)
    return gather_table(table.ref, table.state, table.properties())


def report_state(instance: Instance, name: str) -> StateReport:
    """The versions of a table, and who needs them."""
    return gather_state(instance.table(name).state, name)


def table_metrics(instance: Instance, ref: TableRef) -> dict[Metric, int]:
    """Counts of what the table holds."""
    return gather_table_metrics(instance.tables.state(ref.id))


def _listings(
    instance: Instance, kind: ReportKind, chosen: TableRef | None, limit: int
) -> Iterable[Listing]:
    match kind:
        case ReportKind.FILES:
            return _of_tables(instance, chosen, lambda s, n: gather_files(s, n, limit).listing())
        case ReportKind.PARTITIONS:
            return _of_tables(
                instance, chosen, lambda s, n: gather_partitions(s, n, limit).listing()
            )
        case ReportKind.STATE:
            return _of_tables(instance, chosen, lambda s, n: gather_state(s, n).listing())
        case _:
            return (_listing(instance, kind, chosen, limit),)


def _of_tables(
    instance: Instance, chosen: TableRef | None, gather: Callable[[StateStore, str], Listing]
) -> Iterator[Listing]:
    if chosen is not None:
        yield gather(instance.tables.state(chosen.id), chosen.name)
        return
    for table in instance.tables.index.list():
        try:
            yield gather(instance.tables.state(table.id), table.name)
        except SleeperError as error:
            logger.warning("could not read table %s: %s", table.name, error)


def _listing(instance: Instance, kind: ReportKind, chosen: TableRef | None, limit: int) -> Listing:
    of_table = chosen.id if chosen is not None else None
    match kind:
        case ReportKind.TABLES:
            totals_of = partial(_totals_of, instance)
            return gather_tables(instance.tables.index, of_table, limit, totals_of).listing()
        case _ if kind in _JOB_KINDS:
            silence_of = partial(_silence_of, instance, instance.clock())
            job_kind = _JOB_KINDS[kind]
            return gather_jobs(
                instance.jobs.tracker, instance.tables.index, job_kind, silence_of, of_table, limit
            ).listing()
        case ReportKind.TASKS:
            silence_of_task = partial(heartbeat.silence_of_task, instance, instance.clock())
            return gather_tasks(instance.jobs.tasks, silence_of_task, limit=limit).listing()
        case ReportKind.QUEUES:
            queues = {name.value: instance.jobs.queue(name) for name in instance.jobs.queues}
            return gather_queues(queues).listing()
        case ReportKind.DEAD_LETTERS:
            return list_dead_letters(instance, limit=limit)
        case _:
            if QueueName.QUERY not in instance.jobs.queues:
                return QueriesReport((), {}).listing()
            history = instance.queries.tracker()
            return gather_queries(history, instance.tables.index, of_table, limit).listing()


def _silence_of(instance: Instance, now_ms: int, task_id: str) -> str | None:
    """Of a task by its id."""
    if not instance.jobs.heartbeats:
        return None
    try:
        task = instance.jobs.tasks.task(task_id)
    except NotFoundError:
        return None
    return heartbeat.silence_of_task(instance, now_ms, task)


def _totals_of(instance: Instance, table_id: TableId) -> Totals:
    with instance.tables.state(table_id).reading() as state:
        return state.files.totals()
