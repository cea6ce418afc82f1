"""Keys, ranges and regions on the command line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.cli.arguments import build_query
from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Range, Region, key_region
from sleeper.schema.model import DecimalType, Field, PrimitiveType, Schema

TYPES = (PrimitiveType.STRING, PrimitiveType.LONG, PrimitiveType.BYTE_ARRAY)
CITY, NUMBER, HASH = (Field(t.name.lower(), t) for t in TYPES)
PLACES = Schema((CITY, NUMBER), (), (Field("v", PrimitiveType.INT),))
BLOBS = Schema((HASH,))
NUMBERS = Schema((NUMBER,))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


# The CSV of an argument has no line breaks.
_TEXTS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n\0"))


@given(_TEXTS, st.integers(-(2**63), 2**63 - 1))
def test_quoted_keys_parse_to_any_text(city: str, number: int) -> None:
    requested = build_query(PLACES, keys=[f"{_quoted(city)},{number}"])
    assert requested.regions == (key_region(PLACES, (city, number)),)


@given(_TEXTS.filter(bool))
def test_quoted_range_bounds_parse_to_any_text(end: str) -> None:
    (region,) = build_query(PLACES, ranges=[f":{_quoted(end)}"]).regions or ()
    assert region.ranges[0] == Range("", end)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10:20", Range(10, 20)),
        ("-10:-5", Range(-10, -5)),
        (":20", Range(-(2**63), 20)),
        ("10:", Range(10, None)),
        (":", Range(-(2**63), None)),
    ],
)
def test_ranges_include_min_and_exclude_max(text: str, expected: Range) -> None:
    assert build_query(NUMBERS, ranges=[text]).regions == (Region((expected,)),)


def test_times_dates_booleans_and_decimals_are_text() -> None:
    kinds = PrimitiveType.TIMESTAMP, PrimitiveType.DATE, PrimitiveType.BOOLEAN, DecimalType(9, 2)
    schema = Schema(tuple(Field(f"f{n}", kind) for n, kind in enumerate(kinds)))
    key = "2013-01-01T05:15:00Z,2013-01-01,true,12.5"
    ranges = ["2013-01-01:2013-01-02", '"2013-01-01T05:15:00Z":"2013-01-02 00:00"']
    region = '{"f2": {"min": true}, "f3": {"max": 12.5}}'
    found = build_query(schema, [key], ranges, [region]).regions or ()
    midnight, second, day = 1_356_998_400_000_000, 1_357_017_300_000_000, 86_400_000_000
    assert found[0] == key_region(schema, (second, 15_706, 1, 1250))
    assert [each.ranges[0] for each in found[1:3]] == [
        Range(midnight, midnight + day),
        Range(second, midnight + day),
    ]
    assert found[3].ranges[2:] == (Range(1, None), Range(-(10**9) + 1, 1250))


def test_byte_arrays_are_base64() -> None:
    requested = build_query(BLOBS, keys=["AP8="], ranges=["AA==:/w=="])
    assert requested.regions == (
        key_region(BLOBS, (b"\x00\xff",)),
        Region((Range(b"\x00", b"\xff"),)),
    )


def test_keys_ranges_and_regions_are_combined() -> None:
    region = {"long": {"min": 1, "max": 2}}
    requested = build_query(PLACES, ["a,1", "b,2"], ["c:d"], [json.dumps(region)])
    assert requested.regions is not None
    assert [r.ranges for r in requested.regions] == [
        (Range("a", "a\0"), Range(1, 2)),
        (Range("b", "b\0"), Range(2, 3)),
        (Range("c", "d"), Range(-(2**63), None)),
        (Range("", None), Range(1, 2)),
    ]


def test_no_arguments_select_the_whole_table() -> None:
    requested = build_query(PLACES)
    assert (requested.regions, requested.columns, requested.limit, requested.version) == (
        None,
        None,
        None,
        None,
    )


def test_columns_keep_their_order_and_accept_quotes() -> None:
    assert build_query(PLACES, columns='v, string,"a,b"').columns == ("v", "string", "a,b")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": ["a"]}, "key 'a' has 1 values (expected one per row key field: string,long)"),
        ({"keys": ["a,1,2"]}, "has 3 values"),
        ({"keys": ["a,one"]}, "field 'long': 'one' is not an integer"),
        ({"keys": [f"a,{2**63}"]}, "field 'long': 9223372036854775808 does not fit LongType"),
        ({"keys": ['"a,1']}, "invalid CSV quoting: "),
        ({"ranges": ["a"]}, "invalid range: 'a' (expected MIN:MAX"),
        ({"ranges": ["a:b:c"]}, "invalid range: 'a:b:c' (expected MIN:MAX"),
        ({"ranges": ["b:a"]}, "range of field 'string' is empty"),
        ({"regions": ["{"]}, "region '{' is not JSON"),
        ({"regions": ["[]"]}, "region must be a JSON object"),
        ({"regions": ['{"v": {}}']}, "region has 'v', which is not a row key field"),
        ({"columns": '"a'}, "invalid CSV quoting of columns: '\"a'"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, list[str]], message: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        build_query(PLACES, **arguments)
    assert message in str(refusal.value)


def test_invalid_base64_is_rejected() -> None:
    with pytest.raises(InvalidRequestError, match=r"field 'byte_array': '\*' is not base64"):
        build_query(BLOBS, keys=["*"])
