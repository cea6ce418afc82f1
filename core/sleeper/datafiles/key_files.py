"""Key files: the row keys of a delete, sorted, each once.

A key file is written like a data file that has only the row key fields, with small row groups. A
reader takes the row groups near a few rows, verifies them against the file's checksum, and keeps
them in a cache of limited size.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.engine.parquet_footer import MAGIC
from sleeper.datafiles.key_values import as_key_column
from sleeper.datafiles.merge.key_sets import KeyRun, SortedKeys
from sleeper.datafiles.remote.file_end import (
    FileEnd,
    read_file_end,
    read_range,
    select_row_groups,
)
from sleeper.datafiles.sidecars.checksum import compute_digest, damage_error
from sleeper.errors import DataError, classify_error
from sleeper.files import DataFile, KeyFile
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Key, Schema, next_key_value, smallest_key_value
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot
from sleeper.storage.range_file import RangeFile

# Adjacent row groups that one request reads, if the one before was read last.
_GROUPS_AHEAD = 8


@lru_cache(maxsize=64)
def keys_schema(schema: Schema) -> Schema:
    """Returns the schema with only the row key fields."""
    return replace(schema, sort_keys=(), values=(), latest=None)


class KeyFileCache:
    """A cache of the footers and row groups of key files, of limited size. Safe for threads."""

    def __init__(self, bytes_max: int) -> None:
        self._kept = BoundedCache[FileEnd | SortedKeys](bytes_max, lambda each: each.kept_bytes)

    @property
    def bytes(self) -> int:
        """The size of the cached footers and row groups."""
        return self._kept.bytes

    def open(self, root: DataRoot, schema: Schema, file: KeyFile) -> "KeyFileReader":
        """Opens a key file of a table. StateMovedOnError if it is gone, DataError if damaged."""
        keys = keys_schema(schema)
        name = root.url_of(file.path)
        whole = DataFile(file.path, file.keys, file.bytes, (), ())
        end = self._kept.get(name, lambda: read_file_end(root, keys, whole, verify=True))
        assert isinstance(end, FileEnd)
        return KeyFileReader(root, keys, file.path, end, self._kept)


@dataclass(slots=True)
class KeyFileReader:
    """Reads the keys near some rows. Safe for threads."""

    root: DataRoot
    schema: Schema
    path: str
    end: FileEnd
    _kept: BoundedCache[FileEnd | SortedKeys]
    _last: int = -2
    _ahead: dict[int, bytes] | None = None

    def near(self, low: Key, high: Key) -> Iterator[KeyRun]:
        """Yields the row groups that may have keys from `low` to `high`, ascending."""
        end = self.end
        lows, highs = end.fields[0].low, end.fields[0].high
        for group in select_row_groups(end, [_bounding_region(self.schema, low, high)]):
            yield KeyRun(
                None if lows is None else lows[group],
                None if highs is None else highs[group],
                partial(self.read_group, group),
            )

    def read_group(self, group: int) -> SortedKeys:
        """Returns the keys of a row group."""
        name = f"{self.root.url_of(self.path)}#{group}"
        keys = self._kept.get(name, lambda: self._load(group))
        assert isinstance(keys, SortedKeys)
        return keys

    def _load(self, group: int) -> SortedKeys:
        end = self.end
        ahead = self._ahead or {}
        content = ahead.pop(group, None)
        if content is None:
            last = group + _GROUPS_AHEAD if group == self._last + 1 else group + 1
            groups = range(group, min(last, len(end.places)))
            start, stop = end.places[group][0], end.places[groups[-1]][1]
            read = memoryview(read_range(self.root, self.path, start, stop))
            parts = {
                i: bytes(read[end.places[i][0] - start : end.places[i][1] - start]) for i in groups
            }
            content, self._ahead = parts.pop(group), parts
        self._last = group
        return self._decode(end, group, content)

    def _decode(self, end: FileEnd, group: int, content: bytes) -> SortedKeys:
        start, stop = end.places[group]
        if end.digests is not None and compute_digest(content) != end.digests[group]:
            raise damage_error(self.path, start, stop)
        footer = end.footer.with_row_groups([group], end.rows[group])
        source = _Pieces(((0, MAGIC), (start, content), (end.size, footer)))
        try:
            with pq.ParquetFile(pa.PythonFile(source, mode="r")) as parquet:
                keys = parquet.read(use_threads=False).combine_chunks()
        except (pa.ArrowException, OSError, ValueError) as error:
            text = f"key file {self.path} cannot be read: {error}"
            raise classify_error(error, text, DataError) from error
        names = [field.name for field in self.schema.row_keys]
        whole = (as_plain(keys.column(name).combine_chunks()) for name in names)
        return SortedKeys(tuple(map(as_key_column, whole)))


def _bounding_region(schema: Schema, low: Key, high: Key) -> Region:
    """Returns a region of the keys from `low` to `high`, in key order or by the bounds of fields.

    It is divided by the fields up to the first one that differs.
    """
    ranges: list[Range] = []
    differs = False
    for field, smallest, largest in zip(schema.row_keys, low, high, strict=True):
        if differs:
            ranges.append(Range(smallest_key_value(field), None))
        else:
            ranges.append(Range(smallest, next_key_value(field, largest)))
            differs = smallest != largest
    return Region(tuple(ranges))


class _Pieces(RangeFile):
    """A read-only file of which only some ranges of bytes are known."""

    def __init__(self, pieces: tuple[tuple[int, bytes], ...]) -> None:
        super().__init__(pieces[-1][0] + len(pieces[-1][1]))
        self._pieces = pieces

    def read_range(self, start: int, stop: int) -> bytes:
        content = bytearray(stop - start)
        for at, piece in self._pieces:
            low, high = max(at, start), min(at + len(piece), stop)
            if low < high:
                content[low - start : high - start] = piece[low - at : high - at]
        return bytes(content)
