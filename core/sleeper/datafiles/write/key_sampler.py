"""A sample of the row keys of a stream, at an even stride, in bounded memory."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.datafiles.arrow import as_plain
from sleeper.schema.model import KeyValue, Schema

# Twice the sketch's k: more would cost a small file more time than they tell.
_MOST_SAMPLES = 2048
# From here on values are picked out of a column of views one by one.
_SPARSE_STRIDE = 32


class KeySampler:
    """Takes every nth row key of the batches handed in.

    The stride starts at one row, so that a small file is sampled whole, and doubles
    whenever the sample is full, so that a big one is sampled evenly.
    """

    def __init__(self, schema: Schema) -> None:
        self._names = [f.name for f in schema.row_keys]
        self._kept: list[list[pa.Array]] = [[] for _ in self._names]
        self._count = 0
        self._stride = 1
        self._to_skip = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Samples one batch of the stream, whose columns go by name."""
        if batch.num_rows <= self._to_skip:
            self._to_skip -= batch.num_rows
            return
        places = np.arange(self._to_skip, batch.num_rows, self._stride)
        self._to_skip = int(places[-1]) + self._stride - batch.num_rows
        for kept, name in zip(self._kept, self._names, strict=True):
            kept.append(_taken(batch.column(name), places, self._stride))
        self._count += len(places)
        while self._count > _MOST_SAMPLES:
            self._thin_out()

    def samples(self) -> list[list[KeyValue]]:
        """The sampled values of each row key field."""
        return [[v for array in kept for v in array.to_pylist()] for kept in self._kept]

    def _thin_out(self) -> None:
        for index, arrays in enumerate(self._kept):
            whole = pa.concat_arrays(arrays)
            self._kept[index] = [whole.take(pa.array(np.arange(0, self._count, 2)))]
        # The next row to take must stay in step with the rows that were kept.
        if self._count % 2:
            self._to_skip += self._stride
        self._count = (self._count + 1) // 2
        self._stride *= 2


def _taken(column: pa.Array, places: npt.NDArray[np.int64], stride: int) -> pa.Array:
    """The values at these places. Arrow cannot take from views, and copying all is slow."""
    if stride < _SPARSE_STRIDE:
        return as_plain(column).take(pa.array(places))
    return as_plain(pa.concat_arrays([column.slice(place, 1) for place in places.tolist()]))
