"""The report on tables."""

from dataclasses import dataclass

from sleeper.reports.listing import Column, Listing, counted
from sleeper.tables.table_index import TableIndex
from sleeper.tables.table_ref import TableRef, TableState

_COLUMNS = (
    Column("name", "Table"),
    Column("id", "Id"),
    Column("online", "Online"),
    Column("state", "State"),
)


@dataclass(frozen=True, slots=True)
class TablesReport:
    """All tables: active ones, then those being deleted."""

    tables: tuple[TableRef, ...]

    def listing(self) -> Listing:
        """A row for each table."""
        deleting = sum(table.state is TableState.DELETING for table in self.tables)
        summary = counted(len(self.tables) - deleting, "table")
        return Listing(
            name="tables",
            summary=f"{summary}, {deleting:,} being deleted" if deleting else summary,
            columns=_COLUMNS,
            rows=tuple((t.name, t.id, t.online, t.state.value) for t in self.tables),
        )


def gather_tables(index: TableIndex) -> TablesReport:
    """Asks the index."""
    return TablesReport(index.list() + index.list(TableState.DELETING))
