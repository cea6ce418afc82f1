"""Companions: processes of systems that `sleeper run` keeps beside its workers."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sleeper.instance import Instance
from sleeper.system import Companion
from sleeper.systems import load
from sleeper.workers.pool import WorkerPool


@dataclass(frozen=True, slots=True)
class CompanionWork:
    """The work that is left for a companion.

    `positions` is equal if nothing moved, and empty if there is nothing to watch. `pending` is the
    number of pending exports. `is_busy` means that the companion will do some work. `problems` say
    why work remains otherwise.
    """

    positions: tuple[object, ...] = ()
    pending: int = 0
    is_busy: bool = False
    problems: tuple[str, ...] = ()


class Watch(Protocol):
    """Observes the work of a companion."""

    def look(self) -> CompanionWork:
        """Returns the work that is left."""


class CompanionProcess:
    """The process of a companion, which is started when it is first needed."""

    def __init__(self, instance: Instance, folder: Path, companion: Companion) -> None:
        self.pool = WorkerPool(folder, 1, companion.module, gives_up=False)
        self.work = CompanionWork()
        self._watch: Watch = load(companion.watch)(instance)
        self._period_seconds = companion.period_seconds
        self._looked_at = -math.inf

    def is_busy(self, until_idle: bool) -> bool:
        """Returns whether it has work or its work moved. Looks if that is due, or `until_idle`."""
        now, before = time.monotonic(), self.work
        if until_idle or now - self._looked_at >= self._period_seconds:
            self._looked_at = now
            self.work = self._watch.look()
        return self.work.is_busy or self.work != before

    def keep_up(self, until_idle: bool) -> int:
        """Starts the process if it is needed. Returns 1 if it had died."""
        is_needed = self.work.is_busy if until_idle else self.work.positions
        return self.pool.keep_up(lambda: 0) if len(self.pool) or is_needed else 0
