"""The report on tables."""

from dataclasses import dataclass

from sleeper.reports.listing import Column, Listing, counted, note_of_more
from sleeper.tables.table_index import TableIndex
from sleeper.tables.table_ref import TableId, TableRef, TableState

_COLUMNS = (
    Column("name", "Table"),
    Column("id", "Id"),
    Column("online", "Online"),
    Column("state", "State"),
)


@dataclass(frozen=True, slots=True)
class TablesReport:
    """Tables: active ones, then those being deleted. `more` were left out."""

    tables: tuple[TableRef, ...]
    more: int = 0

    def listing(self) -> Listing:
        """A row for each table."""
        deleting = sum(table.state is TableState.DELETING for table in self.tables)
        shown = len(self.tables)
        summary = counted(shown - deleting, "table")
        return Listing(
            name="tables",
            summary=f"{summary}, {deleting:,} being deleted" if deleting else summary,
            columns=_COLUMNS,
            rows=tuple((t.name, t.id, t.online, t.state.value) for t in self.tables),
            note=note_of_more(shown + self.more, shown, "table"),
        )


def gather_tables(
    index: TableIndex, table_id: TableId | None = None, limit: int | None = None
) -> TablesReport:
    """Asks the index; for one table only, if it is named."""
    tables = index.list() + index.list(TableState.DELETING)
    wanted = tuple(t for t in tables if table_id is None or t.id == table_id)
    shown = wanted[:limit]
    return TablesReport(shown, len(wanted) - len(shown))
