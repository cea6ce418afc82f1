"""Columns of databases, and the SQL that reads them as fields of a table.

Integers, floats, booleans, bytes and arrays are read in their own types. All others are read
as text: the database formats it and its reader parses it, so that no driver rounds
a number or moves a time. Times without a zone are in UTC.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sleeper.databases.url import DatabaseKind
from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    type_name,
)

PART_COLUMN = "part"
POSTGRESQL_FORMATS = tuple(
    f"SET LOCAL {each}"
    for each in ("TimeZone = 'UTC'", "DateStyle = 'ISO'", "IntervalStyle = 'iso_8601'")
)
"""The statements after which a transaction of PostgreSQL formats all values alike."""

_IDENTIFIER = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+"|`(?:[^`]|``)+`)'
_TABLE = re.compile(rf"{_IDENTIFIER}(?:\.{_IDENTIFIER}){{0,2}}")


class ColumnKind(Enum):
    """The kinds of values of a column."""

    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    BINARY = "binary"
    TEXT = "text"
    TIMESTAMP = "timestamp"
    DATE = "date"
    ARRAY = "array"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class DatabaseColumn:
    """A column of a table or query. `type_name` is the database's own.

    `scale` is the number of decimal places, 0 also if the column has no limit. `element` is the
    kind of an array's elements.
    """

    name: str
    type_name: str
    kind: ColumnKind
    scale: int = 0
    element: ColumnKind | None = None


_OWN_TYPES = {
    ColumnKind.INTEGER,
    ColumnKind.FLOAT,
    ColumnKind.BINARY,
    ColumnKind.ARRAY,
    ColumnKind.BOOLEAN,
}
_NUMBERS = {ColumnKind.INTEGER, ColumnKind.FLOAT, ColumnKind.DECIMAL}
_WHOLE = {ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.BOOLEAN}
_FITTING: dict[PrimitiveType, set[ColumnKind]] = {
    PrimitiveType.INT: _WHOLE,
    PrimitiveType.LONG: _WHOLE,
    PrimitiveType.FLOAT: _NUMBERS,
    PrimitiveType.DOUBLE: _NUMBERS,
    PrimitiveType.STRING: set(ColumnKind) - _OWN_TYPES,
    PrimitiveType.BYTE_ARRAY: {ColumnKind.BINARY},
    PrimitiveType.BOOLEAN: {ColumnKind.BOOLEAN},
    PrimitiveType.TIMESTAMP: {ColumnKind.TIMESTAMP},
    PrimitiveType.DATE: {ColumnKind.DATE},
    PrimitiveType.JSON: {ColumnKind.TEXT, ColumnKind.OTHER},
}
_PARTED = {ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.TIMESTAMP, ColumnKind.DATE}


def check_columns(
    columns: Sequence[DatabaseColumn], schema: Schema, database: DatabaseKind, where: str
) -> None:
    """Raises InvalidRequestError if a field has no column, or one that can never fit it.

    A field that was added to the table may have none. `where` names the table or query.
    """
    by_name = {column.name: column for column in columns}
    for field in schema.fields:
        column = by_name.get(field.name)
        if column is None:
            if field.name in schema.added_names:
                continue
            near = did_you_mean(field.name, by_name)
            raise InvalidRequestError(
                f"{where} has no column {field.name!r} for the field of that name (expected "
                f"columns {', '.join(each.name for each in schema.fields)}){near}"
            )
        if not fits(column, field.type, database):
            raise InvalidRequestError(
                f"{where}: column {field.name!r} has the type {column.type_name}, which does not "
                f"fit the field's type {type_name(field.type)} (cast it in a query)"
            )
    doubled = {each.name for each in columns if [c.name for c in columns].count(each.name) > 1}
    used = sorted(doubled & {field.name for field in schema.fields})
    if used:
        raise InvalidRequestError(f"{where} has several columns {used[0]!r} (expected one)")


def fits(column: DatabaseColumn, field_type: FieldType, database: DatabaseKind) -> bool:
    """Whether some values of the column fit the type."""
    match field_type:
        case PrimitiveType():
            return _kind_fits(column.kind, column.scale, field_type, database)
        case DecimalType():
            return column.kind in {ColumnKind.INTEGER, ColumnKind.DECIMAL}
        case ListType(PrimitiveType() as element):
            is_array = column.kind is ColumnKind.ARRAY and column.element is not None
            return is_array and _kind_fits(column.element, 0, element, database)
        case ListType() | MapType():
            return False


def _kind_fits(
    kind: ColumnKind | None, scale: int, field_type: PrimitiveType, database: DatabaseKind
) -> bool:
    if field_type in (PrimitiveType.INT, PrimitiveType.LONG):
        # MySQL's BOOLEAN is a number of one digit.
        is_number = kind is not ColumnKind.BOOLEAN or database is not DatabaseKind.POSTGRESQL
        return kind in _WHOLE and scale == 0 and is_number
    return kind in _FITTING[field_type]


def is_read_as_text(kind: ColumnKind, database: DatabaseKind, field_type: FieldType) -> bool:
    """Whether `select_rows` reads such a column as text."""
    if kind is ColumnKind.BOOLEAN and database is not DatabaseKind.POSTGRESQL:
        return field_type is PrimitiveType.BOOLEAN
    return kind not in _OWN_TYPES


def relation_of(table: str | None, query: str | None) -> str:
    """Returns the table or query for a FROM clause. InvalidRequestError if it is not a name."""
    if table is not None:
        if _TABLE.fullmatch(table.strip()) is None:
            raise InvalidRequestError(
                f"table {table!r} is not the name of a table (expected NAME or SCHEMA.NAME, in "
                "quotation marks if it has other characters than letters, digits and _)"
            )
        return table.strip()
    text = (query or "").strip().rstrip(";").rstrip()
    # The last line may be a comment.
    return f"({text}\n) AS query"


def select_rows(
    relation: str,
    columns: Sequence[DatabaseColumn],
    schema: Schema,
    database: DatabaseKind,
    part_column: str | None = None,
) -> str:
    """Returns a SELECT whose column `c<n>` is the n-th field of the schema.

    Fields without a column are left out. `part_column` is read as `PART_COLUMN`.
    """
    by_name = {column.name: column for column in columns}
    selected = [
        f"{_expression(by_name[field.name], field, database)} AS c{index}"
        for index, field in enumerate(schema.fields)
        if field.name in by_name
    ]
    if part_column is not None:
        selected.append(f"{quote_name(part_column, database)} AS {PART_COLUMN}")
    return f"SELECT {', '.join(selected)} FROM {relation}"


def _expression(column: DatabaseColumn, field: Field, database: DatabaseKind) -> str:
    name = quote_name(column.name, database)
    is_text = is_read_as_text(column.kind, database, field.type)
    if database is DatabaseKind.POSTGRESQL:
        if column.kind is ColumnKind.ARRAY and not is_text:
            # Drivers read an array of several dimensions as a flat one. The null does not fit.
            flat = f"array_append({name}[1:0], NULL)"
            return f"CASE WHEN array_ndims({name}) > 1 THEN {flat} ELSE {name} END"
        return f"CAST({name} AS text)" if is_text else name
    match column.kind:
        case ColumnKind.BOOLEAN if is_text:
            text = f"CAST({name} + 0 AS CHAR)"
            return f"CASE {name} + 0 WHEN 0 THEN 'false' WHEN 1 THEN 'true' ELSE {text} END"
        case ColumnKind.INTEGER | ColumnKind.BOOLEAN:
            return f"CAST({name} AS SIGNED)"
        case ColumnKind.FLOAT:
            # A FLOAT is sent as text of six digits, a DOUBLE with all of its digits.
            return f"{name} + 0E0"
        case ColumnKind.BINARY:
            return name
        case _:
            # Text too: Spark fills up values of the type CHAR with blanks.
            return f"CAST({name} AS CHAR)"


def select_bounds(relation: str, column: str, database: DatabaseKind) -> str:
    """Returns a SELECT of the smallest and the largest value of a column, as text."""
    name = quote_name(column, database)
    kind = "text" if database is DatabaseKind.POSTGRESQL else "CHAR"
    return f"SELECT CAST(MIN({name}) AS {kind}), CAST(MAX({name}) AS {kind}) FROM {relation}"


def find_part_column(columns: Sequence[DatabaseColumn], name: str, where: str) -> DatabaseColumn:
    """Returns the column by which parts are cut. InvalidRequestError if it cannot be cut."""
    by_name = {column.name: column for column in columns}
    if name not in by_name:
        near = did_you_mean(name, by_name)
        raise InvalidRequestError(f"{where} has no partition column {name!r}{near}")
    column = by_name[name]
    if column.kind not in _PARTED:
        raise InvalidRequestError(
            f"{where}: partition column {name!r} has the type {column.type_name} (expected an "
            "integer, a decimal, a date or a timestamp)"
        )
    return column


def quote_name(name: str, database: DatabaseKind) -> str:
    """Returns the name of a column as an identifier of SQL."""
    mark = '"' if database is DatabaseKind.POSTGRESQL else "`"
    return mark + name.replace(mark, mark * 2) + mark
