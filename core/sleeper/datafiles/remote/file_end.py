"""The end of a data file on S3: its page index and footer, which locate its rows."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.engine.parquet_footer import (
    MAGIC,
    TAIL_BYTES,
    FooterParts,
    footer_length,
    split_footer,
)
from sleeper.datafiles.key_values import key_statistics
from sleeper.datafiles.sidecars.checksum import Section, compute_digest, damage_error, read_checksum
from sleeper.errors import DataError, NotFoundError, StateMovedOnError, classify_error
from sleeper.files import DataFile
from sleeper.partitions.region import Region
from sleeper.schema.model import KeyValue, Schema
from sleeper.storage.bucket_folder import store_errors
from sleeper.storage.location import DataRoot

# The first request reads this share of a file, about the size of its footer and page index.
_END_SHARE = 256
_END_BYTES_MIN = 64 * 1024
_END_BYTES_MAX = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The smallest and largest value of a field in each row group, None if unknown."""

    low: tuple[Any, ...] | None
    high: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The footer and page index of a file, and the byte range and row count of each row group.

    `digests` are the checksums of the row groups, None if they are not verified.
    """

    footer: FooterParts
    places: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    fields: tuple[_Bounds, ...]
    index: bytes
    index_at: int
    size: int
    digests: tuple[str, ...] | None = None

    @property
    def kept_bytes(self) -> int:
        """The estimated size in memory."""
        groups = sum(map(len, self.footer.row_groups))
        per_group = 200 + 150 * len(self.fields) + (100 if self.digests else 0)
        return groups + len(self.index) + len(self.places) * per_group

    def bytes_of(self, groups: Iterable[int]) -> int:
        """Returns the bytes of these row groups in the file."""
        return sum(end - start for start, end in (self.places[i] for i in groups))


def read_file_end(root: DataRoot, schema: Schema, file: DataFile, verify: bool = False) -> FileEnd:
    """Reads a file's end, in one request for most files.

    `verify` checks it against the file's checksum, in another request, and adds the digests of
    the row groups if the checksum has them. StateMovedOnError if the file is gone, DataError if
    it is torn or damaged.
    """
    guess = min(max(file.bytes // _END_SHARE, _END_BYTES_MIN), _END_BYTES_MAX)
    checksum = read_checksum(root, file.path) if verify else None
    if checksum is not None and not checksum.has_sections:
        checksum = None
    start = max(file.bytes - guess, 0)
    if checksum is not None:
        start = min(start, checksum.sections[-1].start)
    tail = _bytes_of(root, file.path, start, file.bytes)
    if checksum is not None:
        # First, because Arrow aborts the process for some damaged footers.
        _verify_end(file, checksum.sections[-1], tail, start)
    try:
        length = footer_length(tail) + TAIL_BYTES
        if length > file.bytes:
            raise ValueError("its footer is longer than the file")
        if length > len(tail):
            tail = _bytes_of(root, file.path, file.bytes - length, start) + tail
            start = file.bytes - length
        footer = tail[-length:]
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer))
        positions = tuple(_place(metadata.row_group(i)) for i in range(metadata.num_row_groups))
        index_at = max((end for _, end in positions), default=len(MAGIC))
        if index_at < start:
            tail = _bytes_of(root, file.path, index_at, start) + tail
            start = index_at
        return FileEnd(
            footer=split_footer(footer[:-TAIL_BYTES]),
            places=positions,
            rows=tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)),
            fields=tuple(_bounds(metadata, i) for i in range(len(schema.row_keys))),
            index=tail[index_at - start : file.bytes - length - start],
            index_at=index_at,
            size=file.bytes - length,
            digests=None if checksum is None else tuple(map(checksum.digest_at, positions)),
        )
    except (ValueError, IndexError, OverflowError, pa.ArrowException, OSError) as error:
        raise classify_error(
            error, f"data file {file.path} cannot be read: {error}", DataError
        ) from error


def _verify_end(file: DataFile, section: Section, tail: bytes, start: int) -> None:
    end = tail[section.start - start :]
    if section.end != file.bytes or section.digest != compute_digest(end):
        raise damage_error(file.path, section.start, section.end)


def section_ends(metadata: pq.FileMetaData) -> list[int]:
    """Returns the end offsets of a checksum's sections before the last: magic and row groups."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return [len(MAGIC), *(_place(group)[1] for group in groups)]


def _place(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """Returns the start and end offset of a row group."""
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = [c.dictionary_page_offset or c.data_page_offset for c in columns]
    ends = [s + c.total_compressed_size for s, c in zip(starts, columns, strict=True)]
    return min(starts), max(ends)


def _bounds(metadata: pq.FileMetaData, field: int) -> _Bounds:
    # The row key fields are a file's first columns.
    statistics = [
        metadata.row_group(i).column(field).statistics for i in range(metadata.num_row_groups)
    ]
    bounds = [None if s is None else key_statistics(s) for s in statistics]
    pairs = [each for each in bounds if each is not None]
    if len(pairs) < len(bounds):
        return _Bounds(None, None)
    return _Bounds(tuple(low for low, _ in pairs), tuple(high for _, high in pairs))


def select_row_groups(end: FileEnd, regions: Sequence[Region]) -> list[int]:
    """Returns the row groups that may hold rows of the regions, ascending."""
    selected: set[int] = set()
    for region in regions:
        selected.update(i for i in _by_first_field(end, region) if _may_hold(end, i, region))
    return sorted(selected)


def _by_first_field(end: FileEnd, region: Region) -> range:
    """Returns the row groups that overlap the first range: a run, because rows are sorted."""
    first, within = end.fields[0], region.ranges[0]
    if first.low is None or first.high is None:
        return range(len(end.places))
    stop = len(first.low) if within.max is None else bisect_left(first.low, within.max)
    return range(bisect_left(first.high, within.min), stop)


def _may_hold(end: FileEnd, group: int, region: Region) -> bool:
    for bounds, within in zip(end.fields[1:], region.ranges[1:], strict=True):
        if bounds.low is None or bounds.high is None:
            continue
        low: KeyValue = bounds.low[group]
        if not within.overlaps_values(low, bounds.high[group]):
            return False
    return True


def _bytes_of(root: DataRoot, path: str, start: int, end: int) -> bytes:
    return bytes(read_range(root, path, start, end)) if start < end else b""


def read_range(root: DataRoot, path: str, start: int, end: int) -> obstore.Bytes:
    """Reads bytes of a data file in one request."""
    try:
        with store_errors(path):
            content = obstore.get_range(root.store, path, start=start, end=end)
    except NotFoundError as error:
        raise StateMovedOnError(f"a data file is missing: {root.url_of(path)}") from error
    if len(content) != end - start:
        raise DataError(f"data file {path} has fewer than {end} bytes")
    return content
