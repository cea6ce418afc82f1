"""Queries with filters of documents: from every kind of table, by every face."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest

import sleeper
from sleeper.admin.properties import set_table_properties
from sleeper.bulk_export.service import export_table
from sleeper.cli.arguments import build_query
from sleeper.datafiles.merge import json_filters
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.processing.model import Processing
from sleeper.processing.text import parse_filters
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.messages.query import make_query, parse_query_message
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.service import open_query
from sleeper.schema.model import schema_from_json
from sleeper.serve.rows import parse_query
from tests.tables.opened import compact

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [
        {"name": "doc", "type": "JSONType", "nullable": True},
        {"name": "label", "type": "StringType"},
        {"name": "secret", "type": "JSONType"},
    ],
}
FILTER = 'jsonContains(doc,{"a": {"b": [2]}})'
DOCUMENTS = {
    0: '{"a": {"b": [1, 2.0]}, "text": "),("}',
    1: '{"a": {"b": [1]}}',
    2: None,
    3: '{"a": {"b": [{"c": 2}, 2], "d": null}}',
    4: "[2]",
    5: '{"b": [2], "a": {}}',
    6: '{"x": {"a": {"b": [2]}}, "a": {"b": [2]}}',
    7: '{"a": {"b": "2"}}',
}
MATCHING = [0, 3, 6]


def make_rows(keys: Sequence[int], documents: Sequence[str | None]) -> pa.Table:
    count = len(keys)
    columns = {
        "k": pa.array(keys, pa.int64()),
        "doc": pa.array(documents, pa.string()),
        "label": ["public"] * count,
        "secret": ['{"s": 1}'] * count,
    }
    return pa.table(columns)


def make_table(instance: sleeper.Instance, properties: dict[str, str]) -> sleeper.Table:
    """Creates a table of two leaves with a file of even keys, and one of odd keys."""
    table = instance.create_table("t", SCHEMA, properties, split_points=[4])
    for parity in (0, 1):
        keys = [key for key in DOCUMENTS if key % 2 == parity]
        table.ingest(make_rows(keys, [DOCUMENTS[key] for key in keys]))
    return table


def keys(table: sleeper.Table, filters: str = FILTER, **query: Any) -> list[int]:
    result: list[int] = table.query(filters=filters, **query).to_arrow()["k"].to_pylist()
    return result


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"sleeper.table.rows": "latest"},
        {"sleeper.table.iterator.class.name": "RowSecurity"}
        | {"sleeper.table.iterator.config": "label,public"},
    ],
    ids=["all rows", "latest rows", "iterated"],
)
def test_rows_are_selected_before_and_after_a_compaction(
    instance: sleeper.Instance, properties: dict[str, str]
) -> None:
    table = make_table(instance, properties)
    table.delete(keys=[[3]])
    table.ingest(make_rows([8], ['{"a": {"b": [2]}}']))
    for _ in range(2):
        assert keys(table) == [0, 6, 8]
        assert keys(table, columns=["k"], limit=2) == [0, 6]
        assert keys(table, keys=[[6], [7]], columns=["label", "k"]) == [6]
        assert keys(table, f"{FILTER},jsonContains(doc,{{}})", ranges=[(1, 7)]) == [6]
        assert keys(table, 'jsonContains(doc,{"text": "),("})') == [0]
        assert keys(table, "jsonContains(doc,2)") == [4]
        assert keys(table, "jsonContains(doc,[3])") == []
        assert keys(table, as_of=3) == MATCHING
        compact(instance, "t")


def test_transaction_filters_its_own_rows(instance: sleeper.Instance) -> None:
    table = make_table(instance, {})
    with table.transaction() as transaction:
        transaction.delete(keys=[[6]])
        transaction.ingest(make_rows([9], ['{"a": {"b": [2]}}']))
        assert transaction.query(filters=FILTER).to_arrow()["k"].to_pylist() == [0, 3, 9]


def test_hidden_text_that_is_not_json_is_not_read(instance: sleeper.Instance) -> None:
    schema = {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "doc", "type": "StringType"}],
    }
    table = instance.create_table("t", schema)
    texts = ['{"a": 1}', '{"a": "', '{"a": 1, "b": "}"}', "", "7"]
    table.ingest(pa.table({"k": range(5), "doc": texts}))
    with pytest.raises(InvalidRequestError, match="needs a JSONType: field 'doc' is StringType"):
        keys(table, 'jsonContains(doc,{"a": 1})')
    # The engine compares keys of a file in a filter of its own, which it could put beside ours.
    table.delete(keys=pa.table({"k": [1, 3, *range(100, 20_000)]}))
    table.convert_field("doc", "JSONType")
    assert keys(table, 'jsonContains(doc,{"a": 1})') == [0, 2]
    assert keys(table, 'jsonContains(doc,{"a": 1})', keys=[[0], [1], [2]]) == [0, 2]
    with pytest.raises(InvalidRequestError, match="is StringType"):
        keys(table, 'jsonContains(doc,{"a": 1})', as_of=2)


def test_caller_filters_by_visible_fields_and_rows(instance: sleeper.Instance) -> None:
    table = make_table(instance, {})
    table.ingest(make_rows([8], ['{"a": {"b": [2]}}']).set_column(2, "label", [["private"]]))
    callers = {
        "columns": {"valueFields": ["doc", "label"]},
        "rows": {"iterator": "RowSecurity", "config": "label,public"},
    }
    set_table_properties(instance._ports, "t", {QUERY_CALLERS.name: json.dumps(callers)})

    def read(caller: str, filters: str, regions: Any = None) -> list[int]:
        query = Query(regions, ("k",), processing=Processing(parse_filters(filters)))
        with open_query(instance._ports, "t", query, caller=caller) as result:
            found: list[int] = result.read_all()["k"].to_pylist()
        return found

    assert read("columns", FILTER) == [*MATCHING, 8]
    assert read("rows", f'jsonContains(secret,{{"s": 1}}),{FILTER}') == MATCHING
    regions = make_key_regions(table_schema(), [[0]])
    for each in (None, regions, [make_range_region(table_schema(), 0, 4)]):
        with pytest.raises(InvalidRequestError, match="'secret' is not visible to the caller"):
            read("columns", 'jsonContains(secret,{"s": 1})', each)


def table_schema() -> Any:
    return schema_from_json(json.dumps(SCHEMA))


def from_message(text: str) -> Query:
    body = {"type": "Query", "tableName": "t", "regions": [], "queryTimeFilters": text}
    return make_query(parse_query_message(json.dumps(body), "q"), table_schema())


@pytest.mark.parametrize(
    "read",
    [
        from_message,
        lambda text: parse_query(table_schema(), {"filters": text}),
        lambda text: build_query(table_schema(), filters=text),
    ],
    ids=["message", "HTTP", "command line"],
)
def test_face_has_the_filter(read: Callable[[str], Query]) -> None:
    assert read(FILTER).processing == Processing(parse_filters(FILTER))
    with pytest.raises(InvalidRequestError, match="member 'a' is there twice"):
        read('jsonContains(doc,{"a": 1, "a": 2})')


def test_bulk_export_has_the_selected_rows(instance: sleeper.Instance, tmp_path: Path) -> None:
    make_table(instance, {})
    result = export_table(instance._ports, "t", tmp_path / "out", "e1", FILTER)
    rows = pyarrow.dataset.dataset(result.location, format="parquet").to_table()
    assert (result.rows, sorted(rows["k"].to_pylist())) == (3, MATCHING)
    with pytest.raises(InvalidRequestError, match=r"expected 'jsonContains.*or another id"):
        export_table(instance._ports, "t", tmp_path / "out", "e1")


def test_tables_refuse_the_filter(instance: sleeper.Instance) -> None:
    refused = pytest.raises(InvalidRequestError, match=r"jsonContains\(doc\): a table cannot have")
    filters = {"sleeper.table.filters": FILTER}
    with refused:
        instance.create_table("other", SCHEMA, filters)
    make_table(instance, {})
    with refused:
        set_table_properties(instance._ports, "t", filters)


def test_planted_bug_is_noticed(
    instance: sleeper.Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the barrier, the filter reads text that a delete hides."""
    monkeypatch.setattr(json_filters, "add_barrier", lambda frame: frame)
    with pytest.raises(SleeperError, match="not JSON"):
        test_hidden_text_that_is_not_json_is_not_read(instance)
