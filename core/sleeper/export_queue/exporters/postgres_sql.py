"""The SQL by which exports reach a table of PostgreSQL, guarded by their sequence numbers.

A batch is copied into a temporary table and then merged by one statement each for upserts, for
tombstones and for deletions. The table `<name>_gone` has the tombstones: the keys that are gone,
with the sequence and the time.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sleeper.databases.columns import quote_name
from sleeper.databases.url import DatabaseKind
from sleeper.errors import InvalidRequestError
from sleeper.export_queue.definition import SEQUENCE, TOMBSTONE, ExportQueue
from sleeper.schema.model import DecimalType, Field, ListType, PrimitiveType, type_name

STAGING = "__sleeper_exports"
"""The temporary table of a batch, which hides another table of its name."""
TOMBSTONES_KEPT = "7 days"
_NAME_BYTES_MAX = 63
_TOMBSTONES_SUFFIX = "_gone"
_PART = re.compile(r'([^\W\d][\w$]*)|"((?:[^"]|"")+)"')
_TYPES = {
    PrimitiveType.INT: "integer",
    PrimitiveType.LONG: "bigint",
    PrimitiveType.FLOAT: "real",
    PrimitiveType.DOUBLE: "double precision",
    PrimitiveType.STRING: "text",
    PrimitiveType.BYTE_ARRAY: "bytea",
    PrimitiveType.BOOLEAN: "boolean",
    PrimitiveType.TIMESTAMP: "timestamp with time zone",
    PrimitiveType.DATE: "date",
    PrimitiveType.JSON: "json",
}


def quote(name: str) -> str:
    """Returns the name as an identifier."""
    return quote_name(name, DatabaseKind.POSTGRESQL)


def text_literal(text: str) -> str:
    """Returns the text as a literal, whatever the server's setting of backslashes is."""
    doubled = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{doubled}'"


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table. Without a schema, the server looks for it on the search path."""

    schema: str | None
    table: str

    @property
    def quoted(self) -> str:
        """The name in SQL."""
        parts = [self.table] if self.schema is None else [self.schema, self.table]
        return ".".join(map(quote, parts))

    @property
    def tombstones(self) -> "TableName":
        """The name of the table of tombstones."""
        return TableName(self.schema, self.table + _TOMBSTONES_SUFFIX)


def parse_table_name(text: str) -> TableName:
    """Returns the name of a table as SQL reads it: without quotation marks it is in lower case.

    InvalidRequestError if it is no name, or too long for the name of the tombstones.
    """
    parts = []
    position = 0
    while match := _PART.match(text, position):
        plain, quoted = match.groups()
        parts.append(plain.lower() if plain is not None else quoted.replace('""', '"'))
        position = match.end() + 1
        if text[match.end() : position] != ".":
            break
    if len(parts) not in (1, 2) or position <= len(text):
        raise InvalidRequestError(
            f"table {text[:100]!r} is not the name of a table (expected NAME or SCHEMA.NAME, in "
            "quotation marks if it has other characters than letters, digits and _)"
        )
    for part in parts:
        size = len(part.encode()) + len(_TOMBSTONES_SUFFIX)
        if size > _NAME_BYTES_MAX or "\0" in part:
            raise InvalidRequestError(
                f"table {text[:100]!r} has a name of {size - len(_TOMBSTONES_SUFFIX)} bytes "
                f"(expected at most {_NAME_BYTES_MAX - len(_TOMBSTONES_SUFFIX)}, without NUL)"
            )
    return TableName(parts[0] if len(parts) == 2 else None, parts[-1])


def column_type(queue: ExportQueue, field: Field) -> str:
    """Returns the type of the field's column. InvalidRequestError if PostgreSQL has none."""
    match field.type:
        case PrimitiveType():
            return _TYPES[field.type]
        case DecimalType(precision, scale):
            return f"numeric({precision},{scale})"
        case ListType(PrimitiveType() as element):
            return f"{_TYPES[element]}[]"
    raise InvalidRequestError(
        f"export queue {queue.name!r}: value {field.name!r} has type {type_name(field.type)}, for "
        "which PostgreSQL has no column type (expected a simple type, a decimal or a list of "
        "simple values)"
    )


class ReceiverSql:
    """The statements of one queue and table."""

    def __init__(self, queue: ExportQueue, table: TableName) -> None:
        self._table = table.quoted
        self._tombstones = table.tombstones.quoted
        self._keys = [quote(key.name) for key in queue.keys]
        self._values = [quote(value.name) for value in queue.values]
        self._types = {
            quote(field.name): column_type(queue, field) for field in (*queue.keys, *queue.values)
        }

    def create_table(self) -> str:
        """Returns the statement that creates the receiver's table."""
        columns = [f"{name} {self._types[name]}" for name in (*self._keys, *self._values)]
        columns.append(f"{_SEQUENCE} bigint NOT NULL")
        return self._create(self._table, columns)

    def create_tombstones(self) -> str:
        """Returns the statement that creates the table of tombstones unless it exists."""
        columns = [f"{name} {self._types[name]}" for name in self._keys]
        columns += [
            f"{_SEQUENCE} bigint NOT NULL",
            f"{_TOMBSTONE} timestamp with time zone NOT NULL",
        ]
        return self._create(self._tombstones, columns)

    def _create(self, table: str, columns: Iterable[str]) -> str:
        key = f"PRIMARY KEY ({', '.join(self._keys)})"
        return f"CREATE TABLE IF NOT EXISTS {table} ({', '.join([*columns, key])})"

    def create_staging(self) -> str:
        """Returns the statement that creates the temporary table of a batch."""
        columns = [f"{_SEQUENCE} bigint", f"{_TOMBSTONE} boolean"]
        columns += [f"{name} {kind}" for name, kind in self._types.items()]
        return f"CREATE TEMPORARY TABLE {STAGING} ({', '.join(columns)}) ON COMMIT DELETE ROWS"

    def upsert(self) -> str:
        """Returns the statement that writes keys for which there is neither row nor tombstone
        of a sequence that is at least as large."""
        columns = ", ".join([*self._keys, *self._values, _SEQUENCE])
        changes = ", ".join(f"{n} = EXCLUDED.{n}" for n in (*self._values, _SEQUENCE))
        return (
            f"INSERT INTO {self._table} AS held ({columns}) "
            f"SELECT {columns} FROM {STAGING} AS given WHERE NOT {_TOMBSTONE} AND NOT EXISTS "
            f"(SELECT FROM {self._tombstones} AS went WHERE {self._same('went')} "
            f"AND went.{_SEQUENCE} >= given.{_SEQUENCE}) "
            f"ON CONFLICT ({', '.join(self._keys)}) DO UPDATE SET {changes} "
            f"WHERE held.{_SEQUENCE} < EXCLUDED.{_SEQUENCE}"
        )

    def add_tombstones(self) -> str:
        """Returns the statement that writes tombstones of keys that are gone."""
        keys = ", ".join(self._keys)
        return (
            f"INSERT INTO {self._tombstones} AS held ({keys}, {_SEQUENCE}, {_TOMBSTONE}) "
            f"SELECT {keys}, {_SEQUENCE}, now() FROM {STAGING} WHERE {_TOMBSTONE} "
            f"ON CONFLICT ({keys}) DO UPDATE SET {_SEQUENCE} = EXCLUDED.{_SEQUENCE}, "
            f"{_TOMBSTONE} = EXCLUDED.{_TOMBSTONE} WHERE held.{_SEQUENCE} < EXCLUDED.{_SEQUENCE}"
        )

    def delete_gone(self) -> str:
        """Returns the statement that deletes rows of keys that are gone, unless they are newer."""
        return (
            f"DELETE FROM {self._table} AS held USING {STAGING} AS given "
            f"WHERE given.{_TOMBSTONE} AND {self._same('held')} "
            f"AND held.{_SEQUENCE} <= given.{_SEQUENCE}"
        )

    def prune_tombstones(self) -> str:
        """Returns the statement that deletes old tombstones."""
        age = f"now() - interval '{TOMBSTONES_KEPT}'"
        return f"DELETE FROM {self._tombstones} WHERE {_TOMBSTONE} < {age}"

    def _same(self, alias: str) -> str:
        return " AND ".join(f"{alias}.{name} = given.{name}" for name in self._keys)


_SEQUENCE = quote(SEQUENCE)
_TOMBSTONE = quote(TOMBSTONE)
