"""What else the machine does, which must be nothing while published figures are measured."""

import os
import time
from collections.abc import Callable
from pathlib import Path

BUSY_MAX = 0.5
"""Processors that may be busy, and the load average that there may be, before a benchmark."""
_SAMPLE_SECONDS = 3.0
_WAIT_SECONDS_MAX = 600.0


class BusyMachineError(Exception):
    """Other programs use the processors, so that figures would have no meaning."""


def wait_until_idle() -> float:
    """Waits until the machine is idle and returns its load average.

    BusyMachineError if it is not for ten minutes.
    """
    return _wait_below(lambda: os.getloadavg()[0], "load average")


def wait_until_unused() -> float:
    """Waits until no other program uses the processors; returns how many are busy.

    Unlike the load average, this does not remember what ran a minute ago. BusyMachineError if
    they are used for ten minutes.
    """
    return _wait_below(count_busy, "number of busy processors")


def _wait_below(measure: Callable[[], float], name: str) -> float:
    until = time.monotonic() + _WAIT_SECONDS_MAX
    while (found := measure()) > BUSY_MAX:
        if time.monotonic() > until:
            raise BusyMachineError(
                f"the {name} is {found:.2f} and stays above {BUSY_MAX}; stop other programs"
            )
        time.sleep(_SAMPLE_SECONDS)
    return found


def count_busy(seconds: float = _SAMPLE_SECONDS) -> float:
    """Returns how many processors are busy on average over a time in which this one sleeps."""
    busy, total = _ticks()
    time.sleep(seconds)
    busy_after, total_after = _ticks()
    share = (busy_after - busy) / max(total_after - total, 1)
    return share * (os.cpu_count() or 1)


def _ticks() -> tuple[int, int]:
    """Returns the ticks in which processors were busy, and all ticks."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()
    # User, nice, system, idle, waiting for a disk, interrupts, and time taken by other machines.
    ticks = [int(word) for word in words[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
