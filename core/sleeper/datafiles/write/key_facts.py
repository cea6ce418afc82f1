"""Facts of a file's rows, gathered while they are written.

The state needs the number of rows and the key bounds, the sidecars a sample of the keys and
their hashes. A commit does not read the file again.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain, python_value, take_plain
from sleeper.datafiles.key_values import key_value, key_values
from sleeper.datafiles.merge.key_runs import is_ascending
from sleeper.datafiles.sidecars.key_filter import Hashes
from sleeper.datafiles.sidecars.key_filter_builder import KeyFilterBuilder
from sleeper.datafiles.sidecars.key_order import encode_row
from sleeper.datafiles.sidecars.row_hashes import hash_rows
from sleeper.datafiles.sidecars.sketches import build_sketches, sketches_to_bytes
from sleeper.errors import DataError
from sleeper.files import FILTER_SUFFIX, SKETCHES_SUFFIX
from sleeper.schema.model import Key, KeyValue, Schema, precedes
from sleeper.storage.location import DataRoot


class KeyFacts:
    """The facts of one file. Rows are added in key order."""

    def __init__(self, schema: Schema, filter_bits_per_key: int, filter_bytes_max: int) -> None:
        self._schema = schema
        self._sampler = KeySampler(schema)
        self._bounds = _KeyBounds(schema)
        self._order = _KeyOrder()
        self._filter = KeyFilterBuilder(filter_bits_per_key, filter_bytes_max)
        self.rows = 0

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Adds rows with columns by name. DataError if they are out of order."""
        if self._filter.is_useless:
            self.add_hashed(batches, ())
        else:
            self.add_hashed(batches, [hash_rows(self._schema, batches)])

    def add_hashed(self, batches: Iterable[pa.RecordBatch], hashes: Sequence[Hashes]) -> None:
        """Adds rows with known hashes of their keys."""
        filled = [batch.select(self._key_names(batch)) for batch in batches if batch.num_rows]
        if filled:
            # Many small batches take longer than their copy.
            keys = pa.concat_batches(filled)
            self._order.add(keys)
            self._sampler.add(keys)
            self._bounds.add(keys)
            if hashes:
                self._filter.add(
                    np.concatenate(hashes), lambda row: encode_row(self._schema, keys, row)
                )
            self.rows += keys.num_rows

    def _key_names(self, batch: pa.RecordBatch) -> list[str]:
        return [f.name for f in self._schema.keys if f.name in batch.schema.names]

    def bounds(self) -> tuple[Key, Key]:
        """Returns the smallest and the largest value of each row key field."""
        return self._bounds.keys()

    def write_sidecars(self, root: DataRoot, path: str) -> tuple[str, ...]:
        """Writes the sketches and the key filter. The caller syncs them. Returns their suffixes."""
        sketches = build_sketches(self._sampler.samples())
        contents: dict[str, Sequence[bytes | memoryview]] = {
            SKETCHES_SUFFIX: [sketches_to_bytes(self._schema, sketches)]
        }
        key_filter = self._filter.finish()
        if key_filter is not None:
            contents[FILTER_SUFFIX] = key_filter.parts()
        for suffix, parts in contents.items():
            with root.sink(path + suffix, syncs=False) as sink:
                for part in parts:
                    sink.write(part)
        return tuple(contents)


class _KeyOrder:
    """Checks that rows ascend by the columns of their batches, which are key fields in order.

    A file out of order would give wrong answers silently.
    """

    def __init__(self) -> None:
        self._last: list[pa.Array] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        keys = batch.columns
        first = [as_plain(key.slice(0, 1)) for key in keys]
        if self._last is not None:
            ends = zip(self._last, first, strict=True)
            if not is_ascending([pa.concat_arrays(pair) for pair in ends]):
                raise _out_of_order(self._last, first)
        if not is_ascending(keys):
            raise _out_of_order(first, [key.slice(len(key) - 1) for key in keys])
        self._last = [as_plain(key.slice(len(key) - 1)) for key in keys]


def _out_of_order(start: Sequence[pa.Array], end: Sequence[pa.Array]) -> DataError:
    low, high = ([python_value(key[0]) for key in keys] for keys in (start, end))
    return DataError(f"rows are out of order between keys {low!r} and {high!r}")


class _KeyBounds:
    """The smallest and largest value of each row key field."""

    def __init__(self, schema: Schema) -> None:
        self._names = [f.name for f in schema.row_keys]
        self._low: list[KeyValue] = []
        self._high: list[KeyValue] = []

    def add(self, batch: pa.RecordBatch) -> None:
        first, *others = self._names
        # Rows are sorted by the first field.
        column = batch.column(first)
        ends = [(key_value(column[0]), key_value(column[-1]))]
        for name in others:
            # Arrow has no min_max kernel for views.
            extremes = pc.min_max(as_plain(batch.column(name)))
            ends.append((key_value(extremes["min"]), key_value(extremes["max"])))
        if not self._low:
            self._low, self._high = [e[0] for e in ends], [e[1] for e in ends]
            return
        for index, (low, high) in enumerate(ends):
            if precedes(low, self._low[index]):
                self._low[index] = low
            if precedes(self._high[index], high):
                self._high[index] = high

    def keys(self) -> tuple[Key, Key]:
        return tuple(self._low), tuple(self._high)


# Twice the sketch's k. More samples slow down small files without better sketches.
_SAMPLES_MAX = 2048


class KeySampler:
    """A sample of every nth row key of a stream, in bounded memory.

    The stride starts at one row, so a small file is sampled completely, and doubles whenever the
    sample would exceed its maximum, so a large file is sampled evenly.
    """

    def __init__(self, schema: Schema) -> None:
        self._names = [f.name for f in schema.row_keys]
        self._kept: list[list[pa.Array]] = [[] for _ in self._names]
        self._count = 0
        self._stride = 1
        self._to_skip = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Samples the next batch. Its columns go by name."""
        while self._count + self._new_samples(batch) > _SAMPLES_MAX:
            self._thin_out()
        positions = np.arange(self._to_skip, batch.num_rows, self._stride)
        self._to_skip += len(positions) * self._stride - batch.num_rows
        if not len(positions):
            return
        for kept, name in zip(self._kept, self._names, strict=True):
            kept.append(take_plain(batch.column(name), positions))
        self._count += len(positions)

    def samples(self) -> list[list[KeyValue]]:
        """Returns the sampled values of each row key field."""
        return [[v for array in kept for v in key_values(array)] for kept in self._kept]

    def _new_samples(self, batch: pa.RecordBatch) -> int:
        rows: int = batch.num_rows
        return max(0, -(-(rows - self._to_skip) // self._stride))

    def _thin_out(self) -> None:
        if self._count:
            for index, arrays in enumerate(self._kept):
                whole = pa.concat_arrays(arrays)
                self._kept[index] = [whole.take(pa.array(np.arange(0, self._count, 2)))]
        # The next sampled row keeps the stride to the rows that were kept.
        if self._count % 2:
            self._to_skip += self._stride
        self._count = (self._count + 1) // 2
        self._stride *= 2
