"""Keys, ranges and columns of a query, and their errors."""

import pytest

from sleeper.cli.arguments import parse_key, parse_range
from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Range, Region, disjoint_regions
from sleeper.query.request import (
    Query,
    check_query,
    make_key_regions,
    make_range_region,
    select_columns,
)
from sleeper.schema.model import Field, PrimitiveType, Schema

SCHEMA = Schema(
    (Field("name", PrimitiveType.STRING), Field("n", PrimitiveType.INT)),
    (Field("at", PrimitiveType.LONG),),
    (Field("v", PrimitiveType.STRING), Field("w", PrimitiveType.STRING)),
)
BYTES_SCHEMA = Schema((Field("b", PrimitiveType.BYTE_ARRAY),))
NUMBERS_SCHEMA = Schema((Field("n", PrimitiveType.INT),))


def test_keys_as_text_are_quoted_like_csv():
    region = parse_key(SCHEMA, '"a,""b",7')
    assert region.contains(('a,"b', 7))
    assert not region.contains(('a,"b', 8))
    assert parse_key(BYTES_SCHEMA, "AP8=").contains((b"\x00\xff",))
    assert parse_key(NUMBERS_SCHEMA, "-5").contains((-5,))
    assert parse_key(Schema((Field("s", PrimitiveType.STRING),)), "").contains(("",))


def test_empty_ends_of_ranges_as_text_are_open():
    least = -(2**31)
    assert parse_range(NUMBERS_SCHEMA, "3:9").ranges == (Range(3, 9),)
    assert parse_range(NUMBERS_SCHEMA, ":9").ranges == (Range(least, 9),)
    assert parse_range(NUMBERS_SCHEMA, "3:").ranges == (Range(3, None),)
    assert parse_range(NUMBERS_SCHEMA, ":").ranges == (Range(least, None),)
    assert parse_range(SCHEMA, '"a:b":c').ranges == (Range("a:b", "c"), Range(least, None))


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: parse_key(SCHEMA, "a"), "1 values.*name,n"),
        (lambda: parse_key(SCHEMA, "a,b"), "field 'n': 'b' is not an integer"),
        (lambda: parse_key(SCHEMA, "a,99999999999"), "does not fit"),
        (lambda: parse_key(SCHEMA, '"a,1'), "quoting"),
        (lambda: parse_key(BYTES_SCHEMA, "?"), "base64"),
        (lambda: parse_range(NUMBERS_SCHEMA, "9:3"), "is empty.*9.*3"),
        (lambda: parse_range(NUMBERS_SCHEMA, "3"), "MIN:MAX"),
        (lambda: parse_range(SCHEMA, "a:b:c"), "MIN:MAX"),
        (lambda: make_key_regions(SCHEMA, [("a",)]), "1 values"),
        (lambda: make_key_regions(SCHEMA, ["ab"]), "not a sequence"),
        (lambda: make_key_regions(SCHEMA, [("a", "b")]), "field 'n'"),
        (lambda: make_range_region(NUMBERS_SCHEMA, "a", None), "field 'n'"),
        (lambda: select_columns(SCHEMA, ["x"]), "no value field 'x'.*v, w"),
        (lambda: check_query(Query((Region((Range(0, 1),)),)), SCHEMA), "1 ranges"),
        (lambda: check_query(Query((Region((Range("a", None),)),)), NUMBERS_SCHEMA), "field 'n'"),
        (lambda: check_query(Query((Region((Range(2, 1),)),)), NUMBERS_SCHEMA), "is empty"),
    ],
)
def test_errors_name_the_wrong_value(call, complaint: str):
    with pytest.raises(InvalidRequestError, match=complaint):
        call()


def test_selected_columns_include_all_keys_in_schema_order():
    assert select_columns(SCHEMA, ["w"]) == ("name", "n", "at", "w")
    assert select_columns(SCHEMA, []) == ("name", "n", "at")


def test_overlapping_ranges_are_joined_and_keys_are_not():
    def make_request(*pairs):
        return [Region((Range(a, b),)) for a, b in pairs]

    assert disjoint_regions(make_request((5, 9), (1, 3), (2, 6), (1, 2))) == make_request((1, 9))
    assert disjoint_regions(make_request((2, 3), (1, 2), (2, 3))) == make_request((1, 2), (2, 3))
    assert disjoint_regions(make_request((4, None), (1, 2), (7, 9))) == make_request(
        (1, 2), (4, None)
    )
    assert disjoint_regions([]) == []
