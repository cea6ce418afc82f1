"""A table's log: the write units of its partition key, and commits that conflict.

A *direct* commit reads the tail of the log, validates, and appends on the condition that the log
has not moved. If it has, the writer waits and tries again, as the product's backoffs say. A refused
append takes write units too. A throttled one takes none, and is repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from simulation.scale.rules import Rules
from simulation.scale.timeline import Timeline
from sleeper.retries import Backoff

READ_SECONDS = 0.012
"""Reading the head and the tail of the log, and the validation."""

APPEND_SECONDS = 0.012
"""The transaction of DynamoDB that appends."""

_THROTTLED_SECONDS_MAX = 0.2
"""The wait before a throttled request is repeated, with full jitter."""


class Capacity:
    """Units a second, such as the write units of a partition key.

    DynamoDB refuses a request that finds none. A second's units can be saved up.
    """

    def __init__(self, timeline: Timeline, units_second: float) -> None:
        self.used = 0.0
        self.refused = 0
        self._timeline = timeline
        self._units_second = units_second
        self._saved = units_second
        self._filled_at = 0.0

    def take(self, units: float) -> bool:
        """Takes units. Returns False if there are too few."""
        self._fill()
        # A request larger than a second's units takes all, and the next ones wait for it.
        if self._saved < min(units, self._units_second):
            self.refused += 1
            return False
        self._spend(units)
        return True

    def wait(self, units: float) -> float:
        """Takes units, and returns the seconds until they are available, for a single writer."""
        self._fill()
        self._spend(units)
        return max(0.0, -self._saved / self._units_second)

    def _fill(self) -> None:
        now = self._timeline.now
        self._saved += (now - self._filled_at) * self._units_second
        self._saved, self._filled_at = min(self._saved, self._units_second), now

    def _spend(self, units: float) -> None:
        self._saved -= units
        self.used += units


@dataclass(slots=True)
class _Commit:
    """A direct commit in progress. `rounds` counts whole rounds of retries that failed."""

    units: float
    done: Callable[[bool], object]
    start: float
    retries: int = 0
    rounds: int = 0


class Log:
    """A log to which processes append. `conflicts` counts appends that were refused."""

    def __init__(
        self, timeline: Timeline, rules: Rules, partition: Capacity, random: Random
    ) -> None:
        self.head = self.conflicts = self.failed = 0
        self.partition = partition
        self._timeline = timeline
        self._rules = rules
        self._random = random
        self._busy_until = 0.0

    def append(self, units: float) -> float:
        """Appends as the only writer, such as the committer. Returns the wait for write units."""
        self.head += 1
        return self.partition.wait(units)

    def commit(self, units: float, done: Callable[[bool], object]) -> None:
        """Commits directly. `done` is told whether it succeeded."""
        self._attempt(_Commit(units, done, self._timeline.now))

    def _attempt(self, commit: _Commit) -> None:
        head = self.head
        self._timeline.after(READ_SECONDS, lambda: self._start_append(commit, head))

    def _start_append(self, commit: _Commit, head: int) -> None:
        if not self.partition.take(commit.units):
            wait = self._random.uniform(0, _THROTTLED_SECONDS_MAX)
            self._timeline.after(wait, lambda: self._start_append(commit, head))
            return
        seconds = APPEND_SECONDS
        # DynamoDB refuses a transaction on an item that is part of another one.
        if self._busy_until > self._timeline.now or self.head != head:
            self.conflicts += 1
            self._timeline.after(seconds, lambda: self._retry(commit))
            return
        self._busy_until = self._timeline.now + seconds

        def end() -> None:
            self.head += 1
            commit.done(True)

        self._timeline.after(seconds, end)

    def _retry(self, commit: _Commit) -> None:
        rules = self._rules
        if commit.retries < rules.conflict_backoff.retries:
            wait = _wait(rules.conflict_backoff, commit.retries, self._random)
            commit.retries += 1
        elif self._timeline.now - commit.start < rules.settle_backoff.seconds_total:
            wait = _wait(rules.settle_backoff, commit.rounds, self._random)
            commit.rounds, commit.retries = commit.rounds + 1, 0
        else:
            self.failed += 1
            commit.done(False)
            return
        self._timeline.after(wait, lambda: self._attempt(commit))


def _wait(backoff: Backoff, number: int, random: Random) -> float:
    """Returns the wait before a retry, as the product's backoff chooses it."""
    longest: float = min(backoff.seconds_first * 2 ** min(number, 30), backoff.seconds_max)
    return longest * random.uniform(1 - backoff.jitter, 1)
