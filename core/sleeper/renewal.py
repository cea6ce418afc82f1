"""Periodic renewal: leases, holds, heartbeats, visibility timeouts and keep-alive frames."""

import logging
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Self

from sleeper.errors import SleeperError

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Renewal:
    """Calls an action every period in a daemon thread, from `start` to `cancel`.

    An error in `ends_on` ends the renewal, and `error` keeps it. After any other SleeperError
    the action is called again a period later. Log lines contain `name`, with `extra`.
    Leaving a `with` block waits for a running action, for `join_seconds` if given.
    """

    name: str
    action: Callable[[], object]
    period_seconds: float | Callable[[], float]
    _: KW_ONLY
    first_seconds: float | None = None
    ends_on: type[SleeperError] | tuple[type[SleeperError], ...] = ()
    join_seconds: float | None = None
    extra: dict[str, object] | None = None
    error: SleeperError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Starts the thread. The first call comes after `first_seconds`, or else a period."""
        self._thread.start()

    def cancel(self) -> None:
        """Ends the renewal. A running action is not interrupted."""
        self._ended.set()

    @property
    def is_running(self) -> bool:
        """Whether the thread was started and has not ended, also by an unexpected error."""
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()
        self._thread.join(self.join_seconds)

    def _run(self) -> None:
        wait_seconds = self._period() if self.first_seconds is None else self.first_seconds
        while not self._ended.wait(wait_seconds):
            try:
                self.action()
            except self.ends_on as error:
                self.error = error
                logger.warning("%s ended: %s", self.name, error, extra=self.extra)
                return
            except SleeperError as error:
                logger.warning("%s failed, retrying: %s", self.name, error, extra=self.extra)
            wait_seconds = self._period()

    def _period(self) -> float:
        period = self.period_seconds
        return period() if callable(period) else period
