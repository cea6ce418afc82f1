"""What differs between machines, and is the same in every history.

A history may not depend on the number of cores, the host, the free space of a disk, the environment
or the time zone. Nor on its folder, because paths are hashed into names and order listings: on
Linux, each process of the system mounts a file system of its own in memory, at the same path. Where
that is not allowed, the folder is named by the process, and few histories may differ.
"""

import contextlib
import ctypes
import gc
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_OWN = Path("/tmp/sleeper-simulation")
_MEMORY = Path("/dev/shm")
_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_RECURSIVE_PRIVATE = 0x4000 | 0x40000
_BLOCK_BYTES = 4096
_FREE_BLOCKS = (1 << 40) // _BLOCK_BYTES
_CORES = 2
_HOST = "machine"
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHASHSEED", "TMPDIR", "TERM", "COLUMNS", "NO_COLOR")
_VARIABLES = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}


class _Folder:
    """Whether this process of the system has mounted its own folder."""

    is_own = False


def own_folder() -> None:
    """Gives this process of the system a folder of its own, if it may have one."""
    if sys.platform != "linux":
        return
    user, group = os.getuid(), os.getgid()
    system = ctypes.CDLL(None)
    with contextlib.suppress(OSError):
        _OWN.mkdir(exist_ok=True)
        if system.unshare(_NEW_MOUNTS) != 0:
            if system.unshare(_NEW_MOUNTS | _NEW_USER) != 0:
                return
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        if system.mount(b"none", b"/", None, _RECURSIVE_PRIVATE, None) == 0:
            _Folder.is_own = system.mount(b"tmpfs", bytes(_OWN), b"tmpfs", 0, None) == 0


def folder_of(process_id: int) -> Path:
    """Returns the folder of the history that a process of the system runs."""
    if _Folder.is_own:
        return _OWN / "history"
    parent = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
    return parent / f"sleeper-simulation-{process_id}"


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
