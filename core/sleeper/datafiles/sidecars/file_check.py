"""Verification of the bytes of data files, which DataFusion does not do.

A file is checked against its `.checksum`. If that is missing or damaged, the file is decoded and
the checksums of its pages are verified. This covers neither headers nor the footer, and only the
encoding in files of DataFusion's writer.
"""

import logging
from itertools import zip_longest

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.sidecars.checksum import (
    FileChecksum,
    checksum_from_bytes,
    checksum_in_sections,
    compute_digest,
)
from sleeper.errors import (
    DataError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
    is_transient,
)
from sleeper.files import CHECKSUM_SUFFIX
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

_BATCH_ROWS = 16_384
_READ_BYTES = 1024**2
# Each read of an object is one request.
_OBJECT_READ_BYTES = 16 * 1024**2
_NAMES_BYTES_MAX = 16 * 1024**2


def read_checksum(root: DataRoot, path: str) -> FileChecksum | None:
    """Returns the data file's checksum, None if it is missing or damaged."""
    try:
        return checksum_from_bytes(root.read(path + CHECKSUM_SUFFIX), path + CHECKSUM_SUFFIX)
    except (NotFoundError, DataError) as error:
        logger.warning("only checksums of pages are verified: %s", error)
        return None


def verify_end(root: DataRoot, path: str) -> None:
    """Verifies a file's page index and footer. DataError if they are damaged.

    Call this before reading statistics, because Arrow aborts the process for some damaged
    footers.
    """
    checksum = read_checksum(root, path)
    if checksum is None or not checksum.has_sections:
        return
    last = checksum.sections[-1]
    with root.open(path) as content:
        is_whole = content.size() == last.end
        content.seek(last.start if is_whole else 0)
        if not is_whole or compute_digest(content.read()) != last.digest:
            raise damage_error(path, last.start, last.end)


def damage_error(path: str, start: int, end: int | None) -> DataError:
    """Returns the error of a data file with changed bytes."""
    return DataError(f"data file {path} is damaged: {_describe_bytes(start, end)}")


def _describe_bytes(start: int, end: int | None) -> str:
    return f"bytes {start} to {'its end' if end is None else end} do not match their checksum"


def verify_bytes(root: DataRoot, path: str) -> None:
    """Reads and verifies a data file. DataError if it is damaged, StateMovedOnError if gone."""
    damage = check_bytes(root, path)
    if damage is not None:
        raise damage


def check_bytes(root: DataRoot, path: str) -> DataError | None:
    """Returns the error of a damaged file, None for a whole one. StateMovedOnError if gone."""
    fault = find_fault(root, path)
    return None if fault is None else DataError(f"data file {path} is damaged: {fault}")


def find_fault(root: DataRoot, path: str) -> str | None:
    """Returns the fault of a file's bytes, None for a whole one. StateMovedOnError if gone."""
    checksum = read_checksum(root, path)
    try:
        with root.open(path) as content:
            if checksum is None:
                return _fault_of_pages(content)
            size = _OBJECT_READ_BYTES if root.buckets else _READ_BYTES
            ends = [s.end for s in checksum.sections if s.end is not None]
            parts = iter(lambda: content.read(size), b"")
            return _compare(checksum, checksum_in_sections(parts, ends))
    except FileNotFoundError as error:
        raise StateMovedOnError(f"a data file is gone: {root.url_of(path)}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error}") from error


def _compare(expected: FileChecksum, actual: FileChecksum) -> str | None:
    for section, read in zip_longest(expected.sections, actual.sections):
        if section is None:
            return f"it has more than {read.start} bytes"
        if read is None or read.digest != section.digest:
            return _describe_bytes(section.start, section.end)
    return None


def _fault_of_pages(content: pa.NativeFile) -> str | None:
    try:
        with pq.ParquetFile(content, page_checksum_verification=True, pre_buffer=False) as parquet:
            for _ in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
                pass
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if is_transient(error):
            raise UnavailableError(f"cannot read a data file: {error}") from error
        return f"it cannot be read: {error}"
    return None


class VerifiedFiles:
    """Verifies each data file once per process. Does not detect later damage. Safe for threads."""

    def __init__(self) -> None:
        self._names = BoundedCache[str](_NAMES_BYTES_MAX, len)

    def verify(self, root: DataRoot, path: str) -> None:
        """Raises DataError if the file is damaged, StateMovedOnError if it is gone."""
        self._names.get(root.url_of(path), lambda: _verified(root, path))


def _verified(root: DataRoot, path: str) -> str:
    verify_bytes(root, path)
    return path
