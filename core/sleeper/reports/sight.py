"""What a caller may be told about tables, apart from their rows."""

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.query_tracker import QueryStatus
from sleeper.processing.restriction import NO_RESTRICTION, Restriction
from sleeper.query.service import restriction_for
from sleeper.reports.kind import ReportKind
from sleeper.tables.table_index import find_table


def sight_of(instance: Instance, table_name: str, caller: str) -> Restriction:
    """What the caller may see of a table. InvalidRequestError if that is nothing."""
    return restriction_for(instance.table(table_name), caller)


# Tasks, queues and their dead letters belong to the instance, whatever table is named.
_OF_INSTANCE = (ReportKind.TASKS, ReportKind.QUEUES, ReportKind.DEAD_LETTERS, ReportKind.ALL)


def check_sees_report(
    instance: Instance, kind: ReportKind, table_name: str | None, caller: str
) -> None:
    """InvalidRequestError if the caller may not see all of the tables that the report is of.

    Reports tell how many rows there are, from which key to which, and why jobs failed. Those that
    are not of one table are of every one.
    """
    chosen = [instance.table(table_name)] if table_name is not None else []
    is_of_all = not chosen or kind in _OF_INSTANCE
    tables = [OpenTable(instance, r) for r in instance.tables.index.list()] if is_of_all else chosen
    for table in tables:
        if restriction_for(table, caller) != NO_RESTRICTION:
            raise InvalidRequestError(
                f"caller {caller!r} may not see all of table {table.ref.name!r} "
                "(reports require unrestricted access)"
            )


def check_sees_rows(table: OpenTable, caller: str) -> None:
    """InvalidRequestError if the caller may not see all of the table's rows and fields."""
    if restriction_for(table, caller) != NO_RESTRICTION:
        raise InvalidRequestError(
            f"caller {caller!r} may not see all of table {table.ref.name!r} "
            "(exports require unrestricted access)"
        )


def check_sees_query(instance: Instance, status: QueryStatus, caller: str) -> None:
    """NotFoundError, as for one that is not there, if it is of a table that the caller may
    not query.
    """
    if status.table_id is None:
        return
    try:
        ref = find_table(instance.tables.index, None, status.table_id)
    except NotFoundError:
        return
    try:
        restriction_for(OpenTable(instance, ref), caller)
    except InvalidRequestError as refused:
        raise NotFoundError(f"no query {status.query_id!r} is known") from refused
