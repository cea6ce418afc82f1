"""An iterator that adds up rows with equal keys."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class SumByKey:
    """Rows equal in row and sort key become one, each value field their sum, which wraps.

    Value fields are int32 and int64, and nulls count for nothing. For a table and for a query.
    It takes no config.
    """

    def __init__(
        self, schema: pa.Schema, row_key: Sequence[str], sort_key: Sequence[str], config: str
    ) -> None:
        if config:
            raise ValueError(f"config {config!r}: it takes none")
        self._keys = [*row_key, *sort_key]
        self._schema = schema
        for field in schema:
            if field.name not in self._keys and field.type not in (pa.int32(), pa.int64()):
                raise ValueError(f"field {field.name!r} is {field.type}: only whole numbers add up")

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
