"""The floor of a process: one hold for all its short reads of a table.

A *floor* keeps every version from its own on, for two minutes. While a process reads a table, a
thread writes it again every half minute, and moves it on to the oldest version that is still read.
So a read on a warm process writes nothing. A read that takes longer takes a hold of its version
(`sleeper.statestore.holds`), because a floor keeps more files than a version does. A floor that
nobody reads under ends a minute later, and its item is deleted with the store or expires.
"""

import os
import socket
import threading
import time
import uuid
import weakref
from collections import Counter
from dataclasses import dataclass, replace

from sleeper.clock import Clock
from sleeper.errors import UnavailableError
from sleeper.renewal import Renewal
from sleeper.statestore.holds import Holds

FLOOR_SECONDS = 120
_RENEWAL_SECONDS = 30
_IDLE_MS = 60_000
# A read begins under a floor only if that outlasts the next renewal, and one that fails.
_LEFT_SECONDS = 60
# Reads of a process that may not write holds, or whose disk is full, do not try it each time.
_RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class _Kept:
    """Versions from `version` on are kept until a time of the clock, and of the monotonic clock.

    A clock may be set back, and the other one stands still while a machine sleeps.
    """

    version: int = 0
    until_ms: int = 0
    until_seconds: float = 0.0

    def lasts(self, now_ms: int, left_seconds: int = 0) -> bool:
        """Returns whether so much of the time is left."""
        is_left = self.until_ms - now_ms > left_seconds * 1000
        return is_left and self.until_seconds - time.monotonic() > left_seconds


_NOTHING = _Kept()


class Floor:
    """The floor of this process for one table. Safe for threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reset()
        _floors.add(self)

    def _reset(self) -> None:
        """Starts anew, without a floor, readers and a thread, as in a fork."""
        self._id = uuid.uuid4().hex
        # A reader that leaves waits for no request, so another lock is held during those.
        self._lock, self._request_lock = threading.Lock(), threading.Lock()
        self._readers: Counter[int] = Counter()
        self._kept = _NOTHING
        self._is_written = False
        self._used_ms = 0
        self._fault, self._retry_at_seconds = "", 0.0
        self._renewal: Renewal | None = None

    def enter(self, holds: Holds, version: int) -> None:
        """Keeps the version until `leave`, with a write only if the floor does not keep it yet.

        StateMovedOnError if no read may begin at it. UnavailableError if it cannot be written.
        """
        if self._add_if_kept(version):
            return
        with self._request_lock:
            if self._add_if_kept(version):
                return
            if time.monotonic() < self._retry_at_seconds:
                raise UnavailableError(self._fault)
            with self._lock:
                self._readers[version] += 1
                lowest, self._kept = min(self._readers), _NOTHING
            try:
                kept = self._write(holds, lowest)
                holds.check(version)
            except BaseException as error:
                self.leave(version)
                if isinstance(error, UnavailableError):
                    self._fault = str(error)
                    self._retry_at_seconds = time.monotonic() + _RETRY_SECONDS
                raise
            with self._lock:
                self._kept = replace(kept, version=version)
            if self._renewal is None or not self._renewal.is_running:
                self._start(holds)

    def leave(self, version: int) -> None:
        """Ends a read of the version, in the process in which it began."""
        with self._lock:
            self._used_ms = self._clock()
            self._readers[version] -= 1
            self._readers += Counter()  # forgets versions that nobody reads

    def end(self, holds: Holds) -> None:
        """Deletes the floor if nobody reads under it. Later reads write another."""
        with self._request_lock:
            with self._lock:
                if self._readers:
                    return
                self._kept = _NOTHING  # so a read that begins now waits for the request lock
            self._stop_renewal()
            if self._is_written:
                # A deletion whose answer is lost may be done late, so its id is not used again.
                ended, self._id, self._is_written = self._id, uuid.uuid4().hex, False
                holds.release([ended])

    def _add_if_kept(self, version: int) -> bool:
        with self._lock:
            self._used_ms = self._clock()
            kept = self._kept
            is_kept = version >= kept.version and kept.lasts(self._used_ms, _LEFT_SECONDS)
            if is_kept:
                self._readers[version] += 1
            return is_kept

    def _write(self, holds: Holds, version: int) -> _Kept:
        """Writes the floor, and returns what it keeps."""
        until_seconds, now_ms = time.monotonic() + FLOOR_SECONDS, self._clock()
        owner = f"reads of {socket.gethostname()}, process {os.getpid()}"
        self._is_written = True  # also if the answer is lost
        holds.write_floor(self._id, owner, version, FLOOR_SECONDS)
        return _Kept(version, now_ms + FLOOR_SECONDS * 1000, until_seconds)

    def _start(self, holds: Holds) -> None:
        name = f"floor {self._id}"
        self._renewal = Renewal(name, lambda: self._renew(holds), _RENEWAL_SECONDS)
        self._renewal.start()

    def _renew(self, holds: Holds) -> None:
        with self._request_lock:
            if self._renewal is None:
                return  # the floor ended while this thread waited
            # The newest state, because the floor expires by the time of the log.
            newest = holds.newest()
            with self._lock:
                is_idle = not self._readers and self._clock() - self._used_ms >= _IDLE_MS
                before = self._kept
                version = min(self._readers) if self._readers else max(newest, before.version)
                self._kept = replace(before, version=max(version, before.version))
            if is_idle:
                self._stop_renewal()
                return
            kept = self._write(holds, version)
            if version < before.version or not before.lasts(self._clock()):
                # This process slept. Files of its reads may be gone; such reads fail.
                with self._lock:
                    self._kept = _NOTHING
                holds.check(version)
            with self._lock:
                self._kept = kept

    def _stop_renewal(self) -> None:
        """Ends the thread. A reader that comes now starts another."""
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None


_floors: "weakref.WeakSet[Floor]" = weakref.WeakSet()


def _reset_floors() -> None:
    for floor in list(_floors):
        floor._reset()


os.register_at_fork(after_in_child=_reset_floors)
