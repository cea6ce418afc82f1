"""Numbers in JSON lines have the values and the faults that a strict reader finds."""

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sleeper.datafiles.sources.json_rows import NOT_ROWS, parse_lines
from sleeper.schema.model import Field, FieldType, ListType, MapType, PrimitiveType, Schema
from tests.examples import examples

P = PrimitiveType
KEY = Field("id", P.LONG)
# Arrow refuses 0e400, which Python reads as 0.
NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
)
LONGS = st.integers(-(2**64), 2**64).map(str)
FORMS = {"plain": "{}", "list": "[{}]", "map": '{{"a": {}}}'}


def read_strictly(number: str, kind: PrimitiveType) -> int | float:
    """Returns the number by Python's reader. ValueError if it does not fit."""
    value = float(number) if kind is P.DOUBLE else json.loads(number)
    if kind is P.DOUBLE and math.isinf(value):
        raise ValueError("too large")
    if kind is P.LONG and (isinstance(value, float) or not -(2**63) <= value < 2**63):
        raise ValueError("not a long")
    return value


def read_number(number: str, kind: PrimitiveType, form: str, has_maps: bool) -> int | float:
    kinds: dict[str, FieldType] = {
        "plain": kind,
        "list": ListType(kind),
        "map": MapType(P.STRING, kind),
    }
    others = (Field("other", MapType(P.STRING, P.LONG), nullable=True),) if has_maps else ()
    schema = Schema((KEY,), (), (Field("x", kinds[form]), *others))
    line = f'{{"id": 1, "x": {FORMS[form].format(number)}}}'.encode()
    value = parse_lines([line], schema)["x"][0].as_py()
    while isinstance(value, list | tuple):
        value = value[-1]
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize("has_maps", [False, True])
@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("kind", [P.LONG, P.DOUBLE])
@settings(max_examples=examples(15))
@example("-0")
@example("-0.0")
@example("9223372036854775807")
@example("-9223372036854775808")
@example("9223372036854775808")
@example("1e400")
@given(NUMBERS | LONGS)
def test_numbers_are_those_of_a_strict_reader(
    kind: PrimitiveType, form: str, has_maps: bool, number: str
) -> None:
    try:
        expected = read_strictly(number, kind)
    except ValueError:
        with pytest.raises(NOT_ROWS):
            read_number(number, kind, form, has_maps)
        return
    assert repr(read_number(number, kind, form, has_maps)) == repr(expected)
