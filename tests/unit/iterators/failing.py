"""Defective iterators, as in a user's wheel, and registries that return them."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from sleeper.datafiles.merge.steps import TableIterators
from sleeper.user_code.wheel import CodeKind

Batches = Iterator[pa.RecordBatch]


class ActingIterator:
    """An iterator that runs a function with its input and configuration."""

    def __init__(self, act: Callable[[Batches, str], Any]) -> None:
        self._act = act

    def __call__(self, schema: pa.Schema, row_key: Any, sort_key: Any, config: str) -> Any:
        return lambda batches: self._act(batches, config)


class OneIteratorCode:
    """Replaces `UserCode`: returns one iterator for every name."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def load(self, kind: CodeKind, name: str) -> Any:
        assert (kind, name) == (CodeKind.ITERATOR, "Mine")
        return self._make


def make_iterators(act: Callable[[Batches, str], Any], rows_max: int = 1_000_000) -> TableIterators:
    return make_class_iterators(ActingIterator(act), rows_max)


def make_class_iterators(make: Any, rows_max: int = 1_000_000) -> TableIterators:
    return TableIterators("t", OneIteratorCode(make), lambda: rows_max)  # type: ignore[arg-type]


def raises(batches: Batches, _: str) -> Batches:
    for number, batch in enumerate(batches):
        if number:
            raise KeyError("no such thing")
        yield batch


def exits(batches: Batches, _: str) -> Batches:
    next(batches)
    raise SystemExit(3)


def interrupts(batches: Batches, _: str) -> Batches:
    next(batches)
    raise KeyboardInterrupt


def reverses(batches: Batches, _: str) -> Batches:
    for batch in batches:
        yield batch.take(pa.array(range(batch.num_rows - 1, -1, -1)))


def swaps_batches(batches: Batches, _: str) -> Batches:
    yield from reversed(list(batches))


def drops_a_column(batches: Batches, _: str) -> Batches:
    for batch in batches:
        yield batch.select(batch.schema.names[:-1])


def changes_a_type(batches: Batches, _: str) -> Batches:
    for batch in batches:
        columns = [*batch.columns[:-1], pa.nulls(batch.num_rows, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def gives_nulls(batches: Batches, _: str) -> Batches:
    for batch in batches:
        nulls = pa.nulls(batch.num_rows, batch.columns[-1].type)
        yield pa.RecordBatch.from_arrays([*batch.columns[:-1], nulls], schema=batch.schema)


def gives_rows(batches: Batches, _: str) -> Any:
    for batch in batches:
        yield from batch.to_pylist()


def is_none(batches: Batches, _: str) -> Any:
    return None


def ends_early(batches: Batches, _: str) -> Batches:
    yield next(batches)


def reads_nothing(batches: Batches, _: str) -> Batches:
    return iter(())


def gives_up_below(batches: Batches, _: str) -> Batches:
    """Treats an error of its input as the end of the input."""
    try:
        yield from batches
    except Exception:
        return


def moves_keys(batches: Batches, _: str) -> Batches:
    for batch in batches:
        moved = pa.compute.add(batch.column(0), 1000)
        yield pa.RecordBatch.from_arrays([moved, *batch.columns[1:]], schema=batch.schema)


def keeps(batches: Batches, _: str) -> Batches:
    yield from batches
