"""The reports on one table and on all tables."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sleeper.errors import SleeperError
from sleeper.properties.table import NAME, ONLINE, SCHEMA, TABLE_ID
from sleeper.properties.values import TableProperties
from sleeper.reports.output import Column, ColumnKind, Listing, Value, describe_omission, pluralize
from sleeper.reports.properties import PropertiesReport, gather_table_properties
from sleeper.schema.model import Schema, type_name
from sleeper.statestore.reading.file_queries import Totals
from sleeper.statestore.store import StateStore
from sleeper.tables import TableId, TableIndex, TableRef, TableState

logger = logging.getLogger(__name__)

_TABLE_COLUMNS = (
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
_TABLES_COLUMNS = (
    Column("name", "Table"),
    Column("id", "Id"),
    Column("online", "Online"),
    Column("state", "State"),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("leaves", "Leaves", ColumnKind.COUNT),
)
_FIELD_COLUMNS = (
    Column("field", "Field"),
    Column("role", "Role"),
    Column("type", "Type"),
    Column("nullable", "Nullable"),
)
# Other columns and listings of the report have these.
_OMITTED = (NAME.name, TABLE_ID.name, SCHEMA.name, ONLINE.name)


@dataclass(frozen=True, slots=True)
class TableReport:
    """A table at its newest version, with the properties that are set."""

    table: TableRef
    version: int
    schema: Schema
    totals: Totals
    properties: PropertiesReport

    def listings(self) -> tuple[Listing, Listing, Listing]:
        """Returns listings of the table, of its fields and of its properties."""
        name = self.table.name
        fields = self._fields()
        return (
            Listing("table", f"table {name}", _TABLE_COLUMNS, (self._row(),)),
            Listing("schema", pluralize(len(fields), "field"), _FIELD_COLUMNS, fields),
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
    """Reads a table at its newest version."""
    with store.reading() as state:
        return TableReport(
            table,
            state.number,
            state.schema,
            state.files.totals(),
            gather_table_properties(properties, table.name).only_set().without(_OMITTED),
        )


@dataclass(frozen=True, slots=True)
class TablesReport:
    """Active tables, then tables that are being deleted; `more` were omitted.

    `totals` has the contents of active tables. The state of `unreadable` tables is lost, damaged
    or unavailable.
    """

    tables: tuple[TableRef, ...]
    more: int = 0
    totals: Mapping[TableId, Totals] = field(default_factory=dict)
    unreadable: frozenset[TableId] = frozenset()

    def listing(self) -> Listing:
        """Returns a row per table."""
        deleting = sum(table.state is TableState.DELETING for table in self.tables)
        shown = len(self.tables)
        summary = pluralize(shown - deleting, "table")
        return Listing(
            name="tables",
            summary=f"{summary}, {deleting:,} being deleted" if deleting else summary,
            columns=_TABLES_COLUMNS,
            rows=tuple(self._row(table) for table in self.tables),
            note=describe_omission(shown + self.more, shown, "table"),
        )

    def _row(self, table: TableRef) -> tuple[Value, ...]:
        totals = self.totals.get(table.id)
        counts = (totals.rows, totals.files, totals.bytes, totals.leaves) if totals else (None,) * 4
        state = "unreadable" if table.id in self.unreadable else table.state.value
        return (table.name, table.id, table.online, state, *counts)


def gather_tables(
    index: TableIndex,
    table_id: TableId | None = None,
    limit: int | None = None,
    read_totals: Callable[[TableId], Totals] | None = None,
) -> TablesReport:
    """Lists all tables, or the one with `table_id`, with the totals that `read_totals` returns.

    Logs a table whose state is unreadable and continues with the others.
    """
    tables = index.list() + index.list(TableState.DELETING)
    selected = tuple(t for t in tables if table_id is None or t.id == table_id)
    shown = selected[:limit]
    totals: dict[TableId, Totals] = {}
    unreadable: set[TableId] = set()
    for table in shown:
        if read_totals is None or table.state is not TableState.ACTIVE:
            continue
        try:
            totals[table.id] = read_totals(table.id)
        except SleeperError as error:
            logger.warning("could not read table %s: %s", table.name, error)
            unreadable.add(table.id)
    return TablesReport(shown, len(selected) - len(shown), totals, frozenset(unreadable))
