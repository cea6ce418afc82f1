"""Stashes of documents: their members stand beside the others, and lines are rows again."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sleeper
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.json_rows import BlockParser, parse_lines
from sleeper.errors import InvalidRequestError
from sleeper.schema.document import OWN_MEMBERS, with_document
from sleeper.schema.model import DecimalType, Field, PrimitiveType, Schema
from sleeper.stash import Stash
from sleeper.stash.batches import parse_documents
from sleeper.stash.document_values import DOCUMENT_FIELDS
from sleeper.stash.documents import DocumentWriter, document_fields, document_lines, end_lines
from tests.unit.datafiles.test_json_syntax import TEXTS, is_json

SEED = [
    '{"published":"2012-03-08T23:30:06.000Z","sent":false,"about":{"~id":"65bd","~table":"q:t"},'
    '"codes":["ABC"],"legacyId":675689,"text":"Sample\\n 1","comments":{"c8-69":{"name":"E"}},'
    '"~id":"117b","~table":"answer:t","~version":2,"~signature":"d9bb","~deleted":false,'
    '"~firstUpdateAt":"2013-01-25T19:20:09.413Z","~lastUpdateAt":"2013-10-21T12:02:33.280Z"}',
    '{"references":[{"~id":"p::t","~table":"c:t:"},{"~id":"p::u"}],"legacyId":270378,"price":1.10,'
    '"~id":"1431","~table":"answer:t"}',
    '{"cdv-aAge":"35to44","order":["a","b"],"big":1180591620717411303424,"none":null,"~id":"2c11"}',
]
CHANGING = {"~version", "~signature", "~firstUpdateAt", "~lastUpdateAt"}
ROWS = {
    "rowKeyFields": [{"name": "~id", "type": "StringType"}],
    "valueFields": [{"name": "doc", "type": "JSONType", "nullable": True}],
}


def exact(line: str | bytes) -> dict[str, Any]:
    """Returns the members of a line, with numbers as text."""
    members: dict[str, Any] = json.loads(line, parse_float=str, parse_int=str)
    return members


def test_documents_come_out_member_for_member(instance: sleeper.Instance, tmp_path: Path) -> None:
    table = instance.create_table("answer:t", ROWS, {"sleeper.table.document": "doc"})
    (tmp_path / "rows.jsonl").write_text("\n".join(SEED))
    table.ingest(tmp_path / "rows.jsonl")
    instance.stash(tmp_path / "stash")
    [file] = (tmp_path / "stash").rglob("*.json.gz")
    lines = gzip.decompress(file.read_bytes()).splitlines()
    for line, document in zip(lines, map(exact, SEED), strict=True):
        written = exact(line)
        assert [*written][-len(OWN_MEMBERS) :] == [*OWN_MEMBERS]
        expected = {name: value for name, value in document.items() if name not in CHANGING}
        expected |= {"~table": "answer:t", "~deleted": False}
        assert {k: v for k, v in written.items() if k not in CHANGING} == expected
    stash = Stash.open(str(tmp_path / "stash"))
    with stash.scan("answer:t") as rows:
        assert {row["~id"]: row.get("about") for row in rows}["117b"] == {
            "~id": "65bd",
            "~table": "q:t",
        }
    # A stash is a source of rows, too.
    again = instance.create_table("again", ROWS, {"sleeper.table.document": "doc"})
    again.ingest(file)
    assert again.query().to_arrow() == table.query().to_arrow()


NAMES = st.sampled_from(["a", "k", "doc", "~id", "~~id", "~~version", "\\u007etable", "~x", "n"])
OBJECTS = st.dictionaries(NAMES, TEXTS.filter(is_json), max_size=4).map(
    lambda members: "{" + " , ".join(f'"{n}": {text}' for n, text in members.items()) + " }"
)
DOCUMENTS = st.lists(
    st.none() | OBJECTS.filter(is_json) | TEXTS.filter(is_json), min_size=1, max_size=4
)


@pytest.mark.parametrize("key", ["~id", "k"])
@given(texts=DOCUMENTS)
def test_lines_of_documents_are_rows_again(key: str, texts: list[str | None]) -> None:
    values = (Field("doc", PrimitiveType.JSON, True), Field("n", DecimalType(5, 2), True))
    schema = with_document(Schema((Field(key, PrimitiveType.STRING),), (), values), "doc")
    docs = pa.array(texts, pa.string())
    numbers = pa.array([None] * len(texts), pa.decimal128(5, 2))
    keys = pa.array([f"key {n}" for n in range(len(texts))])
    rows = pa.RecordBatch.from_arrays(
        [keys, docs.cast(pa.json_()), numbers], schema=arrow_schema(schema)
    )
    writer = DocumentWriter("t", schema, lambda each: [0 for _ in each])
    versions = pa.array([7] * len(texts))
    lines = writer.lines(rows, versions)
    one_line = [t and t.replace("\n", " ").replace("\r", " ").strip() for t in texts]
    for line, text in zip(lines.to_pylist(), one_line, strict=True):
        names = [name for name, _ in json.loads(line, object_pairs_hook=list)]
        assert len(names) == len(set(names))
        assert text is None or is_same(line, text)
    fields = document_fields(schema)
    assert document_lines(writer.columns(rows, versions), fields) == lines
    block = end_lines(lines).to_pybytes()
    read = parse_documents(block, fields, "here")
    assert same_values(read.column("doc").to_pylist(), one_line)
    for columns in (
        BlockParser(schema, ignores_extra=False).parse(block),
        parse_lines(block.split(b"\n"), schema),
    ):
        if key == "~id":
            assert columns is not None
            assert same_values(columns["doc"].to_pylist(), one_line)
            assert columns[key].to_pylist() == keys.to_pylist()


def is_same(line: str, text: str) -> bool:
    """Whether a line has the members of an object, or the whole value."""
    value, written = exact(f'{{"v":{text}}}')["v"], exact(line)
    if "doc" in written and written["doc"] == value:
        return True
    own = {each.name for each in DOCUMENT_FIELDS}
    content = {k: v for k, v in written.items() if k not in own}
    return all(content.get(k) == v or content.get(f"~{k}") == v for k, v in value.items())


def same_values(left: list[str | None], right: list[str | None]) -> bool:
    """Whether texts are the same values, with members in the same order."""
    as_pairs = [
        [each and json.loads(each, object_pairs_hook=list, parse_float=str, parse_int=str)]
        for each in (*left, *right)
    ]
    is_null = [each is None for each in left] == [each is None for each in right]
    return is_null and as_pairs[: len(left)] == as_pairs[len(left) :]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"~id":"a","x":1,"x":2}', "twice"),
        ('{"~id":"a","doc":{},"x":2}', "beside the member 'doc'"),
        ('{"~id":"a","x":[1,}', "not"),
        ('{"~id":"a" "x":1}', "not"),
        ('{"~id":"a",,"x":1}', "not"),
        ('{"x":1}', "null"),
    ],
)
def test_lines_that_are_no_documents_are_refused(
    line: str, reason: str, instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = instance.create_table("t", ROWS, {"sleeper.table.document": "doc"})
    (tmp_path / "rows.jsonl").write_text(f'{{"~id":"b"}}\n{line}\n')
    with pytest.raises(InvalidRequestError, match=f"row 2: .*{reason}"):
        table.ingest(tmp_path / "rows.jsonl")


def test_the_document_is_declared_once(instance: sleeper.Instance) -> None:
    for name, schema, reason in (
        ("~id", ROWS, "it is a key field"),
        ("no", ROWS, "no field 'no'"),
        (
            "text",
            {**ROWS, "valueFields": [{"name": "text", "type": "StringType"}]},
            "'text' of StringType .expected at most one of JSONType",
        ),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            instance.create_table("t", schema, {"sleeper.table.document": name})
    table = instance.create_table("t", ROWS, {"sleeper.table.document": "doc"})
    with pytest.raises(InvalidRequestError, match="chosen when a table is created"):
        table.set_properties({"sleeper.table.document": ""})
    table.rename_field("doc", "content")
    assert table.properties()["sleeper.table.document"] == "content"
    assert table.schema.document == table.schema.field("content")
    assert instance.clone_table("t", "copy").schema.document is not None
