"""Members of JSON that are taken out of lines, against msgspec's parser of single lines."""

import json

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.casts import cast_column
from sleeper.datafiles.sources.json_rows import NOT_ROWS, BlockParser, parse_lines
from sleeper.schema.model import Field, MapType, PrimitiveType, Schema
from tests.unit.datafiles.test_json_syntax import TEXTS, is_json

DOC = Field("doc", PrimitiveType.JSON, nullable=True)
OTHERS = {
    "text": Field("t", PrimitiveType.STRING, nullable=True),
    "map": Field("t", MapType(PrimitiveType.STRING, PrimitiveType.STRING), nullable=True),
}
MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
VALUES = TEXTS.filter(is_json).map(lambda text: text.replace("\n", " ").replace("\r", " "))
LINES = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.one_of(st.none(), st.tuples(st.sampled_from(["doc", "\\u0064oc"]), VALUES)),
        st.sampled_from([None, "null", "x", '"doc":1}', '\\"doc\\":[', "{"]),
    ),
    min_size=1,
    max_size=5,
)
Line = tuple[int, tuple[str, str] | None, str | None]


def schema(other: str) -> Schema:
    return Schema((Field("k", PrimitiveType.LONG),), (), (DOC, OTHERS[other]))


def write(line: Line, other: str) -> str:
    key, doc, text = line
    members = [f'"k":{key}']
    if text is not None:
        content = json.dumps(text)
        members.append(f'"t": {content}' if other == "text" else f'"t":{{{content}:"}}"}}')
    if doc is not None:
        members.insert(key % 3, f'"{doc[0]}" : {doc[1]}')
    return f"{{{', '.join(members)}}}"


@pytest.mark.parametrize("other", [*OTHERS])
@given(lines=LINES)
def test_the_text_of_a_member_is_that_of_the_line(lines: list[Line], other: str) -> None:
    written = [write(line, other).encode() for line in lines]
    expected = [MEMBERS.decode(each).get("doc") for each in written]
    texts = [None if each is None else bytes(each).decode().strip(" \t") for each in expected]
    kind = schema(other)
    for columns in (
        BlockParser(kind, ignores_extra=False).parse(b"\n".join(written) + b"\n"),
        parse_lines(written, kind),
    ):
        if columns is None:  # lines of another form, which are parsed one by one
            assert other == "map"
            continue
        assert columns["doc"].to_pylist() == texts
        assert columns["k"].to_pylist() == [line[0] for line in lines]
        document, bad = cast_column(columns["doc"], DOC)
        assert (bad, document.type) == ({}, pa.json_())


@pytest.mark.parametrize(
    "line",
    [
        '{"k":1,"doc":}',
        '{"k":1,"doc"}',
        '{"k":1,"doc":1,"doc":2}',
        '{"k":1,"doc":1,"\\u0064oc":2}',
        '{"k":1,"doc":"a}',
        '{"k":1,"doc":[1}',
        '{"k":1,"doc":{"a":1}',
        '{"k":1,"doc":1}}',
        '{"k":1,"doc":1} {"k":2}',
        '{"k":1,"doc":\n1}',
        '{"k":1,"doc": "a}\n{"doc": "x}',
        '{"k":1 "doc":1}',
        '{"k":1,"doc" 1}',
        '{"k":1,"doc":[1,}]}',
        '{"k":1,"doc":1 2}',
        '{"k":1,"doc":"\x01"}',
    ],
)
def test_a_line_that_is_no_object_is_refused(line: str) -> None:
    kind = schema("text")
    good = b'{"k":1,"doc":{"a":1}}\n'
    content = good + line.encode() + b"\n" + good
    columns = BlockParser(kind, ignores_extra=False).parse(content)
    if columns is None:
        with pytest.raises(NOT_ROWS):
            parse_lines(content.removesuffix(b"\n").split(b"\n"), kind)
    else:
        assert cast_column(columns["doc"], DOC)[1]
