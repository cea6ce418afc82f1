"""Keeps the latest row of each row key."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sleeper.iterators.sum_by_key import group_starts


class LatestBySortKey:
    """Of each row key, the row with the largest sort key.

    Of several rows with that sort key, one: two rows with equal keys but other values give an
    answer that depends on their order, so keys should be unique. For a table and for a query.
    It takes no config, and needs a sort key.
    """

    def __init__(
        self, schema: pa.Schema, row_key: Sequence[str], sort_key: Sequence[str], config: str
    ) -> None:
        if config:
            raise ValueError(f"config {config!r}: it takes none")
        if not sort_key:
            raise ValueError("the table has no sort key: no row is later than another")
        self._row_key = row_key
        self._schema = schema

    @staticmethod
    def required_fields(config: str) -> Sequence[str]:  # noqa: ARG004
        """Requests no value fields."""
        return ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A batch ends with a whole group, but its row key may go on in the next: whether its
        # last row is the latest is known then.
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
