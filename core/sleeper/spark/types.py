"""Conversions between the schemas of tables, Spark and Arrow."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from sleeper.errors import InvalidRequestError
from sleeper.query.run import result_schema
from sleeper.schema.model import Schema


def to_spark(schema: Schema, columns: tuple[str, ...] | None) -> StructType:
    """Returns the DataFrame schema of the columns; None is all columns."""
    for name in columns or ():
        schema.field(name)
    return from_arrow_schema(result_schema(schema, columns))


def to_arrow(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema in which Spark exchanges rows of the DataFrame schema."""
    return to_arrow_schema(schema, timezone="UTC")


def check_columns(declared: StructType, schema: Schema) -> tuple[str, ...]:
    """Returns the column names of a DataFrame schema, which a user may have declared.

    InvalidRequestError if the table lacks a column, or has one of another type.
    """
    table_schema = to_spark(schema, None)
    for field in declared.fields:
        schema.field(field.name)
        expected = table_schema[field.name].dataType.simpleString()
        declared_type = field.dataType.simpleString()
        if declared_type != expected:
            raise InvalidRequestError(
                f"field {field.name!r} is declared as {declared_type} (expected {expected})"
            )
    return tuple(declared.fieldNames())


def cast_batches(batches: Iterable[pa.RecordBatch], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the batches with exactly the schema: Spark also compares names inside types."""
    for batch in batches:
        columns = [
            column if column.type == kind.type else column.cast(kind.type)
            for column, kind in zip(batch.columns, target, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=target)
