"""Conditions on row key fields are exactly the regions of their keys."""

import random
from itertools import product
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.partitions.condition import parse_condition
from sleeper.partitions.region import Range
from sleeper.schema.model import DecimalType, Field, PrimitiveType, Schema
from tests.seeds import choose_seed

SCHEMA = Schema(
    (
        Field("city", PrimitiveType.STRING),
        Field("day", PrimitiveType.INT),
        Field("raw", PrimitiveType.BYTE_ARRAY),
    ),
    (Field("hour", PrimitiveType.INT),),
    (Field("celsius", PrimitiveType.DOUBLE),),
)
OTHERS = Schema(
    (
        Field("at", PrimitiveType.TIMESTAMP),
        Field("date", PrimitiveType.DATE),
        Field("is_open", PrimitiveType.BOOLEAN),
        Field("fare", DecimalType(9, 2)),
    )
)
SECOND = 1_357_017_300_000_000
LOWEST, HIGHEST = -(2**31), 2**31 - 1
ALL_DAYS, ALL_CITIES, ALL_BYTES = Range(LOWEST, None), Range("", None), Range(b"", None)


def ranges(text: str) -> list[tuple[Range, ...]]:
    return [region.ranges for region in parse_condition(SCHEMA, text)]


@pytest.mark.parametrize(
    ("text", "city", "day", "raw"),
    [
        ("city = 'Oslo'", Range("Oslo", "Oslo\0"), ALL_DAYS, ALL_BYTES),
        ("`city`='it''s'", Range("it's", "it's\0"), ALL_DAYS, ALL_BYTES),
        ("day>-5", ALL_CITIES, Range(-4, None), ALL_BYTES),
        ("day >= +5", ALL_CITIES, Range(5, None), ALL_BYTES),
        ("day < 5", ALL_CITIES, Range(LOWEST, 5), ALL_BYTES),
        ("day <= 5", ALL_CITIES, Range(LOWEST, 6), ALL_BYTES),
        (f"day <= {HIGHEST}", ALL_CITIES, ALL_DAYS, ALL_BYTES),
        (f"day = {HIGHEST}", ALL_CITIES, Range(HIGHEST, None), ALL_BYTES),
        ("day between 3 and 5", ALL_CITIES, Range(3, 6), ALL_BYTES),
        ("raw = X'00fF'", ALL_CITIES, ALL_DAYS, Range(b"\0\xff", b"\0\xff\0")),
        ("\n((city > 'A' AND (day = 3)))\t", Range("A\0", None), Range(3, 4), ALL_BYTES),
    ],
)
def test_one_region(text: str, city: Range, day: Range, raw: Range) -> None:
    assert ranges(text) == [(city, day, raw)]


@pytest.mark.parametrize(
    ("text", "place", "within"),
    [
        ("at = '2013-01-01T05:15:00Z'", 0, Range(SECOND, SECOND + 1)),
        ("at >= TIMESTAMP '2013-01-01 05:15:00'", 0, Range(SECOND, None)),
        ("date = date '2013-01-01'", 1, Range(15_706, 15_707)),
        ("date BETWEEN '2013-01-01' AND DATE '2013-01-02'", 1, Range(15_706, 15_708)),
        ("is_open = TRUE", 2, Range(1, None)),
        ("is_open < true", 2, Range(0, 1)),
        ("fare > 12.5", 3, Range(1251, None)),
        ("fare IN (-1)", 3, Range(-100, -99)),
        ("fare = '0.01'", 3, Range(1, 2)),
    ],
)
def test_values_of_other_types(text: str, place: int, within: Range) -> None:
    (region,) = parse_condition(OTHERS, text)
    assert region.ranges[place] == within


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("at > 5", "'5' at character 6 (expected text of a TimestampType)"),
        ("at = DATE '2013-01-01'", "expected a value of TimestampType"),
        ("date = TIMESTAMP '2013-01-01'", "expected a value of DateType"),
        ("date = 'noon'", "expected a date such as 2013-01-31"),
        ("is_open = 1.0", "expected a value of BooleanType"),
        ("is_open = 1", "expected true or false"),
        ("fare = 1.005", "at most 2 decimal places"),
        (f"fare = 1.{'0' * 40}1", "at most 2 decimal places"),
    ],
)
def test_values_that_do_not_fit_other_types(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse_condition(OTHERS, text)
    assert reason in str(refusal.value)


def test_alternatives_are_several_regions() -> None:
    found = ranges("city IN ('A', 'B') AND day = 1 OR city = 'C'")
    assert [(city.min, day) for city, day, _ in found] == [
        ("A", Range(1, 2)),
        ("B", Range(1, 2)),
        ("C", ALL_DAYS),
    ]


@pytest.mark.parametrize(
    "text", ["day > 2147483647", "day < -2147483648", "day BETWEEN 5 AND 3", "day = 1 AND day = 2"]
)
def test_a_condition_that_no_key_fulfils_has_no_region(text: str) -> None:
    assert ranges(text) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "its end (expected a row key field)"),
        (
            "celsius > 3",
            "'celsius' at character 1 is not a row key field (expected city, day, raw:",
        ),
        ("day = 1 AND hour = 3", "'hour' at character 13 is not a row key field"),
        ("City = 'x'", "'City' at character 1 is not a row key field"),
        ("day != 3", "'!= 3' at character 5 (expected =, <, <=, >, >=, BETWEEN or IN)"),
        ("day <> 3", "'<> 3' at character 5"),
        ("NOT day = 3", "'NOT day = 3' at character 1 (expected a row key field)"),
        ("day NOT IN (3)", "'NOT IN (3)' at character 5"),
        ("city LIKE 'O%'", "\"LIKE 'O%'\" at character 6"),
        ("city IS NULL", "'IS NULL' at character 6"),
        ("day = NULL", "'NULL' at character 7 (expected a value"),
        ("3 = day", "'3 = day' at character 1 (expected a row key field)"),
        ("day = day", "'day' at character 7 (expected a value"),
        ("day = 3 + 1", "'+ 1' at character 9"),
        ("abs(day) = 3", "'abs' at character 1 is not a row key field"),
        ("day = 3.0", "'3.0' at character 7"),
        ("day = 3L", "'3L' at character 7"),
        ("day = 99999999999", "99999999999 does not fit"),
        ("day = " + "9" * 100_000, "does not fit"),
        ("day = '3'", "field 'day' is IntType: str '3' does not fit"),
        ("city = 3", "field 'city' is StringType: int 3 does not fit"),
        ("city = raw", "(expected a value"),
        ('city = "Oslo"', "'\"Oslo\"' at character 8 (expected text in ''"),
        ("city = 'O\\'slo'", "text without backslashes"),
        ("city = 'Oslo", '"\'Oslo" at character 8'),
        ("city = '\ud800'", "is not Unicode text"),
        ("raw = X'0'", "pairs of hexadecimal digits"),
        ("day = 1 day = 2", "'day = 2' at character 9 (expected AND, OR or the end)"),
        ("day = 1;", "';' at character 8"),
        ("day = 1 -- all", "'-- all' at character 9"),
        ("(day = 1", "its end (expected ))"),
        ("day = 1)", "')' at character 8"),
        ("day IN ()", "')' at character 9 (expected a value"),
        ("day IN (1", "its end (expected ))"),
        ("day BETWEEN 1", "its end (expected AND)"),
        ("day = 1 AND", "its end (expected a row key field)"),
        ("TRUE", "'TRUE' at character 1"),
        ("(" * 10_000 + "day = 1" + ")" * 10_000, "at most 20 nested parentheses"),
        (
            " AND ".join([f"day IN ({', '.join(map(str, range(400)))})"] * 2),
            "condition: 160,000 combinations (expected at most 100,000)",
        ),
    ],
)
def test_what_is_not_a_region_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse_condition(SCHEMA, text)
    assert reason in str(refusal.value)
    assert str(refusal.value).startswith("condition: ")
    assert len(str(refusal.value)) < 300


def test_random_conditions_select_the_keys_that_fulfil_them() -> None:
    chosen = random.Random(choose_seed())
    keys = [*product("abc", range(4), [b"", b"\x01", b"\x02"])]
    for _ in range(80):
        text, fulfils = _condition(chosen, 3)
        regions = parse_condition(SCHEMA, text)
        for key in keys:
            assert any(region.contains(key) for region in regions) == fulfils(key), (text, key)


def _condition(chosen: random.Random, depth: int) -> tuple[str, Any]:
    """Returns a condition, and the same in Python."""
    if depth and chosen.random() < 0.6:
        (left, a), (right, b) = _condition(chosen, depth - 1), _condition(chosen, depth - 1)
        if chosen.random() < 0.5:
            return f"({left}) AND ({right})", lambda key: a(key) and b(key)
        return f"({left} OR {right})", lambda key: a(key) or b(key)
    place = chosen.randrange(3)
    choices: list[list[Any]] = [
        ["a", "b", "bb", "c"], [-1, 0, 1, 2, 3], [b"", b"\x01", b"\x01\0"]
    ]  # fmt: skip
    values = choices[place]
    name = SCHEMA.row_keys[place].name
    low, high = (chosen.choice(values) for _ in range(2))
    match chosen.randrange(7):
        case 0:
            return f"{name} = {_text(low)}", lambda key: key[place] == low
        case 1:
            return f"{name} < {_text(low)}", lambda key: key[place] < low
        case 2:
            return f"{name} <= {_text(low)}", lambda key: key[place] <= low
        case 3:
            return f"{name} > {_text(low)}", lambda key: key[place] > low
        case 4:
            return f"{name} >= {_text(low)}", lambda key: key[place] >= low
        case 5:
            listing = f"{name} IN ({_text(low)}, {_text(high)})"
            return listing, lambda key: key[place] in (low, high)
    between = f"{name} BETWEEN {_text(low)} AND {_text(high)}"
    return between, lambda key: low <= key[place] <= high


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return f"'{value}'" if isinstance(value, str) else str(value)
