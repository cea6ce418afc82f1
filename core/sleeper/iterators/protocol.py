"""The protocol of iterators."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa


class RowIterator(Protocol):
    """Rows in, rows out: filtered, combined, redacted, in a table's merges or in one query.

    The class is registered under a name, and its own name does not matter. An object of it is
    made for each run over some keys: for each leaf that a query reads, for each compaction
    job. It is called once.

    *What it may rely on.* Batches have exactly the columns of `schema`, which are the table's
    fields in order, or fewer value fields if the class has `required_fields`. Rows ascend by
    row key, then sort key. Rows that are equal in both, a *group*, are in one batch. All rows
    of a row key that the run has come in one run, though perhaps over many batches, so a last
    row may be carried over to the next batch.

    *What it must keep.* Each batch that it gives has the schema exactly; no null in a field
    that is not nullable; rows in key order, across batches too; row keys are those that came
    in. It reads its input to the end. What it keeps is little: memory is not bounded for it.

    *What a table's iterator must keep beside.* It runs on what it made before, in any order and
    grouping: of some of the files of a leaf first and of its output with others later. So
    `f(f(a) + f(b))` must be `f(a + b)`. It must not look at a clock (see `TimedIterator`).

    It may raise ValueError when it is made, for a `config` that is wrong: then the property is
    refused, or the query. Whatever else it raises, or raises later, fails the query or the
    compaction with its name; nothing is lost.
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
