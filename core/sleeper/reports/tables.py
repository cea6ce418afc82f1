"""The report on tables."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sleeper.errors import SleeperError
from sleeper.properties.table import NAME, ONLINE, SCHEMA, TABLE_ID
from sleeper.properties.values import TableProperties
from sleeper.reports.output import Column, ColumnKind, Listing, Value, counted, note_of_more
from sleeper.reports.properties import PropertiesReport, gather_table_properties
from sleeper.schema.model import Schema, type_name
from sleeper.statestore.reading.file_queries import Totals
from sleeper.statestore.store import StateStore
from sleeper.tables.table_index import TableIndex
from sleeper.tables.table_ref import TableId, TableRef, TableState

_COLUMNS_table = (
    Column("name", "Table"),
    Column("id", "Id"),
    Column("online", "Online"),
    Column("version", "Version", ColumnKind.COUNT),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("partitions", "Partitions", ColumnKind.COUNT),
    Column("leaves", "Leaves", ColumnKind.COUNT),
)
_FIELD_COLUMNS = (
    Column("field", "Field"),
    Column("role", "Role"),
    Column("type", "Type"),
    Column("nullable", "Nullable"),
)
_SHOWN_ELSEWHERE = (NAME.name, TABLE_ID.name, SCHEMA.name, ONLINE.name)


@dataclass(frozen=True, slots=True)
class TableReport:
    """A table at its newest version, with its properties that are set."""

    table: TableRef
    version: int
    schema: Schema
    totals: Totals
    properties: PropertiesReport

    def listings(self) -> tuple[Listing, Listing, Listing]:
        """The table; its fields; its properties."""
        name = self.table.name
        fields = self._fields()
        return (
            Listing("table", f"table {name}", _COLUMNS_table, (self._row(),)),
            Listing("schema", counted(len(fields), "field"), _FIELD_COLUMNS, fields),
            self.properties.listing(),
        )

    def _row(self) -> tuple[str | int | bool, ...]:
        totals = self.totals
        return (
            self.table.name,
            self.table.id,
            self.table.online,
            self.version,
            totals.rows,
            totals.files,
            totals.bytes,
            totals.partitions,
            totals.leaves,
        )

    def _fields(self) -> tuple[tuple[str | bool, ...], ...]:
        roles = (
            ("row key", self.schema.row_keys),
            ("sort key", self.schema.sort_keys),
            ("value", self.schema.values),
        )
        return tuple(
            (field.name, role, type_name(field.type), field.nullable)
            for role, fields in roles
            for field in fields
        )


def gather_table(table: TableRef, store: StateStore, properties: TableProperties) -> TableReport:
    """Reads the newest version of the table's state."""
    with store.reading() as state:
        return TableReport(
            table,
            state.number,
            state.schema,
            state.files.totals(),
            gather_table_properties(properties, table.name).only_set().without(_SHOWN_ELSEWHERE),
        )


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
            logger.warning("could not read table %s: %s", table.name, error)
            unreadable.add(table.id)
    return TablesReport(shown, len(wanted) - len(shown), totals, frozenset(unreadable))
