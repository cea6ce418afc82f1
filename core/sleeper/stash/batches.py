"""Documents of a stash as Arrow batches: lines of JSON with the types of the table, or Parquet."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.json_rows import NOT_ROWS, parse_block
from sleeper.datafiles.text_values import TEXT_IN_JSON, parse_values
from sleeper.errors import DataError, NotFoundError
from sleeper.schema.model import FieldType, Schema
from sleeper.stash.documents import document_lines, end_lines
from sleeper.stash.files import ResumingFile, StashFiles

# Of values that repeat, such as the times of a transaction, each is parsed once.
_REPEATED_MIN = 4


def parse_documents(block: bytes, fields: Schema, where: str) -> pa.RecordBatch:
    """Returns the documents of a block of lines. DataError names `where` if one does not fit."""
    target = arrow_schema(fields)
    try:
        columns = parse_block(block, fields)
        if not columns:
            return pa.RecordBatch.from_pylist([], target)
        arrays = [
            _parse_text(columns[f.name], f.type) if f.type in TEXT_IN_JSON else columns[f.name]
            for f in fields.fields
        ]
        cast = [array.cast(kind.type) for array, kind in zip(arrays, target, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=target)
    except NOT_ROWS as error:
        raise DataError(f"{where} is damaged: {error}") from error


def _parse_text(column: pa.Array, kind: FieldType) -> pa.Array:
    if not pa.types.is_string(column.type):
        return column
    encoded = column.dictionary_encode()
    if len(encoded.dictionary) * _REPEATED_MIN > len(column):
        return parse_values(column, kind)
    return parse_values(encoded.dictionary, kind).take(encoded.indices)


_BATCH_ROWS = 16_384


def read_batches(files: StashFiles, path: str, fields: Schema) -> Iterator[pa.RecordBatch]:
    """Yields the documents of a file, with the fields that `document_fields` returned.

    NotFoundError if the file does not exist, DataError if it is damaged.
    """
    target = arrow_schema(fields)
    with open_parquet(files, path) as file:
        if not file.schema_arrow.equals(target):
            raise DataError(
                f"{files.url_of(path)} is damaged: it does not have the fields of its table"
            )
        # One row group at a time, because all that are requested are read ahead.
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(_BATCH_ROWS, [group], use_threads=False):
                if batch.num_rows:
                    yield batch.cast(target)


@contextmanager
def open_parquet(files: StashFiles, path: str) -> Iterator[pq.ParquetFile]:
    """Yields a Parquet file. Errors of its reading are those of `read_batches`."""
    where = files.url_of(path)
    try:
        with ResumingFile(files.open_ranges(path)) as content:
            source = pa.PythonFile(content, mode="r")
            yield pq.ParquetFile(source, page_checksum_verification=True)
    except FileNotFoundError as error:
        raise NotFoundError(f"{where} does not exist (was its stash deleted?)") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{where} is damaged: {error}") from error


def read_lines(files: StashFiles, path: str, fields: Schema) -> Iterator[bytes]:
    """Yields the documents of a file as lines of JSON, blocks of whole lines at once."""
    for batch in read_batches(files, path, fields):
        yield end_lines(document_lines(batch, fields)).to_pybytes()
