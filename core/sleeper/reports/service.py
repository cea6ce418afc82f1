"""Reports on an instance, read through its ports."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.properties.instance import DELETION_DELAY_HOURS
from sleeper.reports.batcher import list_waiting_files
from sleeper.reports.costs import list_costs
from sleeper.reports.jobs import list_dead_letters, list_queues, list_tasks, report_jobs
from sleeper.reports.output import REPORTS_OF_ALL, Listing, ReportKind
from sleeper.reports.partitions import list_partitions
from sleeper.reports.queries import describe_queries, list_queries
from sleeper.reports.snapshot_versions import gather_snapshot_versions
from sleeper.reports.tables import (
    ReportedTable,
    StateReport,
    TableReport,
    gather_state,
    gather_table,
    list_deleted_tables,
    list_files,
    list_tables,
    select_tables,
)
from sleeper.runs.task import find_loss
from sleeper.statestore.store import StateStore
from sleeper.systems import load, systems
from sleeper.tables import TableRef

logger = logging.getLogger(__name__)

_ALL_ROWS = 2**62
_HOUR_MS = 3_600_000
_JOB_KINDS = {
    ReportKind.INGEST_JOBS: JobKind.INGEST,
    ReportKind.BULK_IMPORT_JOBS: JobKind.BULK_IMPORT,
    ReportKind.BULK_EXPORT_JOBS: JobKind.BULK_EXPORT,
    ReportKind.COMPACTION_JOBS: JobKind.COMPACTION,
    ReportKind.DELETION_JOBS: JobKind.DELETION,
}
_SYSTEM_REPORTS = {
    ReportKind(each.name): each.gather for system in systems() for each in system.reports
}


REPORTS_ON_EACH_TABLE = (ReportKind.FILES, ReportKind.PARTITIONS, ReportKind.STATE)
"""These reports have a listing for each table."""
_REPORTS_IN_PAGES = (ReportKind.TABLES, *REPORTS_ON_EACH_TABLE)


@dataclass(frozen=True, slots=True)
class TablePage:
    """The tables of a report in the order of their names, without the first `offset`.

    Reports with a listing for each table have at most `count` tables.
    """

    offset: int = 0
    count: int = _ALL_ROWS


ALL_TABLES = TablePage()


def report(
    instance: Instance,
    kind: ReportKind,
    table_name: str | None = None,
    limit: int | None = None,
    page: TablePage = ALL_TABLES,
) -> tuple[Listing, ...]:
    """Returns the listings of a report, of one table or of a page, with up to `limit` rows each.

    Pages after the first have only what the report says about each table. NotFoundError if no table
    has the name, InvalidRequestError if a report without such a part has another page.
    """
    ref = instance.tables.index.find(table_name) if table_name is not None else None
    rows_max = _ALL_ROWS if limit is None else limit
    kinds = [*REPORTS_OF_ALL] if kind is ReportKind.ALL else [kind]
    if page.offset:
        kinds = [k for k in kinds if k in _REPORTS_IN_PAGES and ref is None]
        if not kinds:
            raise InvalidRequestError(
                f"report {kind.value!r} has one page (expected no offset, or one of the reports "
                f"{', '.join(_REPORTS_IN_PAGES)} and all, on all tables)"
            )
    return tuple(
        listing for each in kinds for listing in _report(instance, each, ref, rows_max, page)
    )


def count_tables(instance: Instance, kind: ReportKind, table_name: str | None) -> int | None:
    """Returns how many tables all pages of the report have, None if it does not have pages."""
    if table_name is not None or kind not in (*_REPORTS_IN_PAGES, ReportKind.ALL):
        return None
    if kind in REPORTS_ON_EACH_TABLE:
        return len(instance.tables.index.list())
    return len(select_tables(instance.tables.index))


def count_omitted(
    instance: Instance, kind: ReportKind, table_name: str | None, page: TablePage
) -> int:
    """Returns how many tables after the page have a listing of their own in the report."""
    if table_name is not None or kind not in (*REPORTS_ON_EACH_TABLE, ReportKind.ALL):
        return 0
    return max(0, len(instance.tables.index.list()) - page.offset - page.count)


def report_deleted(instance: Instance) -> Listing:
    """Reports the deleted tables that can be brought back."""
    delay_ms = instance.properties().get(DELETION_DELAY_HOURS) * _HOUR_MS
    return list_deleted_tables(instance.tables.index, delay_ms)


def report_table(instance: Instance, name: str) -> TableReport:
    """Reports a table's schema, totals and properties."""
    table = instance.table(name)
    with table.state.reading() as state:
        is_snapshot_table = state.is_snapshot_table
    versions = gather_snapshot_versions(table) if is_snapshot_table else None
    listings = [
        listing
        for system in systems()
        if system.table_listings is not None
        for listing in load(system.table_listings)(instance, table.ref.id)
    ]
    return gather_table(table.ref, table.state, table.properties(), versions, listings)


def report_state(instance: Instance, name: str) -> StateReport:
    """Reports a table's versions, and the holds and followers that retain them."""
    return gather_state(instance.table(name).state, name)


def _report(
    instance: Instance, kind: ReportKind, ref: TableRef | None, limit: int, page: TablePage
) -> Iterable[Listing]:
    report_each = partial(_report_each, instance, ref, page)
    match kind:
        case ReportKind.FILES:
            return report_each(lambda store, n: list_files(store, n, limit))
        case ReportKind.PARTITIONS:
            return report_each(lambda store, n: list_partitions(store, n, limit))
        case ReportKind.STATE:
            return report_each(lambda store, n: gather_state(store, n).listing())
        case ReportKind.TABLES:
            index, table_id = instance.tables.index, ref.id if ref is not None else None
            read_table = partial(_read_table, instance)
            return (list_tables(index, table_id, limit, read_table, page.offset),)
        case _:
            return (_report_instance(instance, kind, ref, limit),)


def _report_each(
    instance: Instance,
    ref: TableRef | None,
    page: TablePage,
    gather: Callable[[StateStore, str], Listing],
) -> Iterator[Listing]:
    if ref is not None:
        yield gather(instance.tables.state(ref.id), ref.name)
        return
    for table in instance.tables.index.list()[page.offset :][: page.count]:
        try:
            yield gather(instance.tables.state(table.id), table.name)
        except SleeperError as error:
            logger.warning("could not read table %s: %s", table.name, error)


def _report_instance(
    instance: Instance, kind: ReportKind, ref: TableRef | None, limit: int
) -> Listing:
    index, jobs = instance.tables.index, instance.jobs
    table_id = ref.id if ref is not None else None
    match kind:
        case _ if kind in _JOB_KINDS:
            return report_jobs(instance, _JOB_KINDS[kind], table_id, limit)
        case _ if kind in _SYSTEM_REPORTS:
            listing: Listing = load(_SYSTEM_REPORTS[kind])(instance, table_id, limit)
            return listing
        case ReportKind.TASKS:
            return list_tasks(
                jobs.tasks, partial(find_loss, instance, instance.clock()), limit=limit
            )
        case ReportKind.QUEUES:
            return list_queues(instance)
        case ReportKind.INGEST_BATCHER:
            return list_waiting_files(instance, table_id, limit)
        case ReportKind.COSTS:
            return list_costs(instance, table_id)
        case ReportKind.DEAD_LETTERS:
            return list_dead_letters(instance, limit=limit)
        case _:
            if QueueName.QUERY not in jobs.queues:
                return describe_queries((), {})
            return list_queries(instance.queries.tracker(), index, table_id, limit)


def _read_table(instance: Instance, ref: TableRef) -> ReportedTable:
    store = instance.tables.state(ref.id)
    with store.reading() as state:
        totals, is_snapshot_table = state.files.totals(), state.is_snapshot_table
    absence = None
    if is_snapshot_table:
        absence = gather_snapshot_versions(OpenTable(instance, ref)).describe_absence()
    is_followed = any(each.is_of_system for each in store.followers())
    lag = _find_lag(instance, ref) if is_followed else None
    return ReportedTable(ref, totals, absence=absence, export_lag=lag)


def _find_lag(instance: Instance, ref: TableRef) -> int | None:
    lags = [load(each.table_lag)(instance, ref.id) for each in systems() if each.table_lag]
    return max((lag for lag in lags if lag is not None), default=None)
