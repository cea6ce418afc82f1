"""The iterators that every instance has: sum, latest row, age-off and row security."""

import csv
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class SumByKey:
    """Sums the value fields of rows with equal row and sort keys. Sums wrap.

    Value fields are int32 or int64, and nulls are ignored. For tables and queries. It has no
    config.
    """

    def __init__(
        self, schema: pa.Schema, row_key: Sequence[str], sort_key: Sequence[str], config: str
    ) -> None:
        if config:
            raise ValueError(f"unexpected config {config!r} (expected none)")
        self._keys = [*row_key, *sort_key]
        self._schema = schema
        for field in schema:
            if field.name not in self._keys and field.type not in (pa.int32(), pa.int64()):
                raise ValueError(f"field {field.name!r} is {field.type}: expected an integer")

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:  # noqa: ARG004
        """Requests no other field: each sum is independent."""
        return ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Batches contain whole groups.
            starts = group_starts(batch, self._keys)
            columns = [
                column.take(pa.array(starts)) if field.name in self._keys else _sums(column, starts)
                for field, column in zip(self._schema, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def group_starts(batch: pa.RecordBatch, keys: Sequence[str]) -> np.ndarray:
    """Returns the indices of the first row of each group of equal keys."""
    differs = np.zeros(batch.num_rows, bool)
    differs[:1] = True
    for name in keys:
        column = batch.column(name)
        last, this = column.slice(0, len(column) - 1), column.slice(1)
        differs[1:] |= pc.not_equal(this, last).to_numpy(zero_copy_only=False)
    return np.flatnonzero(differs)


def _sums(column: pa.Array, starts: np.ndarray) -> pa.Array:
    numbers = column.fill_null(0).to_numpy()
    sums = np.add.reduceat(numbers, starts, dtype=numbers.dtype)
    there = np.add.reduceat(column.is_valid().to_numpy(zero_copy_only=False), starts, dtype=int)
    return pa.array(sums, column.type, mask=there == 0)


class AgeOffByField:
    """Config `field,millis`: removes rows whose time is older. Keeps rows with a null time.

    The field is an int64 of milliseconds since 1970, or a timestamp. For tables and queries: the
    removal of a row does not depend on other rows, and no row returns later.
    """

    def __init__(
        self,
        schema: pa.Schema,
        row_key: Sequence[str],  # noqa: ARG002
        sort_key: Sequence[str],  # noqa: ARG002
        config: str,
    ) -> None:
        self._field, self._age_ms = _age_config(config)
        self._kind = _field_type(schema, self._field)
        if not (pa.types.is_int64(self._kind) or pa.types.is_timestamp(self._kind)):
            raise ValueError(f"field {self._field!r} is {self._kind}: expected a long or timestamp")
        self._oldest = pa.scalar(None, self._kind)

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:
        """Requests the time field."""
        return (_age_config(config)[0],)

    def start_at(self, now_ms: int) -> None:
        """Sets the time from which ages are counted."""
        oldest_ms = max(now_ms - self._age_ms, -(2**63 // 1000))
        if pa.types.is_timestamp(self._kind):
            self._oldest = pa.scalar(oldest_ms * 1000, pa.timestamp("us", self._kind.tz))
        else:
            self._oldest = pa.scalar(oldest_ms, pa.int64())

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            times = batch.column(self._field)
            yield batch.filter(pc.fill_null(pc.greater(times, self._oldest), True))


def _field_type(schema: pa.Schema, name: str) -> pa.DataType:
    if name not in schema.names:
        raise ValueError(f"unknown field {name!r} (expected one of {', '.join(schema.names)})")
    return schema.field(name).type


def _age_config(config: str) -> tuple[str, int]:
    field, comma, age = config.rpartition(",")
    age = age.strip()
    if not comma or not field.strip() or not (age.isascii() and age.isdigit()):
        raise ValueError(f"config {config!r} is not field,millis")
    return field.strip(), int(age)


class LatestBySortKey:
    """Keeps the row with the largest sort key of each row key.

    Of several rows with that sort key it keeps one, which depends on their order, so keys should
    be unique. For tables and queries. It has no config, and needs a sort key.
    """

    def __init__(
        self, schema: pa.Schema, row_key: Sequence[str], sort_key: Sequence[str], config: str
    ) -> None:
        if config:
            raise ValueError(f"unexpected config {config!r} (expected none)")
        if not sort_key:
            raise ValueError("the table has no sort key (expected at least one sort key field)")
        self._row_key = row_key
        self._schema = schema

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:  # noqa: ARG004
        """Requests no value fields."""
        return ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A batch ends with a whole group, but the next batch may continue its row key.
        last: pa.RecordBatch | None = None
        for batch in batches:
            rows = batch if last is None else _joined(last, batch)
            ends = [*(group_starts(rows, self._row_key)[1:] - 1), rows.num_rows - 1]
            kept = rows.take(pa.array(ends))
            last = kept.slice(len(ends) - 1)
            if len(ends) > 1:
                yield kept.slice(0, len(ends) - 1)
        if last is not None:
            yield last


def _joined(last: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches([last, batch]).combine_chunks().to_batches()
    return joined


class RowSecurity:
    """Config `field,label,label,…`: a row passes if the config contains all of its labels.

    The field is a string of comma-separated labels, or a list of strings. A row without labels
    passes, and a row with a null does not. Labels are compared exactly. The service that queries
    for a caller passes the caller's labels, and must not let the caller choose aggregations, which
    run before the iterator. Callers that can query without the iterator see all rows.
    """

    def __init__(
        self,
        schema: pa.Schema,
        row_key: Sequence[str],  # noqa: ARG002
        sort_key: Sequence[str],  # noqa: ARG002
        config: str,
    ) -> None:
        self._field, self._held = _security_config(config)
        kind = _field_type(schema, self._field)
        is_list = pa.types.is_list(kind) and pa.types.is_string(kind.value_type)
        if not is_list and not pa.types.is_string(kind):
            raise ValueError(
                f"field {self._field!r} is {kind}: expected a string or a list of them"
            )

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:
        """Requests the label field."""
        return (_security_config(config)[0],)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(self._is_visible(batch.column(self._field)))

    def _is_visible(self, labels: pa.Array) -> pa.Array:
        if pa.types.is_string(labels.type):
            labels = pc.split_pattern(labels, ",")
        each = pc.utf8_trim_whitespace(pc.list_flatten(labels))
        rows = pc.list_parent_indices(labels)
        is_label = pc.not_equal(each, "")
        is_held = pc.is_in(each, pa.array(sorted(self._held), pa.string()))
        refused = rows.filter(pc.and_(is_label, pc.invert(is_held)))
        is_refused = pc.is_in(pa.arange(0, len(labels)), refused)
        return pc.and_(labels.is_valid(), pc.invert(is_refused))


def _security_config(config: str) -> tuple[str, frozenset[str]]:
    cells = next(csv.reader([config], skipinitialspace=True), [])
    field, *labels = [cell.strip() for cell in cells] or [""]
    if not field:
        raise ValueError(f"config {config!r} is not field,label,label,...")
    return field, frozenset(label for label in labels if label)
