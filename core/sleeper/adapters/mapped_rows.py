"""Rows of a source as rows of the sink, by a mapping of columns."""

from collections.abc import Generator, Iterable, Iterator

import pyarrow as pa

from sleeper.adapters.column_mapping import ColumnMapping
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.any_format import read_file
from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.text_values import parse_column
from sleeper.errors import InvalidRequestError
from sleeper.ingest.run import IngestTable
from sleeper.schema.model import Field, Schema, type_name
from sleeper.storage.bucket_folder import SourceFile


def map_rows(
    mapping: ColumnMapping, batches: Iterable[pa.RecordBatch], sink: Schema
) -> Iterator[pa.RecordBatch]:
    """Yields batches of `mapping.source_schema(sink)` as batches of the sink.

    InvalidRequestError if a constant is no value of its field.
    """
    if mapping.is_empty:
        yield from batches
        return
    values = parse_constants(mapping, sink)
    target = arrow_schema(sink)
    for batch in batches:
        columns = [
            pa.repeat(values[name], batch.num_rows)
            if name in values
            else batch.column(mapping.column_of(name))
            for name in target.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=target)


def parse_constants(mapping: ColumnMapping, sink: Schema) -> dict[str, pa.Scalar]:
    """Returns the values of constants. InvalidRequestError if one does not fit its field."""
    by_name = {each.name: each for each in sink.fields}
    return {name: _parse(text, by_name[name]) for name, text in mapping.constants.items()}


def _parse(text: str, field: Field) -> pa.Scalar:
    array, bad = parse_column(pa.array([text], pa.string()), field)
    if bad:
        raise InvalidRequestError(
            f"constant of field {field.name!r} ({type_name(field.type)}): {bad[0]}"
        )
    return array[0]


def make_checker(path: SourceFile, mapping: ColumnMapping, sink: Schema) -> RowChecker:
    """Returns the checker of a file's rows, which have the schema of the source.

    A file without the column of a mapped field is refused, unless it is of JSON lines, in which
    rows may lack any nullable field.
    """
    required = set(mapping.columns.values())
    if sink.latest is not None and sink.latest.by is not None:
        required.add(mapping.column_of(sink.latest.by))
    return RowChecker(
        mapping.source_schema(sink),
        str(path),
        None,
        ignores_extra_columns=True,
        required=frozenset(required),
    )


def read_mapped_files(
    table: IngestTable, files: Iterable[SourceFile], mapping: ColumnMapping
) -> Generator[pa.RecordBatch]:
    """Yields the rows of files as batches of the schema of the table's sources."""
    sink = table.source_schema
    for path in files:
        checker = make_checker(path, mapping, sink)
        checker.line_bytes_max = table.engine.line_bytes_max
        checker.json_limits = table.engine.json_limits
        checker.threads = table.engine.threads
        yield from map_rows(mapping, read_file(path, checker), sink)
