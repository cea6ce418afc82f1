"""Changes of value fields, and what refuses them."""

from dataclasses import replace

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.processing.field_changes import (
    AddField,
    DropField,
    FieldChange,
    OrderFields,
    RenameField,
    TableShape,
    WidenField,
)
from sleeper.processing.model import NO_PROCESSING, AggregationOp, Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.schema.model import (
    DecimalType,
    Field,
    PrimitiveType,
    Schema,
    schema_from_json,
    schema_to_json,
)

LONG, INT = PrimitiveType.LONG, PrimitiveType.INT
SCHEMA = Schema(
    (Field("k", LONG),),
    (Field("s", LONG),),
    (Field("time", LONG), Field("n", INT), Field("price", DecimalType(5, 2), nullable=True)),
)
SHAPE = TableShape(SCHEMA, NO_PROCESSING, 9)
FILTERED = replace(SHAPE, processing=Processing(parse_filters("ageOff(time,1000)")))
SUMS = Schema((Field("k", LONG),), (), (Field("n", INT), Field("m", LONG)))
SUMMED = TableShape(SUMS, Processing((), parse_aggregations("sum(n),max(m)")), 3)


def names(shape: TableShape) -> list[str]:
    return [each.name for each in shape.schema.values]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (None, ["time", "n", "price", "new"]),
        ("time", ["time", "new", "n", "price"]),
        ("s", ["new", "time", "n", "price"]),
    ],
)
def test_an_added_field_is_nullable_and_has_a_new_id(
    after: str | None, expected: list[str]
) -> None:
    shape = AddField(Field("new", LONG, default=3), after).apply(SHAPE)
    assert names(shape) == expected
    assert shape.schema.field("new") == Field("new", LONG, nullable=True, id=10, default=3)
    assert shape.last_id == 10


def test_a_dropped_id_is_not_used_again() -> None:
    shape = AddField(Field("new", LONG)).apply(SHAPE)
    shape = DropField("new").apply(shape)
    shape = AddField(Field("new", LONG)).apply(shape)
    assert shape.schema.field("new").id == 11


def test_renamed_fields_keep_their_id_and_have_the_new_name_in_the_processing() -> None:
    shape = RenameField("time", "at").apply(FILTERED)
    assert shape.schema.field("at").id == SCHEMA.field("time").id
    assert shape.processing == Processing(parse_filters("ageOff(at,1000)"))
    summed = RenameField("n", "x").apply(SUMMED)
    assert summed.processing.aggregations == parse_aggregations("sum(x),max(m)")


def test_widened_and_ordered_fields_keep_their_ids() -> None:
    shape = WidenField("n", LONG).apply(SHAPE)
    shape = WidenField("price", DecimalType(7, 2)).apply(shape)
    shape = OrderFields(("price", "n", "time")).apply(shape)
    assert [(f.name, f.id) for f in shape.schema.values] == [("price", 5), ("n", 4), ("time", 3)]
    assert shape.schema.field("n").type is LONG
    assert schema_from_json(schema_to_json(shape.schema)) == shape.schema


def test_a_table_that_aggregates_gets_a_field_with_its_operation() -> None:
    shape = AddField(Field("x", LONG), aggregation=AggregationOp.SUM).apply(SUMMED)
    assert shape.processing.aggregations == parse_aggregations("sum(n),max(m),sum(x)")


@pytest.mark.parametrize(
    ("shape", "change", "reason"),
    [
        (SHAPE, AddField(Field("n", LONG)), "field 'n' already exists"),
        (SHAPE, AddField(Field("k", LONG)), "field 'k' already exists"),
        (SHAPE, AddField(Field("", LONG)), "field name '' is empty"),
        (SHAPE, AddField(Field("x", LONG), "y"), "no field 'y' in the schema"),
        (SHAPE, AddField(Field("x", INT, default="a")), "default 'a' does not fit IntType"),
        (SUMMED, AddField(Field("x", INT, default=1)), "in a table that aggregates"),
        (SHAPE, AddField(Field("x", INT), None, AggregationOp.SUM), "the table does not aggregate"),
        (SHAPE, DropField("k"), "'k' cannot be dropped: it is a key field"),
        (SHAPE, DropField("x"), "no field 'x' in the schema"),
        (FILTERED, DropField("time"), r"filter ageOff\(time\) needs it"),
        (SUMMED, DropField("m"), r"aggregation max\(m\) needs it"),
        (SHAPE, RenameField("s", "t"), "'s' cannot be renamed: it is a key field"),
        (SHAPE, RenameField("n", "k"), "field 'k' already exists"),
        (SHAPE, RenameField("n", "n"), "field 'n' already exists"),
        (SHAPE, WidenField("k", LONG), "'k' cannot be widened: it is a key field"),
        (SHAPE, WidenField("time", INT), "is LongType, which has no wider type"),
        (SHAPE, WidenField("n", PrimitiveType.DOUBLE), "is IntType, which can become LongType"),
        (SHAPE, WidenField("n", INT), "is IntType, which can become LongType"),
        (SHAPE, WidenField("price", DecimalType(9, 3)), "DecimalType of the scale 2"),
        (SHAPE, WidenField("price", DecimalType(4, 2)), "with more digits"),
        (SUMMED, WidenField("n", LONG), r"aggregation sum\(n\) as IntType"),
        (SHAPE, OrderFields(("n", "time")), "expected each value field once: time, n, price"),
        (SHAPE, OrderFields(("n", "time", "time", "price")), "expected each value field once"),
        (SHAPE, OrderFields(("k", "n", "time", "price")), "'k' cannot be ordered"),
    ],
)
def test_a_change_that_cannot_hold_is_refused(
    shape: TableShape, change: FieldChange, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        change.apply(shape)
