"""Writers of batches as CSV, as an Arrow stream and as Parquet, which keep no rows."""

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from sleeper.datafiles.json_text import plain_text
from sleeper.errors import InvalidRequestError


class BatchWriter(Protocol):
    """Writes batches to a sink. The end of its context writes the end of the format."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...


class CsvWriter:
    """Writes a line of names, then a line per row, with quoted strings."""

    def __init__(self, schema: pa.Schema, sink: BinaryIO) -> None:
        kinds = [f.type if _is_csv_type(f.type) else pa.string() for f in schema]
        self._schema = pa.schema(list(zip(schema.names, kinds, strict=True)))
        self._writer = csv.CSVWriter(sink, self._schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Writes a line per row."""
        columns = [
            column if _is_csv_type(column.type) else plain_text(column) for column in batch.columns
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: Any, _trace: TracebackType | None
    ) -> None:
        self._writer.close()


def open_arrow(schema: pa.Schema, sink: BinaryIO) -> AbstractContextManager[BatchWriter]:
    """Returns a writer of an Arrow IPC stream."""
    writer: AbstractContextManager[BatchWriter] = pa.ipc.new_stream(sink, schema)
    return writer


def open_parquet(
    schema: pa.Schema, sink: BinaryIO, codec: str = "zstd", for_clients: bool = False
) -> AbstractContextManager[BatchWriter]:
    """Returns a writer of a Parquet file with a row group for each batch.

    `for_clients` names the elements of a list after its field, because the Java clients of
    gchq/sleeper find them only by that name. Other readers go by their position.

    InvalidRequestError if Parquet has no type for a column.
    """
    for field in schema:
        if pa.types.is_interval(field.type):
            raise InvalidRequestError(
                f"column {field.name!r} is an interval, for which Parquet has no type (expected a "
                "cast to text, or another format)"
            )
    if for_clients:
        schema = pa.schema(map(_name_elements, schema))
    # A compliant writer names elements `element`, whatever the schema says.
    writer: AbstractContextManager[BatchWriter] = pq.ParquetWriter(
        sink, schema, compression=codec, use_compliant_nested_type=not for_clients
    )
    return writer


def _name_elements(field: pa.Field) -> pa.Field:
    """Returns a list field whose elements have its name; other fields as they are."""
    if not pa.types.is_list(field.type):
        return field
    return field.with_type(pa.list_(field.type.value_field.with_name(field.name)))


def _is_csv_type(kind: pa.DataType) -> bool:
    """Returns whether Arrow's CSV writer writes the type in our format."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
    )
