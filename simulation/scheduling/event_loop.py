"""An event loop of `asyncio` in a simulated thread: it waits in virtual time.

The loop of Python waits in a call of the system, in which no other simulated thread could run. This
one waits for an event of `threading`, which threads set that have work for it. It has no sockets.
"""

import asyncio
import itertools
import logging
import selectors
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_numbers = itertools.count(1)


class _NumberedTask(asyncio.tasks._PyTask):  # type: ignore[misc, name-defined]
    """A task whose place in a set is the same in each run."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self._number = next(_numbers)
        super().__init__(*arguments, **keywords)

    def __hash__(self) -> int:
        return self._number


class _Waits(selectors.SelectSelector):
    """A selector that waits for `ready`, and has no files of which one could be ready."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = threading.Event()

    def select(self, timeout: float | None = None) -> list[Any]:
        """Waits until there is work or the time is over."""
        if timeout is None or timeout > 0:
            self.ready.wait(timeout)
        self.ready.clear()
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop of the calling simulated thread."""

    def __init__(self) -> None:
        self._waits = _Waits()
        super().__init__(self._waits)
        self.set_task_factory(_make_task)
        # Its texts have addresses in memory, which differ between runs.
        logging.getLogger("asyncio").disabled = True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work to its end."""
        return self.run_until_complete(work)

    def _write_to_self(self) -> None:
        """Wakes the loop, as another thread does that has added work."""
        self._waits.ready.set()


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **keywords: Any) -> Any:
    return _NumberedTask(work, loop=loop, **keywords)
