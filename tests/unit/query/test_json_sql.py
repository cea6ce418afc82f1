"""Functions and operators of JSON in SQL statements."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.errors import InvalidRequestError
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.sql.json_operators import rewrite_json
from sleeper.query.sql.service import open_sql

SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"doc","type":"JSONType","nullable":true},
                {"name":"note","type":"StringType"},
                {"name":"tags","type":{"ListType":{"elementType":"LongType"}}},
                {"name":"secret","type":"JSONType"}]}"""
DOCUMENTS = [
    '{"a": {"b": [1.10, "x\\ny", null]}, "n": 1180591620717411303424, "$ref": "r", "t": true}',
    '{"a": null, "n": 7, "we ird": {"o\'k": -1}}',
    "[0, [1, 2], {}]",
]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A table of three documents, and a row without one."""
    folder = tmp_path_factory.mktemp("json") / "instance"
    create_local_instance(folder, "test")
    opened_instance = open_local_instance(folder)
    table = create_table(opened_instance, "t", SCHEMA)
    rows = {
        "k": [1, 2, 3, 4],
        "doc": [*DOCUMENTS, None],
        "note": ['{"in": "text"}', '{"in', "", "7"],
        "tags": [[1, 2], [3], [], [1]],
        "secret": ['{"s": 1}'] * 4,
    }
    ingest_rows(opened_instance, "t", [pa.record_batch(rows)])
    callers = {"few": {"valueFields": ["doc"]}, "*": {}}
    opened_instance.tables.properties.change(table.id, {QUERY_CALLERS.name: json.dumps(callers)})
    yield opened_instance
    opened_instance.close()


def column(instance: Instance, expression: str, **values: object) -> list[object]:
    statement = f"SELECT {expression} AS v FROM t ORDER BY k"
    rows = open_sql(instance, statement, parameters=values or None).read_all()
    result: list[object] = rows.column("v").to_pylist()
    return result


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("doc -> 'a'", ['{"b": [1.10, "x\\ny", null]}', "null", None, None]),
        ("doc ->> 'a'", ['{"b": [1.10, "x\\ny", null]}', None, None, None]),
        ("doc->'a'->'b'->>0", ["1.10", None, None, None]),
        ("doc ->> '$.a.b[1]'", ["x\ny", None, None, None]),
        ("doc -> 'a' -> 'b' -> -1", ["null", None, None, None]),
        ("doc ->> '$ref'", ["r", None, None, None]),
        ("doc ->> '$.\"we ird\".\"o''k\"'", [None, "-1", None, None]),
        ("doc -> 1", [None, None, "[1, 2]", None]),
        ("doc ->> 'n'", ["1180591620717411303424", "7", None, None]),
        ("json_get(doc, 1, 0)", [None, None, "1", None]),
        ("json_get_json(doc, 't')", ["true", None, None, None]),
        ("json_get_str(doc, 'n')", [None] * 4),
        ("JSON_GET_STR(doc -> 'a', 'b', 1)", ["x\ny", None, None, None]),
        ("\"json_get_int\"(doc, 'n')", [None, 7, None, None]),
        ("json_get_float(doc, 'n')", [2.0**70, 7.0, None, None]),
        ("json_get_bool(doc, 't')", [True, None, None, None]),
        ("json_typeof(doc, 'a')", ["object", "null", None, None]),
        ("json_typeof(doc)", ["object", "object", "array", None]),
        ("(doc ->> 'n')::DOUBLE + 1", [2.0**70, 8.0, None, None]),
        ("coalesce(doc ->> 'n', 'no') || '!'", ["1180591620717411303424!", "7!", "no!", "no!"]),
        ("doc ->> 't' || '!'", ["true!", None, None, None]),
        ("CASE WHEN k = 1 THEN note END ->> 'in'", ["text", None, None, None]),
        ("json_length(doc)", [4, 3, 3, None]),
        ("json_length(doc, 'a', 'b')", [3, None, None, None]),
        ("json_keys(doc)", [["a", "n", "$ref", "t"], ["a", "n", "we ird"], None, None]),
        ("json_elements(doc)", [None, None, ["0", "[1, 2]", "{}"], None]),
        ('doc @> \'{"a": {"b": [1.1]}}\'', [True, False, False, None]),
        ("NOT doc @> '[[2], 0]'", [True, True, False, None]),
        ("json_contains(doc -> 'n', '7.0')", [False, True, None, None]),
        ("doc @> '{\"n\": 7}'::jsonb", [False, True, False, None]),
        ("tags @> make_array(1)", [True, False, False, True]),
    ],
)
def test_expression_has_the_value_of_each_document(
    instance: Instance, expression: str, values: list[object]
) -> None:
    assert column(instance, expression) == values


def test_documents_are_selected_joined_and_counted(instance: Instance) -> None:
    def rows(statement: str) -> list[dict[str, object]]:
        result: list[dict[str, object]] = open_sql(instance, statement).read_all().to_pylist()
        return result

    assert rows("SELECT k FROM t WHERE doc ->> 'n' = '7' AND k < 9") == [{"k": 2}]
    assert rows("SELECT x.k FROM t x JOIN t y ON x.doc ->> 't' = y.doc ->> 't'") == [{"k": 1}]
    counts = "SELECT json_typeof(doc) AS type, count(*) AS n FROM t GROUP BY 1 ORDER BY 2, 1"
    assert [tuple(each.values()) for each in rows(counts)] == [
        ("array", 1),
        (None, 1),
        ("object", 2),
    ]
    plan = rows("EXPLAIN SELECT doc -> 'a' ->> 'b' FROM t")
    assert 'json_as_text(t.doc, Utf8View("$.a.b"))' in str(plan)


def test_members_become_rows(instance: Instance) -> None:
    each = "SELECT k, unnest(json_each(doc)) AS member FROM t"
    statement = f"""
        SELECT k, member['key'] AS name, json_typeof(member['value']) AS type
        FROM ({each}) WHERE k = 2 ORDER BY name"""
    assert [
        tuple(row.values()) for row in open_sql(instance, statement).read_all().to_pylist()
    ] == [
        (2, "a", "null"),
        (2, "n", "number"),
        (2, "we ird", "object"),
    ]


def test_text_of_a_union_is_checked(instance: Instance) -> None:
    union = "SELECT doc AS v FROM t UNION ALL SELECT note FROM t WHERE note <> ''"
    with pytest.raises(InvalidRequestError, match="not JSON"):
        open_sql(instance, f"SELECT v -> 'in' FROM ({union})").read_all()


def test_parts_of_documents_are_json_and_texts_are_text(instance: Instance) -> None:
    statement = "SELECT doc -> 'a' AS a, doc ->> 'a' AS b, (doc -> 'a') || '' AS c FROM t"
    kinds = open_sql(instance, statement).schema.types
    assert kinds == [pa.json_(), pa.string(), pa.string()]


def test_parameters_are_names_and_indexes(instance: Instance) -> None:
    assert column(instance, "doc ->> $name", name="n")[1] == "7"
    assert column(instance, "doc -> $index", index=0)[2] == "0"
    assert column(instance, "doc ->> $x || $x", x="n")[1] == "7n"
    with pytest.raises(InvalidRequestError, match="->> at character 12: expected a text or an int"):
        column(instance, "doc ->> $name", name=1.5)
    with pytest.raises(InvalidRequestError, match="->> at character 12: expected a text or an int"):
        column(instance, "doc ->> $index", index=10**18)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("'x' || doc ->> 'a'", "->> at character 19: expected parentheses, because | is before"),
        ("doc -> 'a'::TEXT", "-> at character 12: expected parentheses, because : binds tighter"),
        ("doc -> lower('A')", "-> at character 12: expected a text or an integer after it"),
        ("doc -> 1.5", "-> at character 12: expected a text or an integer after it"),
        ("(-> 'a')", "-> at character 9: expected a document before it"),
        ("doc -> '$.a[x]'", r"json_get at character 12: JSON path '\$.a\[x\]': unexpected '\[x\]'"),
        ("doc @> '{'", "json_contains at character 12: not JSON: .*: '{'"),
        (f"tags{'[1]' * 990} -> 'a'", "array_element does not support"),
        ("named_struct('x', doc).x -> 'a'", "Dot access not supported"),
        ("json_contains(doc)", "json_contains at character 8: expected a document and a JSON text"),
        ("json_contains(doc, 1)", "json_contains at .* 27: argument 2 is no literal .*a text"),
        ("json_get_int()", "json_get_int at character 8: expected a document and a path"),
        ("json_get_int(doc, note)", "json_get_int at character 26: argument 2 is no literal"),
    ],
)
def test_wrong_arguments_are_refused_with_their_position(
    instance: Instance, expression: str, complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        column(instance, expression)


def test_text_that_is_not_json_fails_the_statement(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match=r"^the statement failed: not JSON"):
        column(instance, "note ->> 'in'")


@pytest.mark.parametrize("function", ["with_metadata", '"with_metadata"', "WITH_METADATA"])
def test_text_cannot_be_marked_as_json(instance: Instance, function: str) -> None:
    marks = "'ARROW:extension:name', 'arrow.json'"
    with pytest.raises(InvalidRequestError, match="Invalid function 'with_metadata'"):
        column(instance, f"{function}(note, {marks})")


def test_statements_without_json_are_unchanged() -> None:
    statements = (
        "SELECT 'doc -> 1', \"a -> 'b'\" FROM t -- x -> 'y'",
        "SELECT a @> b, a - 1 > 2, json_column FROM t /* -> 'z' */",
        "SELECT my.json_get(a), json_get FROM t",
    )
    for statement in statements:
        assert rewrite_json(statement, {}) == statement


def test_hidden_documents_stay_hidden(instance: Instance) -> None:
    statement = "SELECT doc ->> 'n' AS n FROM t WHERE doc ->> 'n' = '7'"
    assert open_sql(instance, statement, caller="few").read_all().to_pylist() == [{"n": "7"}]
    with pytest.raises(InvalidRequestError, match="secret"):
        open_sql(instance, "SELECT secret -> 's' FROM t", caller="few")
    with pytest.raises(InvalidRequestError, match="EXPLAIN requires"):
        open_sql(instance, "EXPLAIN SELECT doc -> 's' FROM t", caller="few")
