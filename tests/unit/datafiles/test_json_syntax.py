"""The check of JSON text, against Python's parser."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles import json_syntax
from sleeper.datafiles.json_limits import JsonLimits
from sleeper.datafiles.json_syntax import NotJsonError, check_json

SPACE = st.sampled_from(["", "", " ", "\n\t", " \r"])
NAMES = st.sampled_from(["a", "b", "\\u0061", "é", "", "}", '\\"', "\\\\", "a:"])
SCALARS = st.one_of(
    st.sampled_from(
        ["null", "true", "-0", "1.10", str(2**70), "1e400", "-1E-7", '"\\ud83d\\ude00"']
    ),
    st.text(max_size=5).map(json.dumps),
    st.text(st.characters(codec="utf-8"), max_size=5).map(
        lambda t: json.dumps(t, ensure_ascii=False)
    ),
    st.sampled_from(
        ['"\\\\"', '"\\\\\\""', '"{[,:"', '"\\/"', "01", "1.", "nul", "NaN", '"\\x"', ""]
    ),
)


def nested(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Returns arrays and objects of the values, with any space and repeated names."""
    spaced = st.tuples(SPACE, values, SPACE).map("".join)
    member = st.tuples(SPACE, NAMES, spaced).map(lambda m: f'{m[0]}"{m[1]}":{m[2]}')
    return st.one_of(
        st.lists(spaced, max_size=3).map(lambda each: f"[{','.join(each)}]"),
        st.lists(member, max_size=3).map(lambda each: f"{{{','.join(each)}}}"),
    )


TEXTS = st.tuples(SPACE, st.recursive(SCALARS, nested, max_leaves=8), SPACE).map("".join)
DAMAGES = st.tuples(st.integers(0, 40), st.sampled_from(["", '"', "\\", "}", "]", ",", "{", "1"]))


def is_json(text: str) -> bool:
    """Whether Python accepts a text, without names that an object has twice."""

    def unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in members}) < len(members):
            raise ValueError("twice")
        for name, value in members:
            check(name)
            check(value)
        return {}

    def check(value: Any) -> None:
        if isinstance(value, str):
            value.encode()
        for each in value if isinstance(value, list) else ():
            check(each)

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        # Other space than JSON's is none for Python, either.
        check(json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_int=len))
    except ValueError:  # surrogates, too
        return False
    return True


def accepts(texts: list[str | None]) -> bool:
    try:
        check_json(pa.array(texts, pa.string()))
    except NotJsonError:
        return False
    return True


@settings(max_examples=400)
@given(TEXTS, DAMAGES)
def test_a_text_is_accepted_as_by_python(text: str, damage: tuple[int, str]) -> None:
    assert accepts([text]) == is_json(text)
    at, new = damage
    damaged = text[:at] + new + text[at + (not new) :]
    assert accepts([damaged]) == is_json(damaged), damaged


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.none(),
            TEXTS,
            st.sampled_from(["1,2", "],[", "1]", "[1", " ", '1],"x":[2', '1],"":[2']),
        ),
        max_size=4,
    )
)
def test_each_text_of_a_column_is_one_value(texts: list[str | None]) -> None:
    assert accepts(texts) == all(is_json(each) for each in texts if each is not None)


def test_a_column_is_checked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_syntax, "_PART_BYTES", 10)
    texts = ['{"a":1}', "[1,2,3,4,5,6,7,8]", "1", "2", '{"b":[]}']
    assert accepts(texts)
    for place in range(len(texts)):
        assert not accepts([*texts[:place], '{"a":1,"a":2}', *texts[place:]])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":1,"b":{"é":1,"\\u00e9":2}}', "JSON with the member 'é' twice"),
        ("[" * 4 + "]" * 4, "JSON of more than 3 levels"),
        ('"' + "é" * 50 + '"', "JSON of 102 bytes .maximum 100"),
        ("[1,]", "not JSON: trailing comma in array$"),
        ("1 2", "not JSON: expected ',' or ']'$"),
        ("1,2", "not JSON: more than one value"),
        ('1],"x":[2', "not JSON: more than one value"),
        ('"\\ud800"', "not JSON: "),
        ("[" * 90_000, "JSON of 90000 bytes"),
    ],
)
def test_the_reason_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(NotJsonError, match=reason):
        check_json(pa.array(["1", None, text]), JsonLimits(depth=3, bytes=100))


def test_deep_text_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(NotJsonError, match="more than 500 levels"):
        check_json(pa.array(["[" * 100_000 + "]" * 100_000]))
    check_json(pa.array(["[" * 500 + "]" * 500]))


def test_a_slice_is_checked_alone() -> None:
    texts = pa.array(["[", '{"a":"x"}', None, "]"])
    check_json(texts.slice(1, 2))
