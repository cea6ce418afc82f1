"""The lock that the writing processes of one file take in turn."""

import os
import threading
from pathlib import Path

from sleeper.errors import UnavailableError
from sleeper.storage.disk import open_lock, try_lock, unlock, wait_for_lock

LOCK_SECONDS_MAX = 60.0
"""The longest wait for another process. A stopped process keeps the lock, a dead one does not."""


class WriteLock:
    """An exclusive lock on a file between processes. Threads of one process share its holder.

    The kernel queues processes and releases the lock of a dead one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Returns whether the lock was free, and takes it."""
        try:
            return try_lock(self._open())
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error}") from error

    def acquire(self) -> None:
        """Takes the lock. UnavailableError if another process keeps it for LOCK_SECONDS_MAX."""
        if self.try_acquire():
            return
        # The kernel has no wait with a timeout, so a thread waits. One that waits in vain owns
        # the descriptor, and closing it releases the lock.
        waiter = _Waiter(self._open())
        try:
            waiter.start()
            waiter.join(LOCK_SECONDS_MAX)
        except BaseException:
            # An interrupt of the wait must not leave the lock to the thread.
            if self._abandon(waiter):
                self.release()
            raise
        if not self._abandon(waiter):
            raise locked_too_long(self.path)
        if waiter.error is not None:
            raise UnavailableError(f"{self.path}: {waiter.error}") from waiter.error

    def release(self) -> None:
        unlock(self._open())

    def close(self) -> None:
        """Releases the lock and closes the file. A later use opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _abandon(self, waiter: "_Waiter") -> bool:
        """Returns whether the wait is over. Else the waiter owns the descriptor from now on."""
        if not waiter.abandon():
            return True
        self._descriptor = None
        return False

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = open_lock(self.path)
        return self._descriptor


def locked_too_long(path: Path) -> UnavailableError:
    """Returns the error of a wait that was too long."""
    return UnavailableError(
        f"{path} is locked by another process for more than {LOCK_SECONDS_MAX:.0f} s (expected: "
        "much less than a second; is the process stopped, or does it purge the table?)"
    )


class _Waiter(threading.Thread):
    """A thread that waits for a lock until it has it or is abandoned."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(name="write-lock", daemon=True)
        self.error: OSError | None = None
        self._descriptor = descriptor
        self._deciding = threading.Lock()
        self._is_over = False
        self._is_abandoned = False

    def run(self) -> None:
        try:
            wait_for_lock(self._descriptor)
        except OSError as error:
            self.error = error
        with self._deciding:
            self._is_over = True
            if self._is_abandoned:
                os.close(self._descriptor)

    def abandon(self) -> bool:
        """Returns whether the wait is not over. It then ends without the lock."""
        with self._deciding:
            self._is_abandoned = not self._is_over
            return self._is_abandoned
