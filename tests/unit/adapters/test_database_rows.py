"""Rows of databases become rows of a table, or the first row that does not fit is named."""

from decimal import Decimal

import pyarrow as pa
import pytest

from sleeper.adapters.database_rows import fit_rows
from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import DecimalType, Field, PrimitiveType, Schema

SCHEMA = Schema(
    (Field("id", PrimitiveType.LONG), Field("shop", PrimitiveType.STRING)),
    values=(
        Field("amount", DecimalType(5, 2), nullable=True),
        Field("paid", PrimitiveType.BOOLEAN),
        Field("note", PrimitiveType.STRING, nullable=True, default="none"),
    ),
)


def test_text_is_parsed_and_a_missing_column_has_the_default() -> None:
    columns = {
        "id": pa.array([1, 2], pa.int32()),
        "shop": pa.array(["a", "b"]),
        "amount": pa.array(["1.50", None]),
        "paid": pa.array(["true", "false"]),
    }
    rows = fit_rows(columns, SCHEMA, "shop")
    assert rows.schema == arrow_schema(SCHEMA)
    assert rows.to_pylist() == [
        {"id": 1, "shop": "a", "amount": Decimal("1.50"), "paid": True, "note": "none"},
        {"id": 2, "shop": "b", "amount": None, "paid": False, "note": "none"},
    ]


def test_the_first_row_that_does_not_fit_is_named() -> None:
    columns = {
        "id": pa.array([1, 2, 3]),
        "shop": pa.array(["a", "b" * 100, "c"]),
        "amount": pa.array(["1.50", "2", "much"]),
        "paid": pa.array([True, None, None]),
    }
    with pytest.raises(InvalidRequestError) as caught:
        fit_rows(columns, SCHEMA, "postgresql://shop/db orders")
    assert str(caught.value) == (
        f"postgresql://shop/db orders: row with id 2, shop '{'b' * 76}...: field 'paid' "
        "(BooleanType): null, but the field is not nullable"
    )
