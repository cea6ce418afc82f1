"""What differs between machines, and is the same in every history.

A history may not depend on the folder of temporary files, the number of cores, the host, the free
space of a disk, the environment or the time zone. Files of a history are in a folder that belongs
to the process of the system that runs it, in memory where there is a file system in memory.
"""

import gc
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "SIMULATION_FOLDER"
"""The environment variable of a folder for files of histories, on a file system in memory."""

_MEMORY = Path("/dev/shm")
_BLOCK_BYTES = 4096
_FREE_BLOCKS = (1 << 40) // _BLOCK_BYTES
_CORES = 2
_HOST = "machine"
_KEPT_VARIABLES = (
    *("PATH", "PYTHONPATH", "PYTHONHASHSEED", "TMPDIR", "TERM", "COLUMNS", "NO_COLOR"),
    FOLDER_VARIABLE,
)
_VARIABLES = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}


def folder_of(process_id: int) -> Path:
    """Returns the folder of the history that a process of the system runs."""
    usual = _MEMORY if _MEMORY.is_dir() else tempfile.gettempdir()
    return Path(os.environ.get(FOLDER_VARIABLE, usual)) / f"sleeper-simulation-{process_id}"


def remove_folder(process_id: int) -> None:
    """Removes the folder of a process of the system."""
    shutil.rmtree(folder_of(process_id), ignore_errors=True)


def make_alike() -> None:
    """Makes the machine look the same to this process of the system as to any other."""
    gc.disable()
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    os.environ.clear()
    os.environ.update({**kept, **_VARIABLES})
    time.tzset()
    os.cpu_count = lambda: _CORES
    socket.gethostname = lambda: _HOST
    system: Any = os
    system.statvfs = _with_free_space(os.statvfs)


def _with_free_space(real: Any) -> Any:
    """Returns an `os.statvfs` by which every disk has the same free space."""
    blocks = (_BLOCK_BYTES, _BLOCK_BYTES, 2 * _FREE_BLOCKS, _FREE_BLOCKS, _FREE_BLOCKS)
    return lambda path: os.statvfs_result((*blocks, *tuple(real(path))[5:]))
