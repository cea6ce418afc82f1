"""The contents of a report's page, read through the instance's ports."""

import logging
from collections.abc import Iterator

from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.properties.instance import ID
from sleeper.reports.history import describe_history
from sleeper.reports.html.page import ReportPage, TablePart
from sleeper.reports.output import REPORTS_OF_ALL, Listing, ReportKind
from sleeper.reports.partition_sizes import list_partition_sizes
from sleeper.reports.service import (
    ALL_TABLES,
    REPORTS_ON_EACH_TABLE,
    TablePage,
    report,
    report_table,
)
from sleeper.reports.tables import gather_state, list_files

logger = logging.getLogger(__name__)


def gather_page(
    instance: Instance,
    kind: ReportKind,
    table_name: str | None,
    limit: int,
    tables: TablePage = ALL_TABLES,
) -> ReportPage:
    """Reads a report, with up to `limit` rows per listing.

    The report `all` has a part for each of the tables, or for the named one. Errors of `report`.
    """
    instance_id, now = str(instance.properties().get(ID)), instance.clock()
    if kind is not ReportKind.ALL:
        return ReportPage(instance_id, now, report(instance, kind, table_name, limit, tables))
    kinds = [k for k in REPORTS_OF_ALL if k not in REPORTS_ON_EACH_TABLE]
    if tables.offset:
        kinds = [ReportKind.TABLES]
    listings = [each for k in kinds for each in report(instance, k, table_name, limit, tables)]
    parts = tuple(_gather_tables(instance, table_name, limit, tables))
    return ReportPage(instance_id, now, listings, parts)


def _gather_tables(
    instance: Instance, table_name: str | None, limit: int, tables: TablePage
) -> Iterator[TablePart]:
    names = [ref.name for ref in instance.tables.index.list()]
    names = names[tables.offset :][: tables.count] if table_name is None else [table_name]
    for name in names:
        try:
            yield TablePart(name, tuple(_list_table(instance, name, limit)))
        except SleeperError as error:
            logger.warning("could not read table %s: %s", name, error)


def _list_table(instance: Instance, name: str, limit: int) -> Iterator[Listing]:
    table = instance.table(name)
    _, *described = report_table(instance, name).listings()
    yield from (each for each in described if each.rows)
    sizes, _ = list_partition_sizes(table.state, name, limit)
    yield sizes
    yield list_files(table.state, name, limit)
    with table.state.reading() as state:
        history = state.history.newest(limit)
    yield describe_history(name, history)
    state_report = gather_state(table.state, name)
    yield from (
        state_report.listing(),
        state_report.followers_listing(),
        state_report.holds_listing(),
    )
