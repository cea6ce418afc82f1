"""The children of a process, without a look at all processes of the machine."""

import contextlib
import os
from pathlib import Path

import psutil

_LISTED = Path(f"/proc/self/task/{os.getpid()}/children").exists()


def children(pid: int) -> list[psutil.Process]:
    """Returns the living children of the process; none if it has ended.

    psutil reads the parent of each process of the machine, which takes 10 ms or more. Tests that
    wait for a child look often.
    """
    with contextlib.suppress(psutil.NoSuchProcess, OSError):
        if not _LISTED:
            return psutil.Process(pid).children()
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return [found for text in lists for child in text.split() for found in _living(int(child))]
    return []


def descendants(pid: int) -> list[psutil.Process]:
    """Returns the living children of the process, their children, and so on."""
    found = children(pid)
    for process in found:
        found += children(process.pid)
    return found


def _living(pid: int) -> list[psutil.Process]:
    try:
        return [psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return []
