"""Which process is which, and whether it is alive.

A process is named by its id and its start, because ids are used again.
"""

import functools
import os

import psutil

# The start is worked out from the time of boot, which moves when the clock is set.
_START_TOLERANCE_MS = 2000


def this_process() -> str:
    """The name of this process, such as `4711@1767225600000`."""
    return _name_of(os.getpid())


def is_alive(process: str) -> bool:
    """Whether the process of that name is running. One that only waits to be reaped is not."""
    pid, _, started_ms = process.partition("@")
    if not pid.isdigit() or not started_ms.isdigit():
        return False
    try:
        found = psutil.Process(int(pid))
        if found.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
            return False
        return abs(_started_ms(found) - int(started_ms)) <= _START_TOLERANCE_MS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


@functools.lru_cache(maxsize=4)
def _name_of(pid: int) -> str:
    return f"{pid}@{_started_ms(psutil.Process(pid))}"


def _started_ms(process: psutil.Process) -> int:
    return int(process.create_time() * 1000)
