"""Identities of processes, and whether a process is alive.

An identity is the process id and the start, because ids are reused: `4711@8123-5f0c61a2-12`. On
Linux the start is in ticks since boot, which do not depend on the clock, followed by the boot id
and the process namespace, because each of them has its own process ids.
"""

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.errors import UnavailableError, describe_error, is_transient

if TYPE_CHECKING:
    import psutil

_PROC = Path("/proc")
_DEAD_STATES = {"Z", "X", "x"}
# Where there is no /proc, the start is a time of day, which moves when the clock is set.
_START_TOLERANCE_MS = 2000
_TERMINATED_STATUS = 128 + signal.SIGTERM
SIGTERM_SECONDS_MAX = 9.0
"""The time after SIGTERM in which a command that runs until it is interrupted ends."""


def this_process() -> str:
    """Returns the identity of this process."""
    return _name_of(os.getpid())


def is_alive(process: str) -> bool:
    """Returns whether the process runs. A zombie does not.

    A process in another namespace, for example of another container, is not visible and counts as
    alive. UnavailableError if the system call fails for a transient reason.
    """
    pid, _, started = process.partition("@")
    start, _, location = started.partition("-")
    if not pid.isdigit() or not start.isdigit():
        return False
    here = _place()
    if here is None:
        return _is_alive_by_time(int(pid), int(start))
    if location != here:
        return location.partition("-")[0] == here.partition("-")[0]
    return _start_ticks(int(pid)) == int(start)


@functools.lru_cache(maxsize=4)
def _name_of(pid: int) -> str:
    location, ticks = _place(), _start_ticks(pid)
    if location is None or ticks is None:
        import psutil

        return f"{pid}@{_started_ms(psutil.Process(pid))}"
    return f"{pid}@{ticks}-{location}"


def _place() -> str | None:
    """Returns the boot id and the process namespace, None on systems without /proc."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        return f"{boot[:8]}-{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError as error:
        _raise_if_transient(error)
        return None


def _start_ticks(pid: int) -> int | None:
    """Returns the start of the process, None if it has ended or is a zombie."""
    try:
        # The program's name, in brackets, may contain any character.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError as error:
        _raise_if_transient(error)
        return None
    return None if fields[0] in _DEAD_STATES else int(fields[19])


def _raise_if_transient(error: OSError) -> None:
    """Raises UnavailableError for a transient error, after which the process may be alive."""
    if is_transient(error):
        raise UnavailableError(f"cannot read {error.filename}: {describe_error(error)}") from error


def _is_alive_by_time(pid: int, started_ms: int) -> bool:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
            return False
        return abs(_started_ms(process) - started_ms) <= _START_TOLERANCE_MS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _started_ms(process: "psutil.Process") -> int:
    return int(process.create_time() * 1000)


@contextmanager
def interrupted_by_sigterm(seconds_max: float | None = None) -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt in the block, which stops its worker processes.

    With `seconds_max`, the process ends at the latest so many seconds after the signal, also after
    the block: code may lose the exception, and native code or a thread may not end.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if seconds_max is None:
            yield
        else:
            with watched_sigterm(seconds_max, _end_process):
                yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_process_after(seconds: float) -> None:
    """Ends the process after so many seconds, whatever it does."""
    timer = threading.Timer(seconds, _end_process)
    timer.daemon = True
    timer.start()


def _end_process() -> None:
    os._exit(_TERMINATED_STATUS)


@contextmanager
def watched_sigterm(seconds: float, on_timeout: Callable[[], None]) -> Iterator[threading.Event]:
    """Calls `on_timeout` so many seconds after a SIGTERM in the block, unless the event was set.

    Another thread calls it. The block is in the main thread, which has a handler of the signal.
    """
    ended = threading.Event()
    signals, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    # Python runs signal handlers between bytecodes of the main thread, so native code delays
    # them. The wakeup descriptor is written at once.
    arguments = (signals, seconds, ended, on_timeout)
    threading.Thread(target=_watch_signals, args=arguments, daemon=True).start()
    before = signal.set_wakeup_fd(wakeup)
    try:
        yield ended
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeup)


def _watch_signals(
    signals: int, seconds: float, ended: threading.Event, on_timeout: Callable[[], None]
) -> None:
    with os.fdopen(signals, "rb", buffering=0) as received:
        while number := received.read(1):
            if signal.SIGTERM in number:
                if not ended.wait(seconds):
                    on_timeout()
                return
