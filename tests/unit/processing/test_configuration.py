"""Valid filters and aggregations, and the reasons for refusing others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.processing.model import (
    AgeOff,
    Aggregation,
    AggregationOp,
    JsonContains,
    Processing,
    check_processing,
)
from sleeper.processing.text import (
    format_aggregations,
    format_filters,
    parse_aggregations,
    parse_filters,
    processing_from_json,
    processing_to_json,
)
from sleeper.schema.model import DecimalType, Field, ListType, MapType, PrimitiveType, Schema
from tests.tables.json_documents import VALUES, written

P = PrimitiveType
SCHEMA = Schema(
    (Field("id", P.STRING),),
    (Field("time", P.LONG),),
    (
        Field("int", P.INT, nullable=True),
        Field("long", P.LONG),
        Field("double", P.DOUBLE),
        Field("text", P.STRING),
        Field("decimal", DecimalType(9, 2)),
        Field("list", ListType(P.LONG)),
        Field("counts", MapType(P.STRING, P.LONG)),
        Field("names", MapType(P.LONG, P.STRING)),
        Field("floats", MapType(P.DOUBLE, P.LONG)),
        Field("seen", P.TIMESTAMP, nullable=True),
        Field("day", P.DATE),
        Field("doc", P.JSON, nullable=True),
    ),
)

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
filters = st.one_of(
    st.builds(AgeOff, names, st.integers(0, 2**63 - 1)),
    st.builds(JsonContains, names, VALUES.flatmap(written).map(str.strip)),
)


def check(filters: str = "", aggregations: str = "") -> None:
    processing = Processing(parse_filters(filters), parse_aggregations(aggregations))
    check_processing(processing, SCHEMA)


def test_the_documented_formats_are_read():
    assert parse_filters("ageOff(time,3600000)") == (AgeOff("time", 3_600_000),)
    assert parse_aggregations(" sum(int), MAX( long ) ,map_min(counts)") == (
        Aggregation(AggregationOp.SUM, "int"),
        Aggregation(AggregationOp.MAX, "long"),
        Aggregation(AggregationOp.MAP_MIN, "counts"),
    )
    assert parse_filters('JsonContains( "a,b" , {"t": "),("} ) ,ageOff(time,1)') == (
        JsonContains("a,b", '{"t": "),("}'),
        AgeOff("time", 1),
    )
    assert parse_filters("") == () == parse_aggregations(" ")


@given(
    st.lists(filters),
    st.lists(st.builds(Aggregation, st.sampled_from(AggregationOp), names)),
)
def test_any_processing_is_read_as_it_was_written(filters, aggregations):
    processing = Processing(tuple(filters), tuple(aggregations))
    assert parse_filters(format_filters(processing.filters)) == processing.filters
    assert parse_aggregations(format_aggregations(processing.aggregations)) == (
        processing.aggregations
    )
    assert processing_from_json(processing_to_json(processing)) == processing


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ageOff", "'ageOff' is not a filter such as"),
        ("ageOff(time)", "invalid age"),
        ("ageOff(time,-1)", "invalid age: '-1' .expected an integer, in milliseconds"),
        ("ageOff(time,1.5)", "invalid age"),
        ("ageOff(time,9223372036854775808)", r"more than 2\^63-1"),
        ("ageOff(,1)", "is not a filter"),
        ("youngest(time,1)", r"unknown filter 'youngest' \(expected ageOff\(field,millis\)"),
        ("ageOff(time,1) and more", "'ageOff.* and more' is not a filter"),
        ("ageOff(nowhere,1)", "no field 'nowhere' in the schema, which has: id, time"),
        ("ageOff(id,1)", "field 'id' is StringType"),
        ("ageOff(int,1)", "needs a LongType of milliseconds since 1970, or a TimestampType"),
        ("ageOff(day,1)", "field 'day' is DateType"),
        ('ageOff(time,"1")', "is not a filter such as"),
        ("ageOff(time,1,2)", "is not a filter such as"),
        ("jsonContains(doc)", r"jsonContains\(doc\): no value \(expected one of JSON\)"),
        ("jsonContains(doc,)", "invalid JSON '': Expecting value"),
        ("jsonContains(doc,1,2)", "invalid JSON '1,2': Extra data"),
        ("jsonContains(doc,{'a': 1})", "invalid JSON .*Expecting property name"),
        ("jsonContains(doc,NaN)", "invalid JSON 'NaN': NaN is not JSON"),
        ('jsonContains(doc,{"a": 1, "a": 1})', "the member 'a' is there twice"),
        ('jsonContains(doc,"\\ud800")', "half of a surrogate pair"),
        ('jsonContains(doc,{"a": ")})', "is not a filter such as .* or jsonContains"),
        ('jsonContains(doc,")") x', "is not a filter such as"),
        (f"jsonContains(doc,[{'0,' * 100}0])", r"102 values \(expected at most 100\)"),
        (f"jsonContains(doc,{'[' * 60_000})", "invalid JSON"),
        (f'jsonContains(doc,"{"x" * 2**16}")', "of 65,538 characters .expected at most 65,536"),
        ("jsonContains(text,1)", "needs a JSONType: field 'text' is StringType"),
        ("jsonContains(nowhere,1)", "no field 'nowhere' in the schema"),
    ],
)
def test_a_filter_is_refused(text: str, reason: str):
    with pytest.raises(InvalidRequestError, match=reason):
        check(filters=text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('sum("int",{"a": 1})', "is not an aggregation such as"),
        ("avg(int)", r"unknown aggregation: 'avg' \(expected one of sum, min, max, map_sum"),
        ("sum(int,2)", r"sum\(int\) takes one field, not '2'"),
        ("sum", "'sum' is not an aggregation such as"),
        ("sum(nowhere)", "no field 'nowhere'"),
        ("sum(time)", "'time' is a key field"),
        ("sum(double)", "the field is DoubleType, expected IntType or LongType: a sum of others"),
        ("sum(decimal)", r"the field is DecimalType\(9,2\), expected IntType or LongType"),
        ("sum(text)", "the field is StringType, expected IntType or LongType$"),
        ("min(list)", "a type that has an order"),
        ("max(counts)", "a type that has an order"),
        ("map_sum(int)", "expected a MapType whose values are IntType or LongType"),
        ("map_sum(names)", r"the field is MapType\(LongType,StringType\), expected"),
        ("map_max(floats)", "whose keys are no floats"),
        ("sum(int),max(long),sum(int)", "field 'int' is aggregated twice"),
        ("sum(int),max(long)", "no aggregation for field 'double', 'text', 'decimal'"),
    ],
)
def test_an_aggregation_is_refused(text: str, reason: str):
    with pytest.raises(InvalidRequestError, match=reason):
        check(aggregations=text)


def test_a_filter_of_a_value_is_refused_where_rows_are_aggregated():
    check("ageOff(seen,1),ageOff(time,1),ageOff(long,2)")
    schema = Schema(SCHEMA.row_keys, SCHEMA.sort_keys, (Field("seen", P.TIMESTAMP),))
    good = Processing((AgeOff("time", 1),), parse_aggregations("max(seen)"))
    check_processing(good, schema)
    bad = Processing((AgeOff("seen", 1),), good.aggregations)
    with pytest.raises(InvalidRequestError, match="field 'seen' is aggregated"):
        check_processing(bad, schema)


def test_a_processing_of_a_newer_version_is_refused():
    with pytest.raises(InvalidRequestError, match="unknown members of processing: window"):
        processing_from_json('{"window": "x"}')
    with pytest.raises(InvalidRequestError, match="processing cannot be read"):
        processing_from_json("[")
