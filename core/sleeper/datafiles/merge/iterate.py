"""Runs iterators on a stream of sorted rows and checks their output.

The plan executes the steps up to the first iterator. Then the iterator runs, then the next
step's filters and aggregations for some thousand rows of complete groups at a time, then its
iterator. A *group* consists of the rows with equal row and sort keys.
"""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from datafusion import SessionContext

from sleeper.datafiles.arrow import arrow_schema, with_text
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.expression import key_order
from sleeper.datafiles.engine.session import new_table_name
from sleeper.datafiles.merge.key_runs import first_descent, run_starts
from sleeper.datafiles.merge.processing import apply_steps
from sleeper.datafiles.merge.steps import BoundIterator, ProcessingStep, format_key
from sleeper.datafiles.validity import DamagedArrayError, UnfitError, check_rows
from sleeper.errors import UserCodeError
from sleeper.properties.table import ITERATOR_GROUP_ROWS_MAX
from sleeper.schema.model import Schema
from sleeper.user_code.calls import contain_errors

Key = tuple[object, ...]
_ROWS_PER_PROCESSING = 65_536
_END = object()


def align_to_groups(
    batches: Iterator[pa.RecordBatch],
    keys: Sequence[str],
    rows_max: int,
    too_long: Callable[[Key], Exception],
    rows_least: int = 1,
) -> Iterator[pa.RecordBatch]:
    """Cuts rows into batches of `rows_least` or more that end at the end of a group.

    Holds at most one group, and `rows_least` rows before it. `too_long` returns the error for
    the key of a group of more than `rows_max` rows.
    """
    held: list[pa.RecordBatch] = []
    held_rows = 0
    # The number of held rows of the last group.
    last_rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        starts = run_starts([batch.column(name) for name in keys])
        lengths = np.diff(np.append(starts, batch.num_rows))
        continues = bool(held) and read_key(held[-1], keys, -1) == read_key(batch, keys, 0)
        if continues:
            lengths[0] += last_rows
        longest = int(lengths.argmax())
        if lengths[longest] > rows_max:
            raise too_long(read_key(batch, keys, int(starts[longest])))
        last_rows = int(lengths[-1])
        # Every group before this row of the batch is complete.
        end = 0 if continues and len(starts) == 1 else int(starts[-1])
        is_end = end or not continues
        if is_end and held_rows + end >= rows_least:
            yield concat_batches([*held, batch.slice(0, end)] if end else held)
            held, held_rows = [], 0
            batch = batch.slice(end)
        held.append(batch)
        held_rows += batch.num_rows
    if held:
        yield concat_batches(held)


def concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenates one or more batches."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def read_key(batch: pa.RecordBatch, keys: Sequence[str], row: int) -> Key:
    """Returns the values of the row's keys."""
    return tuple(batch.column(name)[row].as_py() for name in keys)


def planned_steps(steps: Sequence[ProcessingStep]) -> tuple[ProcessingStep, ...]:
    """Returns the steps that are part of the plan: up to the first with an iterator."""
    before = list(itertools.takewhile(lambda step: step.iterator is None, steps))
    return tuple(steps[: len(before) + 1])


def run_iterators(
    batches: Iterator[pa.RecordBatch],
    schema: Schema,
    steps: Sequence[ProcessingStep],
    session: SessionContext,
) -> Generator[pa.RecordBatch, None, None]:
    """Yields the plan's rows after all other steps and iterators, of the table's types.

    Iterators see JSON as text. UserCodeError names the failed iterator and the key.
    """
    kind = with_text(arrow_schema(schema))
    rows: Iterator[pa.RecordBatch] = (batch.cast(kind) for batch in batches)
    planned = len(planned_steps(steps))
    bound: BoundIterator | None = None
    for index, step in enumerate(steps):
        if index >= planned:
            assert bound is not None
            rows = _apply_step(rows, schema, step, bound, session)
        if step.iterator is not None:
            bound = step.iterator
            rows = _run_iterator(rows, schema, bound, step.now_ms)
    target = arrow_schema(schema)
    yield from (batch if batch.schema.equals(target) else batch.cast(target) for batch in rows)


def _apply_step(
    batches: Iterator[pa.RecordBatch],
    schema: Schema,
    step: ProcessingStep,
    before: BoundIterator,
    session: SessionContext,
) -> Iterator[pa.RecordBatch]:
    """Filters and aggregates an iterator's output, which may have rows of equal keys."""
    processing = step.processing
    if not processing.filters and not processing.aggregations:
        yield from batches
        return
    for chunk in _groups(batches, schema, before, _ROWS_PER_PROCESSING):
        name = new_table_name()
        with engine_errors():
            frame = session.from_arrow(pa.Table.from_batches([chunk]), name=name)
            try:
                frame = apply_steps(frame, schema, (step,)).sort(*key_order(schema))
                results = [batch.to_pyarrow() for batch in frame.execute_stream()]
            finally:
                session.deregister_table(name)
        yield from (batch.cast(with_text(arrow_schema(schema))) for batch in results)


def _run_iterator(
    batches: Iterator[pa.RecordBatch], schema: Schema, bound: BoundIterator, now_ms: int
) -> Iterator[pa.RecordBatch]:
    keys = [field.name for field in schema.keys]
    source = _Source(_groups(batches, schema, bound), keys)
    check = _OutputCheck(schema, bound)
    iterator = bound.start(schema, now_ms)
    with _attribute_errors(bound, source):
        output = iter(iterator(source))
    try:
        while True:
            with _attribute_errors(bound, source):
                batch: Any = next(output, _END)
            if source.error is not None:
                # The iterator continued without the rest of its rows.
                raise source.error
            if batch is _END:
                # Tested before the input is closed, because a closed input is empty.
                if next(source, None) is not None:
                    raise bound.failure("it ended before the rows did", source.key)
                return
            check.add(batch, source.key)
            if batch.num_rows:
                yield batch
    finally:
        for stream in (output, batches):
            # Only generators have `close`. Errors of a user's iterator at its end are ignored.
            with contextlib.suppress(Exception), contain_errors(bound.failure):
                getattr(stream, "close", lambda: None)()


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
    return align_to_groups(batches, keys, bound.rows_max, too_long, rows_least)


class _Source:
    """An iterator's input. Records the error of the input and the key of the last batch."""

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
        self.key = read_key(batch, self._keys, 0)
        return batch


@contextlib.contextmanager
def _attribute_errors(bound: BoundIterator, source: _Source) -> Iterator[None]:
    """Translates errors to UserCodeError of the iterator, unless its input failed."""
    try:
        with contain_errors(lambda reason: bound.failure(reason, source.key)):
            yield
    except BaseException:  # an interrupt too
        if source.error is not None:
            raise source.error from None
        raise


class _OutputCheck:
    """Checks an iterator's output: schema, values and order."""

    def __init__(self, schema: Schema, bound: BoundIterator) -> None:
        self._schema = schema
        self._kind = with_text(arrow_schema(schema))
        self._keys = [field.name for field in schema.keys]
        self._bound = bound
        self._last: pa.RecordBatch | None = None

    def add(self, batch: object, key: Key | None) -> None:
        """Raises UserCodeError if the batch is invalid or cannot follow those before it."""
        if not isinstance(batch, pa.RecordBatch):
            raise self._bound.failure(
                f"invalid output: {type(batch).__name__} (expected RecordBatch)", key
            )
        if not batch.schema.equals(self._kind):
            raise self._bound.failure(_describe_schema_fault(batch.schema, self._kind), key)
        try:
            check_rows(batch, self._schema)
        except (UnfitError, DamagedArrayError) as error:
            raise self._bound.failure(f"invalid output: {error}", key) from error
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
            key = read_key(batch, self._keys, wrong)
            before = batch if wrong else self._last
            last = read_key(before, self._keys, wrong - 1)
            raise self._bound.failure(
                f"row follows key {format_key(last)} (expected rows in key order)", key
            )
        self._last = batch.slice(batch.num_rows - 1).select(self._keys)


def _describe_schema_fault(actual: pa.Schema, expected: pa.Schema) -> str:
    if actual.names != expected.names:
        return f"columns {', '.join(actual.names)} (expected {', '.join(expected.names)})"
    for got, field in zip(actual, expected, strict=True):
        if not got.equals(field):
            null = " that may be null" if got.nullable and not field.nullable else ""
            return f"field {field.name!r} is {got.type}{null} (expected {field.type})"
    return "the schema of the batch differs from the table's"
