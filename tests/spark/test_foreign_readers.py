"""Programs that read data files of every layout without Sleeper."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.write import file
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.schema.model import DecimalType, Field, ListType, MapType, PrimitiveType, Schema
from sleeper.storage.location import DataRoot

pytestmark = pytest.mark.slow

P = PrimitiveType
SCHEMA = Schema(
    (Field("word", P.STRING), Field("small", P.INT), Field("bytes", P.BYTE_ARRAY)),
    (Field("long", P.LONG), Field("prefix", P.STRING)),
    (
        Field("random", P.LONG),
        Field("text", P.STRING, nullable=True),
        Field("few", P.STRING),
        Field("flag", P.BOOLEAN, nullable=True),
        Field("float", P.FLOAT),
        Field("double", P.DOUBLE, nullable=True),
        Field("at", P.TIMESTAMP),
        Field("day", P.DATE),
        Field("price", DecimalType(15, 2)),
        Field("wide", DecimalType(38, 10), nullable=True),
        Field("list", ListType(P.LONG), nullable=True),
        Field("map", MapType(P.STRING, P.LONG)),
    ),
)
ROWS = 3_000


def rows() -> pa.Table:
    random = np.random.default_rng(11)
    letters = random.integers(97, 123, (ROWS, 10), dtype=np.uint8)
    words = sorted(each.tobytes().decode() for each in letters)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    columns = [
        words,
        random.integers(0, 30_000, ROWS, np.int32),
        [random.bytes(9) for _ in range(ROWS)],
        np.arange(ROWS),
        [f"prefix-{n:06d}" for n in range(ROWS)],
        random.integers(-(2**63), 2**63, ROWS),
        [None if n % 5 == 0 else f"é{word[::-1]}" for n, word in enumerate(words)],
        [f"v{n % 3}" for n in range(ROWS)],
        [None if n % 7 == 0 else n % 2 == 0 for n in range(ROWS)],
        random.random(ROWS, np.float32),
        [None if n % 11 == 0 else float(x) for n, x in enumerate(random.random(ROWS))],
        [start + timedelta(seconds=37 * n) for n in range(ROWS)],
        [date(2020, 1, 1) + timedelta(days=n % 4_000) for n in range(ROWS)],
        [Decimal(n * 7919) / 100 for n in range(ROWS)],
        [None if n % 3 else Decimal(n) / 7 for n in range(ROWS)],
        [None if n % 4 == 0 else [n, n + 1][: n % 3] for n in range(ROWS)],
        [[(f"k{i}", n) for i in range(n % 3)] for n in range(ROWS)],
    ]
    arrays = []
    for column, field in zip(columns, arrow_schema(SCHEMA), strict=True):
        if pa.types.is_decimal(field.type):
            step = Decimal(1).scaleb(-field.type.scale)
            column = [None if x is None else x.quantize(step) for x in column]
        arrays.append(pa.array(column, field.type))
    return pa.Table.from_arrays(arrays, schema=arrow_schema(SCHEMA))


TABLE = rows()

LAYOUTS: dict[str, tuple[dict[str, Any], int]] = {
    "engine, lookup": ({}, 1),
    "engine, scan": ({"page_rows_max": 20_000}, 1),
    "engine, lz4": ({"compression_codec": "lz4"}, 1),
    "engine, uncompressed": ({"compression_codec": "none"}, 1),
    "Arrow, lookup": ({}, 10**6),
    "Arrow, scan": ({"page_rows_max": 20_000}, 10**6),
    "Arrow, snappy": ({"compression_codec": "snappy"}, 10**6),
}


def write(folder: Path, layout: str, patch: pytest.MonkeyPatch) -> Path:
    if layout == "release 0.2":
        path = folder / "old.parquet"
        pq.write_table(TABLE, path, compression="zstd", use_dictionary=["few"], store_schema=False)
        return path
    changes, engine_rows_min = LAYOUTS[layout]
    patch.setattr(file, "_ENGINE_ROWS_MIN", engine_rows_min)
    settings = FileSettings(row_group_rows_max=1_600, **changes)
    writer = DataFileWriter(DataRoot(folder), "f.parquet", SCHEMA, settings)
    writer.write(TABLE.to_batches())
    writer.finish()
    return folder / "f.parquet"


def sorted_maps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Gives maps the form of dictionaries, and bytes and times one type each."""
    return [{name: _plain(name, value) for name, value in row.items()} for row in rows]


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if name == "map" and not isinstance(value, dict):
        pairs = [tuple(x.values()) if isinstance(x, dict) else x for x in value]
        return dict(pairs)
    return value


def read_by_polars(path: Path) -> list[dict[str, Any]]:
    return pl.read_parquet(path).to_dicts()


def read_by_duckdb(path: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.read_parquet(str(path)).to_arrow_table()
    return found.to_pylist()


def read_by_arrow(path: Path) -> list[dict[str, Any]]:
    with pq.ParquetFile(path, page_checksum_verification=True) as stored:
        return stored.read().to_pylist()


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "Arrow": read_by_arrow,
    "DuckDB": read_by_duckdb,
    "Polars": read_by_polars,
}


@pytest.mark.parametrize("layout", [*LAYOUTS, "release 0.2"])
def test_readers_find_all_rows(
    layout: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, layout, monkeypatch)
    expected = sorted_maps(TABLE.to_pylist())
    for name, read in READERS.items():
        assert sorted_maps(read(path)) == expected, name
    for is_vectorized in ("true", "false"):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", is_vectorized)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        try:
            found = spark.read.parquet(str(path)).toArrow()
            some = spark.read.parquet(str(path)).where(f"word = '{TABLE['word'][2_000]}'")
            matches = some.toArrow()
        finally:
            spark.conf.set("spark.sql.parquet.enableVectorizedReader", "true")
        assert sorted_maps(found.to_pylist()) == expected
        assert sorted_maps(matches.to_pylist()) == expected[2_000:2_001]


def test_files_have_every_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for layout in ("engine, lookup", "Arrow, lookup"):
        (folder := tmp_path / layout).mkdir()
        metadata = pq.read_metadata(write(folder, layout, monkeypatch)).row_group(0)
        columns = [metadata.column(place) for place in range(metadata.num_columns)]
        encodings = {column.path_in_schema: column.encodings for column in columns}
        assert "DELTA_BYTE_ARRAY" in encodings["prefix"]
        assert "DELTA_LENGTH_BYTE_ARRAY" in encodings["text"]
        assert "DELTA_BINARY_PACKED" in encodings["at"]
        assert "RLE_DICTIONARY" in encodings["few"]
        assert "PLAIN" in encodings["random"]
        assert {c.compression for c in columns} == {"UNCOMPRESSED", "ZSTD"}
