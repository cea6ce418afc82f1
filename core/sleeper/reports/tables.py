"""The report on tables."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sleeper.errors import SleeperError
from sleeper.reports.listing import Column, ColumnKind, Listing, Value, counted, note_of_more
from sleeper.statestore.reading.file_queries import Totals
from sleeper.tables.table_index import TableIndex
from sleeper.tables.table_ref import TableId, TableRef, TableState

logger = logging.getLogger(__name__)

_COLUMNS = (
    Column("name", "Table"),
    Column("id", "Id"),
    Column("online", "Online"),
    Column("state", "State"),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("leaves", "Leaves", ColumnKind.COUNT),
)


@dataclass(frozen=True, slots=True)
class TablesReport:
    """Tables: active ones, then those being deleted. `more` were left out.

    `totals` has what the active ones hold, where it was asked for; the state of those in
    `unreadable` is lost, damaged or not available.
    """

    tables: tuple[TableRef, ...]
    more: int = 0
    totals: Mapping[TableId, Totals] = field(default_factory=dict)
    unreadable: frozenset[TableId] = frozenset()

    def listing(self) -> Listing:
        """A row for each table."""
        deleting = sum(table.state is TableState.DELETING for table in self.tables)
        shown = len(self.tables)
        summary = counted(shown - deleting, "table")
        return Listing(
            name="tables",
            summary=f"{summary}, {deleting:,} being deleted" if deleting else summary,
            columns=_COLUMNS,
            rows=tuple(self._row(table) for table in self.tables),
            note=note_of_more(shown + self.more, shown, "table"),
        )

    def _row(self, table: TableRef) -> tuple[Value, ...]:
        totals = self.totals.get(table.id)
        holds = (totals.rows, totals.files, totals.bytes, totals.leaves) if totals else (None,) * 4
        state = "unreadable" if table.id in self.unreadable else table.state.value
        return (table.name, table.id, table.online, state, *holds)


def gather_tables(
    index: TableIndex,
    table_id: TableId | None = None,
    limit: int | None = None,
    totals_of: Callable[[TableId], Totals] | None = None,
) -> TablesReport:
    """Asks the index; for one table only, if it is named. `totals_of` asks a table's state.

    A table whose state cannot be read is logged, and hides none of the others.
    """
    tables = index.list() + index.list(TableState.DELETING)
    wanted = tuple(t for t in tables if table_id is None or t.id == table_id)
    shown = wanted[:limit]
    totals: dict[TableId, Totals] = {}
    unreadable: set[TableId] = set()
    for table in shown:
        if totals_of is None or table.state is not TableState.ACTIVE:
            continue
        try:
            totals[table.id] = totals_of(table.id)
        except SleeperError as error:
            logger.warning("table %s cannot be read: %s", table.name, error)
            unreadable.add(table.id)
    return TablesReport(shown, len(wanted) - len(shown), totals, frozenset(unreadable))
