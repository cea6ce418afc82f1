"""The protocol of iterators."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa


class RowIterator(Protocol):
    """Rows in, rows out: filtered, combined, redacted, in a table's merges or in one query.

    The class is registered under a name, and its own name does not matter. Each run over some
    keys, such as a leaf in a query or a compaction job, creates an object and calls it once.

    *Guarantees of its input.* Batches have exactly the columns of `schema`, which are the table's
    fields in order, or fewer value fields if the class has `required_fields`. Rows ascend by
    row key, then sort key. A *group*, the rows that are equal in both, is in one batch. All rows
    of a row key are in one run, but maybe in several batches, so the iterator may keep a last
    row until the next batch.

    *Guarantees of every iterator.* Each output batch has exactly the schema, without nulls in
    fields that are not nullable. Rows are in key order, also across batches, and row keys are
    unchanged. The iterator reads its input to the end, and keeps little state, because its memory
    is not limited.

    *Guarantees of a table's iterator.* It runs on its own output, combined with other rows in any
    order and grouping, so `f(f(a) + f(b))` must equal `f(a + b)`. It must not read a clock (see
    `TimedIterator`).

    The constructor raises ValueError for an invalid `config`, which refuses the property or query.
    Any other error fails the query or the compaction with the iterator's name, and loses nothing.
    """

    def __init__(
        self, schema: pa.Schema, row_key: Sequence[str], sort_key: Sequence[str], config: str
    ) -> None: ...

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Returns the remaining rows."""


class TimedIterator(RowIterator, Protocol):
    """An iterator that depends on the time, which is the same wherever it runs."""

    def start_at(self, now_ms: int) -> None:
        """Receives the time, in milliseconds since 1970, before the first batch.

        A query's start; for an old version, that version's time; for a compaction job, the time
        at which it got its files.
        """


class NarrowIterator(RowIterator, Protocol):
    """An iterator that declares the value fields it reads, so that queries read fewer."""

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:
        """Returns the fields that it needs besides key fields and requested fields."""
