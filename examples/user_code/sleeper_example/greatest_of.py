"""Keeps one row of each key: the one with the greatest value of a field."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class GreatestOf:
    """Config is the field's name. Of rows that are greatest together, one is kept."""

    def __init__(
        self, schema: pa.Schema, row_key: Sequence[str], sort_key: Sequence[str], config: str
    ) -> None:
        if config not in schema.names:
            raise ValueError(f"config {config!r} is not a field of {', '.join(schema.names)}")
        self._field = config
        self._keys = [*row_key, *sort_key]

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:
        """Returns the field to compare, which is read besides the keys and the requested fields."""
        return (config,)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Rows with equal keys are adjacent within a batch: number these groups.
            is_first = np.zeros(batch.num_rows, bool)
            is_first[:1] = True
            for name in self._keys:
                key = batch.column(name)
                differs = pc.not_equal(key.slice(1), key.slice(0, len(key) - 1))
                is_first[1:] |= differs.to_numpy(zero_copy_only=False)
            group = np.cumsum(is_first)
            # Sort by group and value, nulls first, and take the last row of each group.
            by_value = pa.table({"group": group, "value": batch.column(self._field)})
            order = pc.sort_indices(
                by_value,
                sort_keys=[("group", "ascending", "at_start"), ("value", "ascending", "at_start")],
            )
            ends = np.append(np.flatnonzero(is_first)[1:] - 1, batch.num_rows - 1)
            yield batch.take(order.take(pa.array(ends)))
