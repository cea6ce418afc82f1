"""Virtual time: a heap of events, run in order of time and then of their making."""

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], object]


class Timeline:
    """The events to come. `now` is in seconds since the start."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def after(self, seconds: float, action: Action) -> None:
        """Runs the action once, so many seconds from now."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), action))

    def every(self, seconds: float, action: Action, first: float | None = None) -> None:
        """Runs the action in this period, first after `first` seconds or else after one period."""

        def run() -> None:
            self.after(seconds, run)
            action()

        self.after(seconds if first is None else first, run)

    def run(self, until: float) -> None:
        """Runs all events up to the time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until
