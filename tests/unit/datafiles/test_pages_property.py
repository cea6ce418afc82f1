"""Rows read by pages are those that the engine merges, for random files and requests."""

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import ParquetWriterOptions, SessionContext
from hypothesis import event, given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.key_values import from_key_values
from sleeper.datafiles.merge.deletes import DeletedRows
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest, with_hidden
from sleeper.datafiles.merge.rows import merge_rows
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.datafiles.pages.reader import PageReader
from sleeper.files import DataFile
from sleeper.partitions.key_regions import KeyRegions
from sleeper.partitions.region import Range, Region, disjoint_regions, key_region
from sleeper.processing.model import AgeOff, Aggregation, AggregationOp, Processing
from sleeper.schema.model import (
    DecimalType,
    Field,
    LatestRows,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    smallest_key_value,
)
from sleeper.storage.location import DataRoot

pytestmark = pytest.mark.slow

# Bounds in a page index are truncated to 64 bytes.
_LONG = "é" * 32
NUMBERS = st.integers(-6, 6)
WORDS = st.one_of(st.text("ab\0é", max_size=3), st.text("ab", max_size=2).map(_LONG.__add__))
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    PrimitiveType.INT: NUMBERS,
    PrimitiveType.LONG: NUMBERS.map(lambda n: n * 2**40),
    PrimitiveType.STRING: WORDS,
    PrimitiveType.BYTE_ARRAY: WORDS.map(str.encode),
    PrimitiveType.BOOLEAN: st.integers(0, 1),
    PrimitiveType.FLOAT: NUMBERS.map(float),
    PrimitiveType.DOUBLE: NUMBERS.map(lambda n: n / 7),
    PrimitiveType.TIMESTAMP: st.integers(0, 10).map(lambda n: n * 10**6),
    PrimitiveType.DATE: st.integers(0, 10),
    # Units of the last decimal place
    DecimalType(20, 2): st.integers(-500, 500),
    DecimalType(9, 2): NUMBERS,
    DecimalType(18, 3): NUMBERS.map(lambda n: n * 10**12),
    ListType(PrimitiveType.STRING): st.lists(WORDS, max_size=4),
    MapType(PrimitiveType.STRING, PrimitiveType.LONG): st.dictionaries(
        WORDS, NUMBERS, max_size=3
    ).map(lambda d: list(d.items())),
}
KEYS = (
    PrimitiveType.INT,
    PrimitiveType.LONG,
    PrimitiveType.STRING,
    PrimitiveType.BYTE_ARRAY,
    PrimitiveType.TIMESTAMP,
    PrimitiveType.DATE,
    PrimitiveType.BOOLEAN,
    DecimalType(9, 2),
    DecimalType(18, 3),
)
NAMES = itertools.count()


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    kinds = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    row_keys = [Field(f"k{n}", kind) for n, kind in enumerate(kinds)]
    sort_keys = [Field("s", draw(st.sampled_from(KEYS)))] if draw(st.booleans()) else []
    values = [
        Field(f"v{n}", kind, nullable=draw(st.booleans()))
        for n, kind in enumerate(draw(st.lists(st.sampled_from(list(VALUES)), max_size=4)))
    ]
    latest = draw(st.sampled_from([None, None, LatestRows()]))
    return Schema(tuple(row_keys), tuple(sort_keys), tuple(values), latest)


def value_of(field: Field) -> st.SearchStrategy[Any]:
    values = VALUES[field.type]
    return st.one_of(st.none(), values) if field.nullable else values


@st.composite
def regions(draw: st.DrawFn, schema: Schema) -> Sequence[Region]:
    if len(schema.row_keys) == 1 and draw(st.booleans()):
        field = schema.row_keys[0]
        values = st.lists(VALUES[field.type], min_size=1, max_size=12)
        return KeyRegions.from_values(field, draw(values))

    def one_range(field: Field) -> Range:
        values = VALUES[field.type]
        if draw(st.integers(0, 3)) == 0:
            return Range(smallest_key_value(field), None)
        low, high = sorted([draw(values), draw(values)])
        return Range(low, high if low < high else None)

    found = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            key = [draw(VALUES[field.type]) for field in schema.row_keys]
            found.append(key_region(schema, key))
        else:
            found.append(Region(tuple(map(one_range, schema.row_keys))))
    return tuple(disjoint_regions(found))


def write_by_arrow(draw: st.DrawFn, path: Path, rows: pa.Table) -> None:
    with pq.ParquetWriter(
        path,
        rows.schema,
        compression=draw(st.sampled_from(["zstd", "snappy", "none", "lz4", "gzip"])),
        use_dictionary=draw(st.booleans()),
        data_page_size=draw(st.sampled_from([1, 40, 200])),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
        write_batch_size=draw(st.integers(1, 5)),
        write_page_index=draw(st.integers(0, 5)) > 0,
        write_page_checksum=draw(st.booleans()),
        store_schema=draw(st.booleans()),
    ) as writer:
        writer.write_table(rows, row_group_size=draw(st.integers(1, 12)))


def write_by_engine(draw: st.DrawFn, path: Path, rows: pa.Table) -> None:
    options = ParquetWriterOptions(
        data_page_row_count_limit=draw(st.integers(1, 6)),
        write_batch_size=draw(st.integers(1, 3)),
        max_row_group_size=draw(st.integers(3, 20)),
        dictionary_enabled=draw(st.booleans()),
        compression=draw(st.sampled_from(["zstd(1)", "snappy", "uncompressed"])),
        writer_version=draw(st.sampled_from(["1.0", "2.0"])),
    )
    SessionContext().from_arrow(rows).write_parquet_with_options(path, options)


@st.composite
def written(draw: st.DrawFn, folder: Path, schema: Schema) -> tuple[DataFile, MergeInput]:
    """Writes a file of random rows, in key order."""
    fields = schema.fields
    rows = draw(
        st.lists(
            st.tuples(*map(value_of, fields)),
            min_size=1,
            max_size=60,
            unique_by=(lambda row: row[: len(schema.keys)]) if schema.latest else None,
        )
    )
    rows.sort(key=lambda row: row[: len(schema.keys)])
    kind = arrow_schema(schema)
    number: int | None = draw(st.integers(1, 9))
    if schema.latest is not None:
        has_numbers, has_tombstones = draw(st.booleans()), draw(st.booleans())
        kind = arrow_schema(with_hidden(schema, has_numbers, has_tombstones))
        number = None if has_numbers else number
        tombstone = st.sampled_from([None, None, True])
        rows = [
            (*row, *((n,) if has_numbers else ()), *((draw(tombstone),) if has_tombstones else ()))
            for n, row in enumerate(rows)
        ]
    columns = [
        from_key_values(column, each.type)
        for column, each in zip(zip(*rows, strict=True), kind, strict=True)
    ]
    path = folder / f"{next(NAMES)}.parquet"
    write = write_by_engine if draw(st.booleans()) and len(rows) > 1 else write_by_arrow
    write(draw, path, pa.table(columns, schema=kind))
    bounds = [row[: len(schema.row_keys)] for row in rows]
    file = DataFile(path.name, len(rows), path.stat().st_size, bounds[0], bounds[-1])
    deleted = None
    if draw(st.integers(0, 3)) == 0:
        deleted = DeletedRows(schema, draw(regions(schema)))
    chosen = draw(st.one_of(st.none(), regions(schema)))
    return file, MergeInput(str(path), chosen, None, deleted, None, number)


@st.composite
def steps(draw: st.DrawFn, schema: Schema) -> tuple[ProcessingStep, ...]:
    times = [f.name for f in schema.values if f.type is PrimitiveType.TIMESTAMP]
    if times and draw(st.booleans()):
        return (ProcessingStep(Processing(filters=(AgeOff(times[0], 5_000),)), 10_000),)
    sums = (PrimitiveType.LONG, PrimitiveType.INT)
    if all(f.type in sums for f in schema.values) and schema.values and draw(st.booleans()):
        ops = tuple(Aggregation(AggregationOp.SUM, f.name) for f in schema.values)
        return (ProcessingStep(Processing(aggregations=ops), 0),)
    return ()


def as_rows(batches: Sequence[pa.RecordBatch], kind: pa.Schema) -> list[tuple[Any, ...]]:
    table = pa.Table.from_batches([batch.cast(kind) for batch in batches], kind)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_pages_have_the_rows_of_the_merge(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        drawn = [data.draw(written(folder, schema)) for _ in range(data.draw(st.integers(1, 3)))]
        files, inputs = zip(*drawn, strict=True)
        processing = data.draw(steps(schema))
        columns = None
        if data.draw(st.booleans()):
            names = [f.name for f in schema.fields]
            columns = tuple(data.draw(st.permutations(names))[: data.draw(st.integers(1, 9))])
        request = MergeRequest(schema, inputs, columns, steps=processing)
        engine = EngineSettings(folder)
        session = open_session(engine)
        whole = arrow_schema(schema)
        kind = whole if columns is None else pa.schema([whole.field(n) for n in columns])
        expected = as_rows(list(merge(request, engine, session)), kind)
        filled = PageReader(10**6, 10**9, 2).fill(DataRoot(folder), request, files)
        event(f"read by pages: {filled is not None}")
        if filled is None:
            # A file has no page index, or empty pages.
            return
        if processing or columns is None:
            by_engine = as_rows(list(merge(filled, engine, session)), kind)
            assert sorted(map(repr, by_engine)) == sorted(map(repr, expected))
        actual = by_engine if processing else as_rows(merge_rows(filled).to_batches(), kind)
        assert sorted(map(repr, actual)) == sorted(map(repr, expected))
        places = [i for i, field in enumerate(kind) if field.name in {f.name for f in schema.keys}]
        if len(places) == len(schema.keys):
            keys = [[row[i] for i in places] for row in expected]
            assert [[row[i] for i in places] for row in actual] == keys
            limited = MergeRequest(schema, filled.inputs, columns, limit=2)
            if not processing:
                assert merge_rows(limited).num_rows == min(2, len(expected))
