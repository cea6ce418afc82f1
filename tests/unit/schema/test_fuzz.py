"""Schema JSON of any kind is a schema or an invalid request."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.schema.model import schema_from_json, schema_to_json

KNOWN = st.sampled_from(
    [
        *("rowKeyFields", "sortKeyFields", "valueFields", "name", "type", "nullable"),
        *("ListType", "MapType", "DecimalType", "elementType", "keyType", "valueType"),
        *("precision", "scale", "IntType", "StringType"),
    ]
)
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | KNOWN
ANY = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KNOWN | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
TYPES = st.sampled_from(["IntType", "LongType", "StringType", "ByteArrayType", "DateType"]) | ANY
FIELD = st.fixed_dictionaries({"name": st.text(max_size=3) | ANY, "type": TYPES})
SCHEMA = st.fixed_dictionaries(
    {"rowKeyFields": st.lists(FIELD, max_size=3) | ANY},
    optional={"sortKeyFields": st.lists(FIELD, max_size=2), "valueFields": ANY},
)


def check(text: str) -> None:
    try:
        schema = schema_from_json(text)
    except InvalidRequestError:
        return
    assert schema_from_json(schema_to_json(schema)) == schema


@settings(deadline=None, max_examples=300, print_blob=True)
@given(SCHEMA | ANY)
def test_any_json_is_a_schema_or_refused(raw: Any) -> None:
    check(json.dumps(raw))


@settings(deadline=None, max_examples=100, print_blob=True)
@given(st.text())
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"rowKeyFields":' + "[" * 100_000, "9" * 5000])
def test_deep_or_long_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="schema is not JSON"):
        schema_from_json(text)
