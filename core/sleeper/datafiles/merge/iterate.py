"""Runs iterators on a stream of sorted rows, and checks what they make of it.

Rows pass through *stages*: what the engine's plan does, up to the first iterator; then the
iterator; then the next step's filters and aggregations, which the engine does for some
thousand rows of whole groups at a time; then its iterator.
"""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from datafusion import SessionContext

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.predicate import key_order
from sleeper.datafiles.engine.session import new_table_name
from sleeper.datafiles.merge.bound_iterator import BoundIterator, shown_key
from sleeper.datafiles.merge.key_runs import first_descent, run_starts
from sleeper.datafiles.merge.processing import ProcessingStep, processed
from sleeper.errors import UserCodeError
from sleeper.properties.table import ITERATOR_GROUP_ROWS_MAX
from sleeper.schema.model import Schema

Key = tuple[object, ...]


def whole_groups(
    batches: Iterator[pa.RecordBatch],
    keys: Sequence[str],
    rows_max: int,
    too_long: Callable[[Key], Exception],
    rows_least: int = 1,
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that end where a group does, of `rows_least` rows or more.

    At most one group is held, and so many rows before it. `too_long` makes the error for the
    key of a group of more than `rows_max` rows.
    """
    held: list[pa.RecordBatch] = []
    held_rows = 0
    # How many rows there are so far of the group that the held rows end with.
    last_rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        starts = run_starts([batch.column(name) for name in keys])
        lengths = np.diff(np.append(starts, batch.num_rows))
        goes_on = bool(held) and key_of(held[-1], keys, -1) == key_of(batch, keys, 0)
        if goes_on:
            lengths[0] += last_rows
        longest = int(lengths.argmax())
        if lengths[longest] > rows_max:
            raise too_long(key_of(batch, keys, int(starts[longest])))
        last_rows = int(lengths[-1])
        # Before this row of the batch, every group is whole.
        end = 0 if goes_on and len(starts) == 1 else int(starts[-1])
        is_end = end or not goes_on
        if is_end and held_rows + end >= rows_least:
            yield joined([*held, batch.slice(0, end)] if end else held)
            held, held_rows = [], 0
            batch = batch.slice(end)
        held.append(batch)
        held_rows += batch.num_rows
    if held:
        yield joined(held)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in one batch. There is at least one."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def key_of(batch: pa.RecordBatch, keys: Sequence[str], row: int) -> Key:
    """The values of the row's keys."""
    return tuple(batch.column(name)[row].as_py() for name in keys)


_ROWS_PROCESSED_AT_ONCE = 65_536


def in_engine(steps: Sequence[ProcessingStep]) -> tuple[ProcessingStep, ...]:
    """The steps whose filters and aggregations are part of the plan: up to the first iterator."""
    before = list(itertools.takewhile(lambda step: step.iterator is None, steps))
    return tuple(steps[: len(before) + 1])


def iterated(
    batches: Iterator[pa.RecordBatch],
    schema: Schema,
    steps: Sequence[ProcessingStep],
    session: SessionContext,
) -> Generator[pa.RecordBatch, None, None]:
    """The rows after all steps, of the plan's rows; batches are of the table's own types.

    UserCodeError names the iterator that failed, and the key.
    """
    kind = arrow_schema(schema)
    rows: Iterator[pa.RecordBatch] = (batch.cast(kind) for batch in batches)
    planned = len(in_engine(steps))
    bound: BoundIterator | None = None
    for place, step in enumerate(steps):
        if place >= planned:
            assert bound is not None
            rows = _processed(rows, schema, step, bound, session)
        if step.iterator is not None:
            bound = step.iterator
            rows = _run(rows, schema, bound, step.now_ms)
    yield from rows


def _processed(
    batches: Iterator[pa.RecordBatch],
    schema: Schema,
    step: ProcessingStep,
    before: BoundIterator,
    session: SessionContext,
) -> Iterator[pa.RecordBatch]:
    """Filters and aggregations of what an iterator made: it may have made rows of equal keys."""
    processing = step.processing
    if not processing.filters and not processing.aggregations:
        yield from batches
        return
    for chunk in _groups(batches, schema, before, _ROWS_PROCESSED_AT_ONCE):
        name = new_table_name()
        with engine_errors():
            frame = session.from_arrow(pa.Table.from_batches([chunk]), name=name)
            try:
                frame = processed(frame, schema, (step,)).sort(*key_order(schema))
                found = [batch.to_pyarrow() for batch in frame.execute_stream()]
            finally:
                session.deregister_table(name)
        yield from (batch.cast(arrow_schema(schema)) for batch in found)


def _run(
    batches: Iterator[pa.RecordBatch], schema: Schema, bound: BoundIterator, now_ms: int
) -> Iterator[pa.RecordBatch]:
    keys = [field.name for field in schema.keys]
    source = _Source(_groups(batches, schema, bound), keys)
    checked = _Check(schema, bound)
    iterator = bound.started(schema, now_ms)
    with _blamed(bound, source):
        output = iter(iterator(source))
    try:
        while True:
            with _blamed(bound, source):
                batch: Any = next(output, _END)
            if source.error is not None:
                # The iterator went on without the rest of its rows.
                raise source.error
            if batch is _END:
                # Before the input is closed: of a closed one nothing is left to find.
                if next(source, None) is not None:
                    raise bound.failure("it ended before the rows did", source.key)
                return
            checked.look_at(batch, source.key)
            if batch.num_rows:
                yield batch
    finally:
        for stream in (output, batches):
            # Generators have it; what a user's own says at its end changes nothing.
            with contextlib.suppress(Exception):
                getattr(stream, "close", _nothing)()


_END = object()


def _nothing() -> None:
    """An iterator need not be closed."""


def _groups(
    batches: Iterator[pa.RecordBatch], schema: Schema, bound: BoundIterator, rows_least: int = 1
) -> Iterator[pa.RecordBatch]:
    def too_long(key: Key) -> UserCodeError:
        return bound.failure(
            f"there are more than {bound.rows_max} rows of this key, which "
            f"{ITERATOR_GROUP_ROWS_MAX.name} does not allow",
            key,
        )

    keys = [field.name for field in schema.keys]
    return whole_groups(batches, keys, bound.rows_max, too_long, rows_least)


class _Source:
    """An iterator's input. It remembers what failed below, and the key that the rows are at."""

    def __init__(self, batches: Iterator[pa.RecordBatch], keys: Sequence[str]) -> None:
        self._batches = batches
        self._keys = keys
        self.key: Key | None = None
        self.error: BaseException | None = None

    def __iter__(self) -> "_Source":
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        self.key = key_of(batch, self._keys, 0)
        return batch


@contextlib.contextmanager
def _blamed(bound: BoundIterator, source: _Source) -> Iterator[None]:
    """What goes wrong within is the iterator's fault, unless its input failed."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if source.error is not None:
            raise source.error from None
        raise bound.failure(f"{type(error).__name__}: {error}", source.key) from error


class _Check:
    """Looks at what an iterator gives: the schema, no nulls where there can be none, the order."""

    def __init__(self, schema: Schema, bound: BoundIterator) -> None:
        self._kind = arrow_schema(schema)
        self._keys = [field.name for field in schema.keys]
        self._bound = bound
        self._last: pa.RecordBatch | None = None

    def look_at(self, batch: object, key: Key | None) -> None:
        """UserCodeError if the batch cannot follow those before it."""
        if not isinstance(batch, pa.RecordBatch):
            raise self._bound.failure(f"it gave a {type(batch).__name__}, no RecordBatch", key)
        if not batch.schema.equals(self._kind):
            raise self._bound.failure(_schema_fault(batch.schema, self._kind), key)
        try:
            batch.validate()
        except pa.ArrowInvalid as error:
            raise self._bound.failure(f"it gave a broken batch: {error}", key) from error
        for field, values in zip(self._kind, batch.columns, strict=True):
            if not field.nullable and values.null_count:
                raise self._bound.failure(f"it gave a null in field {field.name!r}", key)
        if batch.num_rows:
            self._check_order(batch)

    def _check_order(self, batch: pa.RecordBatch) -> None:
        columns = [batch.column(name) for name in self._keys]
        wrong = first_descent(columns)
        if self._last is not None:
            seam = [
                pa.concat_arrays([self._last.column(name), column.slice(0, 1)])
                for name, column in zip(self._keys, columns, strict=True)
            ]
            wrong = 0 if first_descent(seam) is not None else wrong
        if wrong is not None:
            key = key_of(batch, self._keys, wrong)
            before = batch if wrong else self._last
            last = key_of(before, self._keys, wrong - 1)
            raise self._bound.failure(
                f"it gave this row after {shown_key(last)}: rows must stay in key order", key
            )
        self._last = batch.slice(batch.num_rows - 1).select(self._keys)


def _schema_fault(found: pa.Schema, wanted: pa.Schema) -> str:
    if found.names != wanted.names:
        return f"it gave columns {', '.join(found.names)}: expected {', '.join(wanted.names)}"
    for got, field in zip(found, wanted, strict=True):
        if not got.equals(field):
            null = " that may be null" if got.nullable and not field.nullable else ""
            return f"it gave field {field.name!r} as {got.type}{null}: expected {field.type}"
    return "it gave another schema"
