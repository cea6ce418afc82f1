"""Dictionary encoding of columns."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.datafiles.write.layout import dictionary_columns
from sleeper.schema.model import (
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)
from sleeper.storage.location import DataRoot

SCHEMA = Schema(
    (Field("key", PrimitiveType.STRING),),
    (),
    (
        Field("few", PrimitiveType.STRING),
        Field("many", PrimitiveType.LONG),
        Field("empty", PrimitiveType.DOUBLE, nullable=True),
        Field("price", DecimalType(10, 2)),
        Field("list", ListType(PrimitiveType.STRING)),
        Field("map", MapType(PrimitiveType.STRING, PrimitiveType.LONG)),
    ),
)


def rows(count: int) -> pa.Table:
    columns = {
        "key": [f"{i:06d}" for i in range(count)],
        "few": [f"v{i % 7}" for i in range(count)],
        "many": list(range(count)),
        "empty": [None] * count,
        "price": [Decimal(i % 5) for i in range(count)],
        "list": [["a"]] * count,
        "map": [[("a", 1)]] * count,
    }
    return pa.table(columns, schema=arrow_schema(SCHEMA))


def test_columns_of_few_values_have_a_dictionary(tmp_path: Path) -> None:
    writer = DataFileWriter(DataRoot(tmp_path), "f.parquet", SCHEMA, FileSettings())
    writer.write(rows(5_000).to_batches())
    writer.finish()
    with pq.ParquetFile(tmp_path / "f.parquet") as file:
        group = file.metadata.row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        with_dictionary = {c.path_in_schema for c in columns if c.has_dictionary_page}
        assert file.read() == rows(5_000)
    assert with_dictionary == {
        "few",
        "empty",
        "price",
        "list.list.list",
        "map.key_value.key",
        "map.key_value.value",
    }


def test_sorted_column_is_sampled_over_all_first_rows() -> None:
    keys = [0] * 20_000 + list(range(80_000))
    table = pa.table({"key": sorted(keys)})
    assert dictionary_columns(table) == []
    assert dictionary_columns(pa.table({"key": [0] * 100_000})) == ["key"]
    assert dictionary_columns(table.slice(0, 0)) == ["key"]
