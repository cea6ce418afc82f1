"""Blocks of JSON that are parsed without a look at each line give what the lines give."""

import json
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.sources.json_form import FormReader
from sleeper.datafiles.sources.json_rows import NOT_ROWS, BlockParser, parse_lines
from sleeper.schema.model import DecimalType, Field, ListType, MapType, PrimitiveType, Schema
from tests.examples import examples

P = PrimitiveType
FLAT = Schema(
    (Field("id", P.LONG),),
    (),
    (
        Field("n", P.INT, nullable=True),
        Field("text", P.STRING, nullable=True),
        Field("ratio", P.DOUBLE, nullable=True),
        Field("small", P.FLOAT, nullable=True),
        Field("price", DecimalType(6, 2), nullable=True),
        Field("is_new", P.BOOLEAN, nullable=True),
        Field("at", P.TIMESTAMP, nullable=True),
        Field("tags", ListType(P.STRING), nullable=True),
        Field("größe", ListType(P.DOUBLE), nullable=True),
    ),
)
WITH_MAPS = Schema(
    FLAT.row_keys,
    (),
    (
        *FLAT.values,
        Field("props", MapType(P.STRING, P.LONG), nullable=True),
        Field("dates", MapType(P.INT, P.DATE), nullable=True),
    ),
)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
WRITTEN = {
    "id": LONGS.map(str),
    "n": st.integers(-(2**31), 2**31 - 1).map(str),
    "text": st.tuples(TEXTS, st.booleans()).map(lambda t: json.dumps(t[0], ensure_ascii=t[1])),
    "ratio": st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    "small": st.floats(width=32, allow_nan=False, allow_infinity=False).map(json.dumps),
    "price": st.integers(-999_999, 999_999).map(lambda n: f"{n / 100:.2f}"),
    "is_new": st.sampled_from(["true", "false"]),
    "at": st.just('"2026-03-01T06:00:00Z"'),
    "tags": st.lists(TEXTS, max_size=3).map(json.dumps),
    "größe": st.sampled_from(["[]", "[1.5, 2]", "[ 0 ]"]),
    "props": st.dictionaries(TEXTS, LONGS, max_size=3).map(json.dumps),
    "dates": st.sampled_from(["{}", '{"1": "2026-03-01", "2": "2026-03-02"}']),
}
WRONG = st.sampled_from(
    [
        *(
            "1.0",
            "1e3",
            "-0",
            "01",
            "+1",
            "1.",
            "9223372036854775808",
            "2147483648",
            "1e400",
            "1e39",
        ),
        *('"1"', '"NaN"', "NaN", '"Infinity"', "true", "null", "{}", "[]", "[null]", '{"a": null}'),
        *('{"a": 1, "a": 2}', '{"1": "2026-03-01", "1": "2026-03-01"}', '{"a": 1.5}', '"\t"'),
        *('"\\ud840\\udc00"', '"\\ud800"', '"\\u0000"', '"a\\/b"'),
    ]
)


@st.composite
def write_line(draw: st.DrawFn, schema: Schema) -> str:
    """A line of members that are mostly valid, mostly in order, mostly there once."""
    names = [f.name for f in schema.fields]
    if not draw(st.integers(0, 9)):
        names = draw(st.permutations([*names, draw(st.sampled_from([*names, "other"]))]))
    is_kept = draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    is_spaced = draw(st.booleans())
    members = []
    for name, keeps in zip(names, is_kept, strict=True):
        if keeps or name == "id":
            is_wrong = not draw(st.integers(0, 20))
            value = draw(WRONG if is_wrong else WRITTEN.get(name, WRONG) | st.just("null"))
            members.append(f'"{name}"{" : " if is_spaced else ":"}{value}')
    return "{" + (" , " if is_spaced else ",").join(members) + "}"


def write_lines(schema: Schema) -> st.SearchStrategy[list[str]]:
    odd = st.sampled_from(["", " ", "{}", "[]", '{"id": 1} {"id": 2}', '{"id": 1,}', '{"id":'])
    lines = st.lists(st.integers(0, 30).flatmap(lambda n: write_line(schema) if n else odd))
    return lines.filter(bool)


def check_block(lines: list[str], schema: Schema) -> bool:
    """Whether the block was parsed as a whole, and then as its lines are."""
    block = "".join(f"{line}\n" for line in lines).encode()
    columns = BlockParser(schema, ignores_extra=False).parse(block)
    if columns is None:
        return False
    expected = parse_lines(block.split(b"\n"), schema)
    for name, column in columns.items():
        column.validate(full=True)
        assert _printable(column) == _printable(expected[name])
    return True


def _printable(column: pa.Array) -> str:
    # Zeros have signs, which == ignores.
    return repr(column.to_pylist())


@settings(deadline=None, max_examples=examples(50), print_blob=True)
@given(write_lines(WITH_MAPS))
def test_blocks_with_maps_are_parsed_as_their_lines(lines: list[str]) -> None:
    check_block(lines, WITH_MAPS)


@settings(deadline=None, max_examples=examples(30), print_blob=True)
@given(write_lines(FLAT))
def test_blocks_without_maps_are_parsed_as_their_lines(lines: list[str]) -> None:
    check_block(lines, FLAT)


@settings(deadline=None, max_examples=examples(80), print_blob=True)
@given(st.sampled_from([f.name for f in WITH_MAPS.fields]), WRONG)
def test_one_unusual_value_is_parsed_as_its_line(name: str, value: str) -> None:
    check_block(['{"id": 1}', f'{{"id": 2, "{name}": {value}}}'], WITH_MAPS)


@pytest.mark.parametrize(
    "second",
    [
        '{"id": 2, "text": null, "props": {}}',
        '{"id":2,"props":{"a\\u00e9":-1}}',
        '{"id": 2, "text": "\\" \\\\ é"}',
        '{"id": 2}\r',
    ],
)
def test_valid_lines_of_one_form_are_parsed_as_a_whole(second: str) -> None:
    assert check_block(['{"id": 1, "text": "a", "props": {"b": 1, "c": 2}}', second], WITH_MAPS)


def test_form_changes_within_a_file() -> None:
    reader = FormReader(WITH_MAPS)
    for member in ("text", "props", "n", "text"):
        columns = reader.read(b'{"id": 1, "%s": null}\n' % member.encode())
        assert columns is not None
        assert columns["id"].to_pylist() == [1]


@pytest.mark.parametrize("keys", [2, 40])
def test_doubled_keys_of_long_maps_are_found(keys: int) -> None:
    members = [f'"k{number}": 1' for number in range(keys)]
    maps = "{" + ", ".join(members) + "}"
    assert check_block([f'{{"id": 1, "props": {maps}}}'] * 3, WITH_MAPS)
    doubled = maps.replace(f'"k{keys - 1}"', '"k0"')
    assert not check_block([f'{{"id": 1, "props": {doubled}}}'] * 3, WITH_MAPS)
    with pytest.raises(NOT_ROWS):
        parse_lines([f'{{"id": 1, "props": {doubled}}}'.encode()], WITH_MAPS)


def test_infinity_is_left_to_the_lines() -> None:
    block = b'{"id": 1, "ratio": 1e400}\n'
    assert FormReader(WITH_MAPS).read(block) is None
    columns = parse_lines([b'{"id": 1, "ratio": "Infinity"}'], WITH_MAPS)
    assert columns["ratio"].to_pylist() == [math.inf]
