"""Schemas, tables, columns, layouts, over a local instance."""

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from tests.unit.athena.protocol import Athena, among

EVERY_TYPE = """{"rowKeyFields":[{"name":"Id","type":"IntType"}],
 "sortKeyFields":[{"name":"at","type":"LongType"}],
 "valueFields":[{"name":"s","type":"StringType","nullable":true},
  {"name":"bytes","type":"ByteArrayType"},{"name":"yes","type":"BooleanType"},
  {"name":"f","type":"FloatType"},{"name":"d","type":"DoubleType"},
  {"name":"t","type":"TimestampType"},{"name":"day","type":"DateType"},
  {"name":"dec","type":{"DecimalType":{"precision":9,"scale":2}}},
  {"name":"doc","type":"JSONType","nullable":true},
  {"name":"l","type":{"ListType":{"elementType":"StringType"}}},
  {"name":"m","type":{"MapType":{"keyType":"StringType","valueType":"LongType"}}}]}"""
TIMES = """{"rowKeyFields":[{"name":"id","type":"TimestampType"}],
 "valueFields":[{"name":"l","type":{"ListType":{"elementType":"TimestampType"}}},
  {"name":"k","type":{"MapType":{"keyType":"TimestampType","valueType":"LongType"}}},
  {"name":"v","type":{"MapType":{"keyType":"LongType","valueType":"TimestampType"}}},
  {"name":"d","type":{"ListType":{"elementType":"DateType"}}}]}"""
ONE_KEY = '{"rowKeyFields":[{"name":"id","type":"LongType"}]}'


def test_a_ping_returns_the_protocol_version(athena: Athena):
    assert athena.ask("PingRequest") == {
        "@type": "PingResponse",
        "catalogName": "cat",
        "queryId": "q1",
        "sourceType": "sleeper",
        "capabilities": 24,
        "serDeVersion": 6,
    }


def test_there_are_schemas_for_processed_and_raw_rows(athena: Athena):
    assert athena.ask("ListSchemasRequest")["schemas"] == ["sleeper", "sleeper_raw"]


def test_tables_are_listed_in_lower_case_and_by_pages(instance: Instance, athena: Athena):
    for name in ("b", "A", "c"):
        create_table(instance, name, ONE_KEY)
    listing = athena.ask("ListTablesRequest", schemaName="sleeper", nextToken=None)
    assert [t["tableName"] for t in listing["tables"]] == ["a", "b", "c"]
    assert listing["nextToken"] is None
    first = athena.ask("ListTablesRequest", schemaName="sleeper", pageSize=2)
    assert [t["tableName"] for t in first["tables"]] == ["a", "b"]
    last = athena.ask(
        "ListTablesRequest", schemaName="sleeper", pageSize=2, nextToken=first["nextToken"]
    )
    assert last["tables"] == [{"schemaName": "sleeper", "tableName": "c"}]
    assert last["nextToken"] is None


def test_without_a_schema_the_tables_of_all_schemas_are_listed(instance: Instance, athena: Athena):
    for name in ("b", "A", "c"):
        create_table(instance, name, ONE_KEY)
    listed: list[str] = []
    token = None
    while not listed or token is not None:
        page = athena.ask("ListTablesRequest", schemaName=None, pageSize=2, nextToken=token)
        assert len(page["tables"]) == 2
        listed += [f"{each['schemaName']}.{each['tableName']}" for each in page["tables"]]
        token = page["nextToken"]
    assert listed == [f"{schema}.{name}" for schema in ("sleeper", "sleeper_raw") for name in "abc"]


def test_columns_have_the_table_s_types_and_lower_case_names(instance: Instance, athena: Athena):
    create_table(instance, "Types", EVERY_TYPE)
    schema = athena.schema("types")
    assert {f.name: str(f.type) for f in schema} == {
        "id": "int32",
        "at": "int64",
        "s": "string",
        "bytes": "binary",
        "yes": "bool",
        "f": "float",
        "d": "double",
        "t": "date64[ms]",
        "day": "date32[day]",
        "dec": "decimal128(9, 2)",
        "doc": "string",
        "l": "list<element: string not null>",
        "m": "map<string, int64 ('value')>",
    } | {"m": str(schema.field("m").type)}
    assert schema.field("s").nullable
    assert pa.types.is_map(schema.field("m").type)


def test_lists_and_maps_of_timestamps_are_left_out(instance: Instance, athena: Athena):
    create_table(instance, "t", TIMES)
    assert athena.schema("t").names == ["id", "d"]


def test_columns_that_differ_only_in_case_are_refused(instance: Instance, athena: Athena):
    create_table(
        instance,
        "t",
        '{"rowKeyFields":[{"name":"k","type":"LongType"},{"name":"K","type":"LongType"}]}',
    )
    with pytest.raises(InvalidRequestError, match="cannot distinguish k, K"):
        athena.schema("t")


def test_an_exact_name_selects_among_tables_that_differ_in_case(instance: Instance, athena: Athena):
    create_table(instance, "T", ONE_KEY)
    create_table(instance, "t", EVERY_TYPE)
    assert "bytes" in athena.schema("t").names
    create_table(instance, "AB", ONE_KEY)
    create_table(instance, "Ab", ONE_KEY)
    with pytest.raises(InvalidRequestError, match="'ab' is ambiguous: 'AB' and 'Ab'"):
        athena.schema("ab")


def test_errors_name_missing_schemas_and_tables(athena: Athena):
    with pytest.raises(NotFoundError, match="no table is named 'gone'"):
        athena.schema("gone")
    with pytest.raises(
        NotFoundError, match=r"unknown schema 'public' \(expected sleeper or sleeper_raw"
    ):
        athena.ask("ListTablesRequest", schemaName="public")


def test_a_layout_has_a_row_only_if_there_may_be_rows(instance: Instance, athena: Athena):
    create_table(instance, "t", ONE_KEY)
    assert athena.layout_rows("t") == 0
    ingest_rows(instance, "t", [pa.record_batch({"id": [1, 2, 9]})])
    assert athena.layout_rows("t") == 1
    assert athena.layout_rows("t", {"id": among(pa.int64(), 9)}) == 1
    assert athena.layout_rows("t", {"id": among(pa.int64(), 10)}) == 0


def test_filters_and_limits_are_offered(athena: Athena):
    offered = athena.ask("GetDataSourceCapabilitiesRequest")["capabilities"]
    assert offered["supports_limit_pushdown"] == [{"subType": "integer_constant", "properties": []}]
    assert [item["subType"] for item in offered["supports_filter_pushdown"]] == [
        "sorted_range_set",
        "nullable_comparison",
    ]


@pytest.mark.parametrize(
    ("kind", "members", "reason"),
    [
        ("UserDefinedFunctionRequest", {}, "unknown kind: UserDefinedFunctionRequest"),
        ("GetTableRequest", {}, "GetTableRequest: member 'tableName' is nothing"),
        ("ListTablesRequest", {"schemaName": 1}, "'schemaName' is 1"),
        ("GetTableRequest", {"queryPassthroughArguments": {"query": "SELECT 1"}}, "pass-through"),
    ],
)
def test_an_invalid_request_is_refused_with_the_reason(
    athena: Athena, kind: str, members: dict[str, object], reason: str
):
    with pytest.raises(InvalidRequestError, match=reason):
        athena.ask(kind, **members)


def test_an_unknown_column_is_refused(instance: Instance, athena: Athena):
    create_table(instance, "t", ONE_KEY)
    with pytest.raises(InvalidRequestError, match=r"unknown column 'gone' \(expected one of id"):
        athena.layout_rows("t", {"gone": among(pa.int64(), 1)})
