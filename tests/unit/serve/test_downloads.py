"""Rows as CSV and as Parquet over HTTP."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.query.rows.output import ROW_OUTPUTS
from tests.unit.serve.client import post

_SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"name","type":"StringType","nullable":true},
 {"name":"tags","type":{"ListType":{"elementType":"StringType"}}}]}"""
_ROWS = 20_000
CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"


@pytest.fixture
def table(instance: Instance) -> Instance:
    create_table(instance, "t", _SCHEMA)
    rows = pa.table(
        {
            "k": range(_ROWS),
            "name": [None if k % 3 == 0 else f'row "{k}"' for k in range(_ROWS)],
            "tags": [[f"a{k}", "b"] for k in range(_ROWS)],
        },
        pa.schema(
            [
                pa.field("k", pa.int64(), nullable=False),
                pa.field("name", pa.string()),
                pa.field("tags", pa.list_(pa.string()), nullable=False),
            ]
        ),
    )
    ingest_rows(instance, "t", rows.to_batches())
    return instance


def read(instance: Instance, body: Any, accept: str, path: str = "/tables/t/query") -> bytes:
    answer = post(instance, path, body, {"Accept": accept})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == accept
    return answer.content


def test_csv_has_names_quotes_and_json_for_lists(table: Instance) -> None:
    content = read(table, {"keys": [1, 3]}, CSV)
    assert content.decode().splitlines() == [
        '"k","name","tags"',
        '1,"row ""1""","[""a1"",""b""]"',
        '3,,"[""a3"",""b""]"',
    ]
    assert csv.read_csv(io.BytesIO(read(table, {}, CSV))).num_rows == _ROWS


def test_csv_is_that_of_the_command_line(table: Instance) -> None:
    schema = pa.schema([pa.field("one", pa.int64()), pa.field("b", pa.binary())])
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([b"\xff"])], schema=schema)
    sink = io.BytesIO()
    assert ROW_OUTPUTS["csv"](schema, [batch], sink) == 1
    statement = {"statement": "SELECT 1 AS one, arrow_cast(decode('ff', 'hex'), 'Binary') AS b"}
    assert read(table, statement, CSV, "/sql") == sink.getvalue()


def test_parquet_is_complete_and_has_the_types(table: Instance) -> None:
    found = pq.read_table(io.BytesIO(read(table, {}, PARQUET)))
    assert found.num_rows == _ROWS
    assert found.column_names == ["k", "name", "tags"]
    assert found["tags"][7].as_py() == ["a7", "b"]
    assert found["name"].null_count == len(range(0, _ROWS, 3))


@pytest.mark.parametrize("accept", [CSV, PARQUET])
def test_results_without_rows_have_their_columns(table: Instance, accept: str) -> None:
    content = read(table, {"keys": [-1]}, accept)
    if accept == CSV:
        assert content.decode().splitlines() == ['"k","name","tags"']
    else:
        assert pq.read_table(io.BytesIO(content)).column_names == ["k", "name", "tags"]
