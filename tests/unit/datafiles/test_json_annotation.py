"""Parquet's annotation of columns of JSON, by both writers."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext

from sleeper.datafiles.arrow import view_schema
from sleeper.datafiles.write.engine_file import write_batches
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.json_annotation import annotated_footer
from sleeper.errors import DataError
from sleeper.schema.model import DecimalType, Field, ListType, MapType, PrimitiveType, Schema

STRING = PrimitiveType.STRING
# Leaves of lists and maps have the names of columns, too.
SCHEMA = Schema(
    (Field("id", STRING),),
    (),
    (
        Field("map", MapType(STRING, STRING)),
        Field("key", PrimitiveType.JSON, nullable=True),
        Field("list", ListType(STRING)),
        Field("value", PrimitiveType.JSON),
        Field("element", STRING, nullable=True),
        Field("number", DecimalType(5, 2)),
    ),
)
ROWS = [
    {"id": "a", "map": [("k", "v")], "key": None, "list": ["x"], "value": "1.10", "number": 1},
    {"id": "b", "map": [], "key": '{"a":[]}', "list": [], "value": "null", "number": 2},
]


def test_the_engine_marks_columns_of_json_only(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pylist(ROWS, view_schema(SCHEMA))
    settings = FileSettings()
    path = tmp_path / "rows.parquet"
    options = settings.writer_options(pa.Table.from_batches([rows]), SCHEMA, 100)
    write_batches([rows], SCHEMA, path, options)
    file = pq.ParquetFile(path, page_checksum_verification=True)
    kinds = {
        ".".join((column.path,)): column.logical_type.type
        for column in map(file.schema.column, range(len(file.schema.names)))
    }
    assert [path for path, kind in kinds.items() if kind == "JSON"] == ["key", "value"]
    ids = [int(each.metadata[b"PARQUET:field_id"]) for each in file.schema_arrow]
    assert ids == [field.id for field in SCHEMA.fields]
    read = file.read()
    assert read.column("key").type == read.column("value").type == pa.json_()
    assert read.column("value").to_pylist() == ["1.10", "null"]
    by_engine = pa.table(SessionContext().read_parquet(str(path)))
    assert by_engine.column("key").to_pylist() == [None, '{"a":[]}']


def test_a_footer_without_the_column_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": ["x"]}), sink)
    content = sink.getvalue().to_pybytes()
    length = int.from_bytes(content[-8:-4], "little")
    with pytest.raises(DataError, match=r"has 0 columns of JSON .expected 1"):
        annotated_footer(content[-8 - length : -8], {b"b"})
