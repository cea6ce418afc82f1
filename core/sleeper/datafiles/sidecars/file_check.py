"""Verifies the bytes of data files before their rows are used: no engine does.

A file is held against its `.checksum`. If that is missing or damaged, the file is decoded once
and the checksums of its pages are verified, which covers neither headers nor the footer, and
nothing but the encoding in files of the engine's writer.
"""

import logging
from itertools import zip_longest

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.sidecars.checksum import (
    FileChecksum,
    checksum_from_bytes,
    checksum_in_sections,
    digest_of,
)
from sleeper.errors import (
    DataError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
    is_transient,
)
from sleeper.files.data_file import CHECKSUM_SUFFIX
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

_BATCH_ROWS = 16_384
_READ_BYTES = 1024**2
# Of an object each read is one request.
_OBJECT_READ_BYTES = 16 * 1024**2
_NAMES_BYTES_MAX = 16 * 1024**2


def read_checksum(root: DataRoot, path: str) -> FileChecksum | None:
    """The data file's checksum; None if it has none, or a damaged one, which is logged."""
    try:
        return checksum_from_bytes(root.read(path + CHECKSUM_SUFFIX), path + CHECKSUM_SUFFIX)
    except (NotFoundError, DataError) as error:
        logger.warning("only checksums of pages are verified: %s", error)
        return None


def verify_end(root: DataRoot, path: str) -> None:
    """Reads what is after the row groups. DataError if it is damaged.

    Arrow ends the process over some damaged footers, so whoever is about to look at one's
    statistics calls this.
    """
    checksum = read_checksum(root, path)
    if checksum is None or not checksum.has_sections:
        return
    last = checksum.sections[-1]
    with root.open(path) as content:
        is_whole = content.size() == last.end
        content.seek(last.start if is_whole else 0)
        if not is_whole or digest_of(content.read()) != last.digest:
            raise damaged_bytes(path, last.start, last.end)


def damaged_bytes(path: str, start: int, end: int | None) -> DataError:
    """The error of a data file some of whose bytes are not those that were written."""
    return DataError(f"data file {path} is damaged: {_of_bytes(start, end)}")


def _of_bytes(start: int, end: int | None) -> str:
    return f"bytes {start} to {'its end' if end is None else end} do not match their checksum"


def verify_bytes(root: DataRoot, path: str) -> None:
    """Reads all of the data file. DataError if it is damaged, StateMovedOnError if it is gone."""
    damage = damage_of_bytes(root, path)
    if damage is not None:
        raise damage


def damage_of_bytes(root: DataRoot, path: str) -> DataError | None:
    """The error that names the file, None if it is whole; StateMovedOnError if it is gone."""
    fault = fault_of_bytes(root, path)
    return None if fault is None else DataError(f"data file {path} is damaged: {fault}")


def fault_of_bytes(root: DataRoot, path: str) -> str | None:
    """What is wrong with the bytes of the data file; StateMovedOnError if it is gone."""
    checksum = read_checksum(root, path)
    try:
        with root.open(path) as content:
            if checksum is None:
                return _fault_of_pages(content)
            size = _OBJECT_READ_BYTES if root.buckets else _READ_BYTES
            ends = [s.end for s in checksum.sections if s.end is not None]
            parts = iter(lambda: content.read(size), b"")
            return _difference(checksum, checksum_in_sections(parts, ends))
    except FileNotFoundError as error:
        raise StateMovedOnError(f"a data file is gone: {root.url_of(path)}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read {path}: {error}") from error


def _difference(wanted: FileChecksum, found: FileChecksum) -> str | None:
    for want, have in zip_longest(wanted.sections, found.sections):
        if want is None:
            return f"it has more than {have.start} bytes"
        if have is None or have.digest != want.digest:
            return _of_bytes(want.start, want.end)
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
    """Verifies data files once in a process, which pays for a file that is read repeatedly.

    Damage that comes later goes unnoticed. Safe for threads.
    """

    def __init__(self) -> None:
        self._names = BoundedCache[str](_NAMES_BYTES_MAX, len)

    def verify(self, root: DataRoot, path: str) -> None:
        """DataError if the file is damaged, StateMovedOnError if it is gone."""
        self._names.get(root.url_of(path), lambda: _verified(root, path))


def _verified(root: DataRoot, path: str) -> str:
    verify_bytes(root, path)
    return path
