"""Which documents contain a value, compared with what Python finds in parsed ones."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.documents.containment import contains
from sleeper.datafiles.json_syntax import NotJsonError, check_json
from sleeper.errors import InvalidRequestError
from sleeper.processing.json_argument import read_json_argument
from sleeper.processing.model import JsonContains
from sleeper.processing.text import format_filters, parse_filters
from tests.tables.json_documents import VALUES, Number, written


def has(document: Any, value: Any, is_outermost: bool = True) -> bool:
    """Returns whether a document contains a value, as PostgreSQL documents `@>`."""
    if isinstance(value, dict):
        return isinstance(document, dict) and all(
            name in document and has(document[name], each, False) for name, each in value.items()
        )
    if isinstance(value, list):
        return isinstance(document, list) and all(
            any(has(element, each, False) for element in document) for each in value
        )
    if is_outermost and isinstance(document, list):
        return any(has(element, value, False) for element in document)
    # True equals 1 in Python.
    return type(document) is type(value) and document == value


def parse(text: str) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


# A value that a document nearly contains has one of these too.
MEMBERS: list[dict[str, Any]] = [{}, {}, {"b": None}]
ELEMENTS: list[list[Any]] = [[], [], ["more"]]


@st.composite
def parts(draw: st.DrawFn, value: Any) -> Any:
    """Draws a value that another contains, or nearly."""
    if isinstance(value, dict):
        names = draw(st.lists(st.sampled_from(sorted(value)), unique=True)) if value else []
        return {name: draw(parts(value[name])) for name in names} | draw(st.sampled_from(MEMBERS))
    if isinstance(value, list):
        chosen = draw(st.lists(st.sampled_from(value), max_size=3)) if value else []
        return [draw(parts(each)) for each in chosen] + draw(st.sampled_from(ELEMENTS))
    if value == "1.10" and isinstance(value, Number):
        return draw(st.sampled_from([Number("1.1"), Number("110e-2"), Number("1.100001")]))
    return value


@st.composite
def examples(draw: st.DrawFn) -> tuple[list[str | None], str]:
    """Draws documents, and the text of a value that one of them often contains."""
    values = draw(st.lists(VALUES, min_size=1, max_size=5))
    candidate = draw(st.one_of(VALUES, st.sampled_from(values).flatmap(parts)))
    documents = [draw(st.one_of(written(each), st.none())) for each in values]
    return documents, draw(written(candidate))


@given(examples())
def test_filter_keeps_the_documents_that_contain_its_value(
    example: tuple[list[str | None], str],
) -> None:
    documents, text = example
    (each,) = parse_filters(f" jsonContains(doc,{text}) ")
    assert isinstance(each, JsonContains)
    assert parse_filters(format_filters((each, each))) == (each, each)
    expected = [None if d is None else has(parse(d), parse(text)) for d in documents]
    assert contains(pa.array(documents, pa.string()), each.json).to_pylist() == expected


def test_documents_of_many_parts_are_compared() -> None:
    documents = [f'{{"n": {n % 7}, "pad": "{"x" * 1000}"}}' for n in range(2000)]
    result = contains(pa.array(documents), '{"n": 3.0}').to_pylist()
    assert result == [n % 7 == 3 for n in range(2000)]
    assert contains(pa.array([], pa.string()), "1").to_pylist() == []


TOKENS = st.sampled_from(
    [*'{}[],:"\\ab1-.e \n', "null", "NaN", "Infinity", '"a":', "\\ud800", "\\u00e9", "\x01", "01"]
)


@given(st.lists(TOKENS, max_size=8).map("".join))
def test_text_of_a_value_is_as_strict_as_a_document(text: str) -> None:
    try:
        check_json(pa.array([text]))
    except NotJsonError:
        with pytest.raises(InvalidRequestError, match="invalid JSON"):
            read_json_argument("filter", text)
    else:
        read_json_argument("filter", text)


def test_blanks_around_a_document_do_not_count() -> None:
    documents = pa.array(["0 ", "\n0\t ", "[1 , 0 ]\n", '{"a": 0 }', "0.10 ", '"0" ', "null "])
    assert contains(documents, "0").to_pylist() == [True, True, True, False, False, False, False]
    assert contains(documents, "0.1").to_pylist()[4]
    assert contains(documents, '"0"').to_pylist()[5]
    assert contains(documents, "null").to_pylist()[6]
