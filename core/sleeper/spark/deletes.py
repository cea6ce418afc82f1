"""Deletes from Spark: of the keys in a DataFrame, and by a condition on row key fields.

They are functions, because Spark has no `DELETE FROM` for Python data sources: the tables that it
makes of them can be read, written and truncated, and nothing else.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from sleeper.deletion.keys import delete_key_rows, delete_rows
from sleeper.deletion.service import DeleteResult
from sleeper.errors import InvalidRequestError
from sleeper.instance import OpenTable
from sleeper.partitions.condition import parse_condition
from sleeper.query.service import read_schema
from sleeper.schema.model import Schema
from sleeper.spark.options import cached_instance, quote_name, read_instance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def delete_keys(
    keys: "DataFrame", table: str, instance: str | None = None, delete_id: str | None = None
) -> DeleteResult:
    """Deletes the rows with the keys of a DataFrame from a table, in one transaction.

    The DataFrame has a column for each row key field and no others. It may have any number of keys:
    they go through the driver in batches, which sorts them in limited memory and writes them to a
    file. Rows that are written later are kept. `instance` is a folder or `aws:INSTANCE_ID`, by
    default SLEEPER_INSTANCE. `delete_id` makes the call idempotent: a repeated call with the id of
    an earlier one, within 30 days, changes nothing and does not compute the DataFrame. The default
    is a random id.

    Raises `InvalidRequestError` for wrong columns, for a value that does not fit its field, and for
    a DataFrame without rows; `ConflictError` if the id was used for another kind of delete. After
    `UnavailableError` the rows may or may not be deleted: repeat the call with the id in the
    error's message.
    """
    opened = _open_table(table, instance)
    names = [field.name for field in _schema(opened).row_keys]
    _check_columns(keys.columns, names)
    batches = _batches(keys, names)
    # A repeated DataFrame may read the table from which its rows were deleted.
    return delete_key_rows(
        opened.instance, table, batches, delete_id=delete_id, compares_keys=False
    )


def delete_where(
    condition: str, table: str, instance: str | None = None, delete_id: str | None = None
) -> DeleteResult:
    """Deletes the rows of a table that fulfil a condition on row key fields, in one transaction.

    A condition compares fields with values: `city = 'Oslo' AND day BETWEEN 3 AND 5`. It has
    `=`, `<`, `<=`, `>`, `>=`, `BETWEEN`, `IN`, `AND`, `OR` and parentheses. Text is in single
    quotes, bytes are as `X'0a1b'`. `instance` and `delete_id` are those of `delete_keys`, but the
    id of a delete of other rows is refused.

    Raises `InvalidRequestError` for a condition that has anything else, such as a field that is
    no row key field, and for one that no key fulfils; `ConflictError` if the id was used for other
    rows. After `UnavailableError` the rows may or may not be deleted: repeat the call with the id
    in the error's message.
    """
    opened = _open_table(table, instance)
    regions = parse_condition(_schema(opened), condition)
    if not regions:
        raise InvalidRequestError(f"no key fulfils the condition {condition!r:.200}")
    return delete_rows(opened.instance, table, regions, delete_id)


def _open_table(table: str, instance: str | None) -> OpenTable:
    where = read_instance({} if instance is None else {"instance": instance})
    return cached_instance(where).table(table)


def _schema(table: OpenTable) -> Schema:
    return read_schema(table.instance, table.ref.name)


def _check_columns(columns: list[str], names: list[str]) -> None:
    if sorted(columns) != sorted(names):
        raise InvalidRequestError(
            f"columns of the DataFrame: {', '.join(columns)} (expected the row key fields "
            f"{', '.join(names)})"
        )


def _batches(frame: "DataFrame", names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the DataFrame, a partition at a time."""
    packed = frame.select(*map(quote_name, names)).mapInArrow(_pack, "batch binary")
    for row in packed.toLocalIterator():
        with pa.ipc.open_stream(row.batch) as stream:
            yield from stream


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields a row for each batch, with the batch in Arrow's stream format.

    Spark's other ways to the driver return the whole DataFrame, or a Python object per row.
    """
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([content], ["batch"])
