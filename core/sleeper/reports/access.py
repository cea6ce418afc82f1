"""Access of callers to reports, histories, change feeds, exports and queries."""

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.query_tracker import QueryStatus
from sleeper.processing.restriction import NO_RESTRICTION
from sleeper.query.service import restrict_caller
from sleeper.reports.output import ReportKind
from sleeper.tables import find_table

# Tasks, queues and dead letters belong to the instance, even if the request names a table.
_REPORTS_ON_INSTANCE = (
    ReportKind.TASKS,
    ReportKind.QUEUES,
    ReportKind.DEAD_LETTERS,
    ReportKind.ALL,
)


def check_report_access(
    instance: Instance, kind: ReportKind, table_name: str | None, caller: str
) -> None:
    """Raises InvalidRequestError unless the caller may see all rows of every table in the report.

    Reports disclose row counts, key bounds and reasons of failed jobs. A report on no single
    table covers all tables.
    """
    if table_name is not None:
        tables = [instance.table(table_name)]
    if table_name is None or kind in _REPORTS_ON_INSTANCE:
        tables = [OpenTable(instance, ref) for ref in instance.tables.index.list()]
    for table in tables:
        _check_unrestricted(table, caller, "reports")


def check_export_access(table: OpenTable, caller: str) -> None:
    """Raises InvalidRequestError unless the caller may see all rows and fields of the table."""
    _check_unrestricted(table, caller, "exports")


def check_history_access(table: OpenTable, caller: str) -> None:
    """Raises InvalidRequestError unless the caller may see all rows and fields of the table.

    The history names the jobs of others, and counts their rows.
    """
    _check_unrestricted(table, caller, "reports")


def check_feed_access(table: OpenTable, caller: str) -> None:
    """Raises InvalidRequestError unless the caller may see all rows and fields of the table.

    The feed has the rows as they were ingested.
    """
    _check_unrestricted(table, caller, "change feeds")


def check_write_access(table: OpenTable, caller: str) -> None:
    """Raises InvalidRequestError unless the caller may see all rows and fields of the table.

    Rows of a table of latest rows hide others.
    """
    _check_unrestricted(table, caller, "writes")


def check_version_access(table: OpenTable, caller: str) -> None:
    """Raises InvalidRequestError unless the caller may see all rows and fields of the table.

    A restored version, an undone job or a clone changes or copies rows that others see.
    """
    _check_unrestricted(table, caller, "restores, undos, clones and expiries")


def check_query_access(instance: Instance, status: QueryStatus, caller: str) -> None:
    """Raises NotFoundError, as for an unknown query, if the caller may not query its table."""
    if status.table_id is None:
        return
    try:
        ref = find_table(instance.tables.index, None, status.table_id)
    except NotFoundError:
        return
    try:
        restrict_caller(OpenTable(instance, ref), caller)
    except InvalidRequestError as refusal:
        raise NotFoundError(f"query {status.query_id!r} does not exist") from refusal


def _check_unrestricted(table: OpenTable, caller: str, noun: str) -> None:
    if restrict_caller(table, caller) != NO_RESTRICTION:
        raise InvalidRequestError(
            f"caller {caller!r} may not see all of table {table.ref.name!r} "
            f"({noun} require unrestricted access)"
        )
