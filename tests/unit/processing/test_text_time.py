"""Filters and aggregations of any content are parsed in linear time."""

import time

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.processing.model import Processing, check_processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.schema.model import Field, PrimitiveType, Schema

_SECONDS_MAX = 2.0


@pytest.mark.parametrize(
    "text",
    [
        "ageOff(" + " " * 3_000,
        "ageOff(a" + " " * 3_000 + "b," + " " * 3_000,
        "ageOff(a,1" + " " * 3_000 + "x" + " " * 3_000 + '"',
        'ageOff("' + '""' * 300_000,
        "ageOff(" * 100_000,
        "a" * 1_000_000,
        " " * 1_000_000 + "x",
        "ageOff(a,1)," * 80_000 + "x",
        f"ageOff(a,{'9' * 100_000})",
    ],
    ids=["blank", "inner", "argument", "quotes", "nested", "name", "start", "many", "digits"],
)
def test_long_text_is_refused_quickly(text: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidRequestError):
        parse_filters(text)
    with pytest.raises(InvalidRequestError):
        parse_aggregations(text)
    assert time.process_time() - start < _SECONDS_MAX


def test_more_filters_than_the_engine_can_plan_are_refused() -> None:
    schema = Schema((Field("k", PrimitiveType.LONG),))
    check_processing(Processing(parse_filters("ageOff(k,1)," * 100)), schema)
    with pytest.raises(InvalidRequestError, match="101 filters"):
        check_processing(Processing(parse_filters("ageOff(k,1)," * 101)), schema)


def test_spaces_around_names_do_not_count() -> None:
    text = '  ageOff (  a b  ,  12  )  ,ageOff( "c,""d" ,3 ) '
    assert [(f.field, f.age_ms) for f in parse_filters(text)] == [("a b", 12), ('c,"d', 3)]
