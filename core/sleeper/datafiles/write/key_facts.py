"""What is gathered of a file's rows while they are written: their number, bounds and keys.

The state wants to know rows and key bounds; the sidecars are made of a sample of the keys
and of their hashes. Nothing is read again to commit a file.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.merge.key_runs import is_ascending
from sleeper.datafiles.sidecars.key_filter import KeyFilterBuilder
from sleeper.datafiles.sidecars.key_hash import Hashes, hashes_of_rows
from sleeper.datafiles.sidecars.sketches import sketches_of, sketches_to_bytes
from sleeper.datafiles.write.key_sampler import KeySampler
from sleeper.errors import DataError
from sleeper.files.data_file import FILTER_SUFFIX, SKETCHES_SUFFIX
from sleeper.schema.model import Key, KeyValue, Schema, precedes
from sleeper.storage.location import DataRoot


class KeyFacts:
    """Facts of one file, whose rows are handed in as they are written, in key order."""

    def __init__(self, schema: Schema, filter_bits_per_key: int, filter_bytes_max: int) -> None:
        self._schema = schema
        self._sampler = KeySampler(schema)
        self._bounds = _KeyBounds(schema)
        self._order = _KeyOrder(schema)
        self._filter = KeyFilterBuilder(filter_bits_per_key, filter_bytes_max)
        self.rows = 0

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Takes the next rows; their columns go by name. DataError if they are out of order."""
        if self._filter.is_useless:
            self.add_hashed(batches, ())
        else:
            self.add_hashed(batches, [hashes_of_rows(self._schema, batches)])

    def add_hashed(self, batches: Iterable[pa.RecordBatch], hashes: Sequence[Hashes]) -> None:
        """The same where the hashes of the rows' keys are known already."""
        if hashes:
            self._filter.add(np.concatenate(hashes))
        for batch in batches:
            if batch.num_rows:
                self._order.add(batch)
                self._sampler.add(batch)
                self._bounds.add(batch)
                self.rows += batch.num_rows

    def bounds(self) -> tuple[Key, Key]:
        """The smallest and the largest value of each row key field."""
        return self._bounds.keys()

    def write_sidecars(self, root: DataRoot, path: str) -> tuple[str, ...]:
        """The suffixes of those that were written beside the file."""
        sketches = sketches_of(self._sampler.samples())
        contents = {SKETCHES_SUFFIX: sketches_to_bytes(self._schema, sketches)}
        key_filter = self._filter.finish()
        if key_filter is not None:
            contents[FILTER_SUFFIX] = key_filter.to_bytes()
        for suffix, content in contents.items():
            with root.sink(path + suffix) as sink:
                sink.write(content)
        return tuple(contents)


class _KeyOrder:
    """Checks that rows ascend by those of the key fields that their batches have."""

    def __init__(self, schema: Schema) -> None:
        self._names = [f.name for f in schema.keys]
        self._last: list[pa.Array] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows, at least one. A file out of order would give wrong answers silently."""
        keys = [batch.column(name) for name in self._names if name in batch.schema.names]
        first = [as_plain(key.slice(0, 1)) for key in keys]
        if self._last is not None:
            ends = zip(self._last, first, strict=True)
            if not is_ascending([pa.concat_arrays(pair) for pair in ends]):
                raise _out_of_order(self._last, first)
        if not is_ascending(keys):
            raise _out_of_order(first, [key.slice(len(key) - 1) for key in keys])
        self._last = [as_plain(key.slice(len(key) - 1)) for key in keys]


def _out_of_order(start: Sequence[pa.Array], end: Sequence[pa.Array]) -> DataError:
    low, high = ([key[0].as_py() for key in keys] for keys in (start, end))
    return DataError(f"rows are out of order between keys {low!r} and {high!r}")


class _KeyBounds:
    """The smallest and largest value of each row key field."""

    def __init__(self, schema: Schema) -> None:
        self._names = [f.name for f in schema.row_keys]
        self._low: list[KeyValue] = []
        self._high: list[KeyValue] = []

    def add(self, batch: pa.RecordBatch) -> None:
        first, *others = self._names
        # The stream is sorted by the first field, so its ends are at the ends.
        column = batch.column(first)
        ends = [(column[0].as_py(), column[-1].as_py())]
        for name in others:
            # Arrow has no kernel for views.
            found = pc.min_max(as_plain(batch.column(name)))
            ends.append((found["min"].as_py(), found["max"].as_py()))
        if not self._low:
            self._low, self._high = [e[0] for e in ends], [e[1] for e in ends]
            return
        for place, (low, high) in enumerate(ends):
            if precedes(low, self._low[place]):
                self._low[place] = low
            if precedes(self._high[place], high):
                self._high[place] = high

    def keys(self) -> tuple[Key, Key]:
        return tuple(self._low), tuple(self._high)
