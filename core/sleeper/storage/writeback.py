"""Errors of the disk for files that nobody syncs, such as sorted runs.

The system writes them when it needs the memory. If the disk fails, the system drops the content, so
that a later read returns other content, and reports the error to the next program that asks.
"""

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

_WAIT_BEFORE = 1


def check_written(path: Path) -> None:
    """Raises OSError if the disk refused what the system wrote of the file. Starts no write."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _sync_file_range()(descriptor, 0, 0, _WAIT_BEFORE):
            number = ctypes.get_errno()
            if number != errno.ENOSYS:
                raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    call = ctypes.CDLL(None, use_errno=True).sync_file_range
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    result: Callable[[int, int, int, int], int] = call
    return result
