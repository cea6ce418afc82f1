"""Values inside of documents, compared with what Python's parser finds."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.documents import containment, path
from sleeper.datafiles.documents.containment import parse_candidate
from sleeper.datafiles.documents.content import read_documents
from sleeper.datafiles.documents.path import Step, format_path, parse_path, parse_step
from sleeper.datafiles.documents.spans import Spans, whole
from sleeper.datafiles.documents.values import (
    bool_values,
    float_values,
    integer_values,
    json_values,
    text_values,
    type_values,
)
from sleeper.datafiles.json_syntax import NotJsonError
from sleeper.errors import InvalidRequestError
from tests.tables.json_documents import PATHS, VALUES, Number, written


def follow(value: Any, path: tuple[Step, ...]) -> Any:
    """Returns the value that a path leads to. KeyError or IndexError if there is none."""
    for step in path:
        if not isinstance(value, dict if isinstance(step, str) else list):
            raise KeyError(step)
        member: Any = step
        value = value[member]
    return value


def values_of(documents: Sequence[str | None], path: tuple[Step, ...]) -> Spans:
    return whole(read_documents(pa.array(documents, pa.string()))).follow(path)


@given(st.lists(st.one_of(st.none(), VALUES.flatmap(written)), max_size=6), PATHS)
def test_values_are_those_of_a_parser(documents: list[str | None], path: tuple[Step, ...]) -> None:
    spans = values_of(documents, path)
    results = zip(json_values(spans), text_values(spans), type_values(spans), strict=True)
    for document, each in zip(documents, results, strict=True):
        found, text, kind = (value.as_py() for value in each)
        try:
            if document is None:
                raise KeyError
            parsed = json.loads(document, parse_int=Number, parse_float=Number)
            expected = follow(parsed, path)
        except (KeyError, IndexError):
            assert (found, text, kind) == (None, None, None)
            continue
        assert found is not None
        assert found.strip(" \n\t") == found
        assert json.loads(found, parse_int=Number, parse_float=Number) == expected
        if isinstance(expected, str):
            assert text == expected
            assert kind == ("number" if isinstance(expected, Number) else "string")
        else:
            assert text == (None if expected is None else found)


@pytest.mark.parametrize(
    ("convert", "values"),
    [
        (integer_values, [1, -(2**63), 2**63 - 1, None, None, None, 0, None, None, None]),
        (float_values, [1.0, -(2.0**63), 2.0**63, 2.0**63, 1.1, 100.0, 0.0, None, None, None]),
        (bool_values, [None] * 7 + [True, False, None]),
    ],
)
def test_values_of_one_type(convert: Callable[[Spans], pa.Array], values: list[object]) -> None:
    texts = ["1", str(-(2**63)), str(2**63 - 1), str(2**63), "1.10", "1e2", "-0"]
    assert convert(values_of([*texts, "true", " false", '"1"'], ())).to_pylist() == values


def test_last_of_equal_names_counts() -> None:
    assert json_values(values_of(['{"a": 1, "a": 2}'], ("a",))).to_pylist() == ["2"]


def test_documents_do_not_mix() -> None:
    for texts in (['{"a": "', '"}'], ["[", "]"], ['"', '"'], [""], ["{}", "}"]):
        with pytest.raises(NotJsonError):
            values_of(texts, ())


def test_long_blanks_and_deep_documents_are_read() -> None:
    blanks = " " * 100_000
    document = f'{{{blanks}"a"{blanks}:{blanks}7{blanks},"b":{"[" * 400}{"]" * 400}}}'
    assert json_values(values_of([document] * 2, ("a",))).to_pylist() == ["7"] * 2
    assert json_values(values_of([document], ("b", *([0] * 399)))).to_pylist() == ["[]"]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a", ("a",)),
        ("$ref", ("$ref",)),
        ("$", ()),
        ("$.a.b[0]", ("a", "b", 0)),
        ('$."a.b"[-1].$c', ("a.b", -1, "$c")),
        ('$."\\u0061\\""', ('a"',)),
    ],
)
def test_text_of_a_step_is_a_name_or_a_path(text: str, steps: tuple[Step, ...]) -> None:
    assert parse_step(text) == steps
    assert parse_path(format_path(steps)) == steps


def test_long_paths_and_values_are_not_kept() -> None:
    for module, parse in ((path, parse_path), (containment, parse_candidate)):
        short, long = ("$.a", "$" + ".a" * 600) if module is path else ("[1]", f"[{'1,' * 600}1]")
        assert parse(short) is parse(short)
        assert parse(long) is not parse(long)
        assert parse(long) == parse(long)


@pytest.mark.parametrize(
    "text", ["$.", "$.a.", "$[a]", "$[1", '$."a', '$."\\x"', "$.a b", "$[1].."]
)
def test_invalid_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="JSON path"):
        parse_step(text)
