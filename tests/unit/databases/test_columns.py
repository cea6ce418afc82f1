"""Columns of databases are checked and selected by one set of rules."""

from typing import Any

import pytest

from sleeper.databases.columns import (
    ColumnKind,
    DatabaseColumn,
    check_columns,
    fits,
    relation_of,
    select_bounds,
    select_rows,
)
from sleeper.databases.errors import database_error
from sleeper.databases.url import DatabaseKind
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)

POSTGRESQL, MARIADB = DatabaseKind.POSTGRESQL, DatabaseKind.MARIADB
ID = DatabaseColumn("id", "int8", ColumnKind.INTEGER)
FIELD_TYPES: list[FieldType] = [
    *PrimitiveType,
    DecimalType(9, 2),
    ListType(PrimitiveType.LONG),
    MapType(PrimitiveType.STRING, PrimitiveType.LONG),
]


def schema_of(**values: FieldType) -> Schema:
    return Schema(
        (Field("id", PrimitiveType.LONG),),
        values=tuple(Field(name, kind, nullable=True) for name, kind in values.items()),
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ColumnKind.INTEGER, "INT LONG FLOAT DOUBLE DecimalType"),
        (ColumnKind.FLOAT, "FLOAT DOUBLE"),
        (ColumnKind.DECIMAL, "INT LONG STRING FLOAT DOUBLE DecimalType"),
        (ColumnKind.BOOLEAN, "BOOLEAN"),
        (ColumnKind.BINARY, "BYTE_ARRAY"),
        (ColumnKind.TEXT, "STRING JSON"),
        (ColumnKind.TIMESTAMP, "STRING TIMESTAMP"),
        (ColumnKind.DATE, "STRING DATE"),
        (ColumnKind.ARRAY, "ListType"),
        (ColumnKind.OTHER, "STRING JSON"),
    ],
)
def test_types_that_fit(kind: ColumnKind, expected: str) -> None:
    column = DatabaseColumn("c", "c", kind, element=ColumnKind.INTEGER)
    fitting = [each for each in FIELD_TYPES if fits(column, each, POSTGRESQL)]
    names = [e.name if isinstance(e, PrimitiveType) else type(e).__name__ for e in fitting]
    assert " ".join(names) == expected


def test_columns_are_read_as_text_unless_their_type_is_exact() -> None:
    columns = [ID, DatabaseColumn('so"me', "numeric", ColumnKind.DECIMAL, 2)]
    columns.append(DatabaseColumn("flag", "BIT", ColumnKind.BOOLEAN))
    columns.append(DatabaseColumn("unused", "xml", ColumnKind.OTHER))
    fields: dict[str, FieldType] = {'so"me': DecimalType(9, 2), "flag": PrimitiveType.BOOLEAN}
    schema = schema_of(**fields)
    assert select_rows("orders", columns, schema, POSTGRESQL) == (
        'SELECT "id" AS c0, CAST("so""me" AS text) AS c1, "flag" AS c2 FROM orders'
    )
    assert select_rows("orders", columns, schema, MARIADB, "unused") == (
        'SELECT CAST(`id` AS SIGNED) AS c0, CAST(`so"me` AS CHAR) AS c1, CASE `flag` + 0 WHEN 0 '
        "THEN 'false' WHEN 1 THEN 'true' ELSE CAST(`flag` + 0 AS CHAR) END AS c2, `unused` AS part "
        "FROM orders"
    )
    assert select_bounds("orders", "id", POSTGRESQL) == (
        'SELECT CAST(MIN("id") AS text), CAST(MAX("id") AS text) FROM orders'
    )


@pytest.mark.parametrize("table", ["orders", "public.orders", 'shop."My ""orders"""', "`a b`.c"])
def test_a_table_is_a_name(table: str) -> None:
    assert relation_of(f" {table} ", None) == table


@pytest.mark.parametrize("table", ["orders; DROP TABLE x", "a b", "(SELECT 1)", "a.b.c.d", '"a'])
def test_other_texts_are_no_table(table: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not the name of a table"):
        relation_of(table, None)


def test_a_query_may_end_with_a_comment() -> None:
    assert relation_of(None, " SELECT 1 ;\n") == "(SELECT 1\n) AS query"


@pytest.mark.parametrize(
    ("columns", "values", "message"),
    [
        ([ID], {"nme": PrimitiveType.STRING}, "shop has no column 'nme' for the field of that name "
         "(expected columns id, nme)"),
        ([ID, DatabaseColumn("name", "varchar", ColumnKind.TEXT)], {"name": PrimitiveType.LONG},
         "shop: column 'name' has the type varchar, which does not fit the field's type LongType "
         "(cast it in a query)"),
        ([ID, ID], {}, "shop has several columns 'id' (expected one)"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_named(
    columns: list[DatabaseColumn], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_columns(columns, schema_of(**values), POSTGRESQL, "shop")
    assert str(caught.value) == message


def test_errors_of_the_request_are_not_retried() -> None:
    for state, kind in (("42P01", InvalidRequestError), ("28P01", InvalidRequestError),
                        ("25006", InvalidRequestError), ("25P02", UnavailableError),
                        ("08001", UnavailableError), ("57014", UnavailableError),
                        (None, UnavailableError)):  # fmt: skip
        error = database_error("shop", state, "it\n  failed")
        assert type(error) is kind
        assert str(error) == "shop: it failed"
