"""A table's types in Spark, and Arrow batches exactly as Spark expects them."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from sleeper.errors import InvalidRequestError
from sleeper.query.run import result_schema
from sleeper.schema.model import Schema


def spark_schema(schema: Schema, columns: tuple[str, ...] | None) -> StructType:
    """The DataFrame schema of the columns, None for all."""
    for name in columns or ():
        schema.field(name)
    return from_arrow_schema(result_schema(schema, columns))


def arrow_of_spark(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark sends and takes rows of the DataFrame schema."""
    return to_arrow_schema(schema, timezone="UTC")


def columns_of(declared: StructType, schema: Schema) -> tuple[str, ...]:
    """The columns that a DataFrame schema names, which may be one that a user gave.

    InvalidRequestError if one is not in the table, or of another type there.
    """
    there = spark_schema(schema, None)
    for field in declared.fields:
        schema.field(field.name)
        expected = there[field.name].dataType.simpleString()
        found = field.dataType.simpleString()
        if found != expected:
            raise InvalidRequestError(
                f"field {field.name!r} is {found} in the schema given, and {expected} in the table"
            )
    return tuple(declared.fieldNames())


def exactly(batches: Iterable[pa.RecordBatch], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches as of that very schema: Spark compares flags and names inside of types too."""
    for batch in batches:
        columns = [
            column if column.type == kind.type else column.cast(kind.type)
            for column, kind in zip(batch.columns, target, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=target)
