"""The report on one table: what it is, and what it holds."""

from dataclasses import dataclass

from sleeper.properties.table import NAME, ONLINE, SCHEMA, TABLE_ID
from sleeper.properties.values import TableProperties
from sleeper.reports.listing import Column, ColumnKind, Listing, counted
from sleeper.reports.properties import PropertiesReport, gather_table_properties
from sleeper.schema.model import Schema, type_name
from sleeper.statestore.reading.file_queries import Totals
from sleeper.statestore.store import StateStore
from sleeper.tables.table_ref import TableRef

_COLUMNS = (
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
            Listing("table", f"table {name}", _COLUMNS, (self._row(),)),
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
