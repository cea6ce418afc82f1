"""Temporary folders of the tests, in memory if there is plenty of it.

Tests of small tables wait for the disk half of their time, since each commit synchronizes files.
A folder is deleted when its test has passed (`tmp_path_retention_policy` in pyproject.toml).
"""

import os
from pathlib import Path

import psutil

VARIABLE = "PYTEST_DEBUG_TEMPROOT"
"""The environment variable with the root of pytest's temporary folders."""

_MEMORY = Path("/dev/shm")
_FREE_BYTES_MIN = 12 << 30
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def use_memory() -> None:
    """Sets the root of temporary folders, unless the variable has one or memory is short."""
    if VARIABLE not in os.environ and _has_memory():
        os.environ[VARIABLE] = str(_MEMORY)


def _has_memory() -> bool:
    try:
        place = os.statvfs(_MEMORY)
    except OSError:
        return False
    # Tests run scripts that they write.
    if place.f_flag & os.ST_NOEXEC or not os.access(_MEMORY, os.W_OK):
        return False
    free_bytes = min(place.f_bavail * place.f_frsize, psutil.virtual_memory().available)
    return min(free_bytes, _container_bytes(free_bytes)) >= _FREE_BYTES_MIN


def _container_bytes(default: int) -> int:
    """Returns the memory limit of the container, by default the given number."""
    try:
        limit = _LIMIT.read_text().strip()
    except OSError:
        return default
    return int(limit) if limit.isdigit() else default
