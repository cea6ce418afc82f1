"""JSON without quotes, as Gson parses it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.lenient_json import parse_message_object
from sleeper.lenient_parser import parse_lenient_object

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _VALUES, max_size=4))
def test_json_is_read_as_json(raw):
    for text in (json.dumps(raw), json.dumps(raw, ensure_ascii=False, indent=1)):
        if "Infinity" not in text:
            assert parse_lenient_object(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ("{a:b}", {"a": "b"}),
        (
            "{a.b-c: 2024-01-01, d: 007, e: True, f: NULL, g: -1.5}",
            {"a.b-c": "2024-01-01", "d": "007", "e": True, "f": None, "g": -1.5},
        ),
        (r"""{'it\'s': 'a "b" \u00e9\n'}""", {"it's": 'a "b" é\n'}),
        ("{a: [1, two, {b: 'three'}], c: []}", {"a": [1, "two", {"b": "three"}], "c": []}),
    ],
)
def test_quotes_may_lack(text, expected):
    assert parse_lenient_object(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "{",
        "{a",
        "{a:",
        "{a:}",
        "{a:b",
        "{a:b}c",
        "{'a:b}",
        "{a:'\\q'}",
        "{a:[b}",
        "{:b}",
        "{a: s3://b}",
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match=r"character|column|escape|expected"):
        parse_lenient_object(text)
    with pytest.raises(InvalidRequestError, match=r"m is not JSON|m: it is"):
        parse_message_object(text, "m")


def test_deep_values_are_refused():
    with pytest.raises(InvalidRequestError):
        parse_message_object("{a:" * 100_000, "m")
