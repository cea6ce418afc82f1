"""What `sleeper run` is at: a line that changes on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sleeper.cli.printing import note
from sleeper.reports.listing import counted

if TYPE_CHECKING:
    from sleeper.wiring.runner import RunStatus

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def run_progress(latest: "list[RunStatus]") -> Iterator[Callable[["RunStatus"], None]]:
    """Gives a listener. It keeps the latest status in the list."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as line:

            def show(status: "RunStatus") -> None:
                latest[:] = [status]
                line.update(_now(status))

            yield show
    else:
        shown = [(0.0, "")]

        def tell(status: "RunStatus") -> None:
            latest[:] = [status]
            seconds, before = shown[0]
            now = _now(status)
            if now != before and status.seconds - seconds >= _SECONDS_BETWEEN_LINES:
                shown[0] = (status.seconds, now)
                note(now)

        yield tell


def summary_of_run(status: "RunStatus") -> str:
    """What a run did, in a line."""
    parts = [
        f"{counted(status.compactions_created, 'compaction job')} created",
        f"{counted(status.splits_sent, 'leaf', 'leaves')} sent to be split",
        f"{counted(status.files_collected, 'file')} collected",
    ]
    if status.workers_died:
        parts.append(f"{counted(status.workers_died, 'worker')} died")
    end = "nothing is left to do" if status.idle else "there may be more to do"
    return f"{', '.join(parts)} in {status.seconds:.1f} s; {end}"


def _now(status: "RunStatus") -> str:
    """What runs and what waits, by queue."""
    queues = [
        f"{queue} {status.running.get(queue, 0):,} running, {waiting:,} waiting"
        for queue, waiting in status.waiting.items()
        if waiting or status.running.get(queue)
    ]
    return "; ".join(queues) or "nothing to do now"
