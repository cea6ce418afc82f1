"""The progress of many seeds: one line on a terminal, nothing elsewhere."""

import sys
import time

from simulation.result import Result


class Progress:
    """Counts results and shows the rate. `count` seeds end the run, or `seconds` do."""

    def __init__(self, count: int | None, seconds: float | None) -> None:
        self._count, self._seconds = count, seconds
        self._is_shown = sys.stderr.isatty()
        self._start = time.monotonic()
        self._done = self._failed = self._calls = 0

    def add(self, result: Result) -> None:
        """Counts a result and shows the line."""
        self._done += 1
        self._failed += result.failure is not None
        self._calls += result.calls
        if self._is_shown:
            print(f"\r\x1b[K{self.describe()}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Removes the line, before other output."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def describe(self) -> str:
        """Returns the line."""
        spent = max(time.monotonic() - self._start, 0.001)
        done = f"{self._done:,} seeds" if self._count is None else f"{self._done:,}/{self._count:,}"
        parts = [done, f"{self._failed:,} failed", f"{self._calls / spent:,.0f} calls/s"]
        left = self._seconds_left(spent)
        if left is not None:
            parts.append(f"{int(left) // 60}:{int(left) % 60:02} left")
        return ", ".join(parts)

    def _seconds_left(self, spent: float) -> float | None:
        if self._seconds is not None:
            return max(0.0, self._seconds - spent)
        if self._count is None or not self._done:
            return None
        return spent / self._done * (self._count - self._done)
