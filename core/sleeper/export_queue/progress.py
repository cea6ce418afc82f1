"""Whether the queues of an instance have work left: for runs that end when there is none."""

import time
from dataclasses import dataclass, field

from sleeper.errors import NotFoundError
from sleeper.export_queue.failures import ends_by_itself
from sleeper.export_queue.registration import OpenQueue, find_queue, finish_interrupted_deletion
from sleeper.export_queue.store import Position, open_export_store
from sleeper.instance import Instance
from sleeper.reports.output import pluralize
from sleeper.workers.companion import CompanionWork

_STUCK_SECONDS = 5.0


@dataclass(slots=True)
class ExportWatch:
    """Looks at the queues again and again, and finds those that cannot capture."""

    instance: Instance
    _moved_at: dict[str, tuple[Position, float]] = field(default_factory=dict)
    _stuck: dict[str, str] = field(default_factory=dict)

    def look(self) -> CompanionWork:
        """Returns the work that is left. Paused queues have none.

        Nothing is left if two looks after each other find the same and nothing busy: a queue may
        export into the table of another one, at which this has looked before.
        """
        names = [queue.name for queue in open_export_store(self.instance).list()]
        works = [self._look_at(name) for name in names]
        return CompanionWork(
            tuple(position for work in works for position in work.positions),
            sum(work.pending for work in works),
            any(work.is_busy for work in works),
            tuple(problem for work in works for problem in work.problems),
        )

    def _look_at(self, name: str) -> CompanionWork:
        store = open_export_store(self.instance)
        try:
            open_queue = find_queue(self.instance, name)
            statuses = store.buckets(name)
        except NotFoundError:
            # It is being created or was deleted, perhaps by a process that died.
            finish_interrupted_deletion(self.instance, name)
            return CompanionWork()
        position = ((name, open_queue.number, open_queue.registered.position),)
        pending = sum(status.exports for status in statuses)
        if open_queue.registered.is_paused:
            return CompanionWork(position, pending)
        unavailable = [status for status in statuses if not ends_by_itself(status)]
        problems = []
        if unavailable:
            exports = sum(status.exports for status in unavailable)
            problems.append(f"{pluralize(exports, 'export')} pending: {unavailable[0].error}")
        stuck = self._find_stuck(open_queue) if open_queue.is_behind else None
        if stuck is not None:
            problems.append(f"export queue {name!r}: {stuck}")
        is_busy = len(unavailable) < len(statuses) or (open_queue.is_behind and stuck is None)
        return CompanionWork(position, pending, is_busy, tuple(problems))

    def _find_stuck(self, open_queue: OpenQueue) -> str | None:
        """Returns why the queue cannot capture, if it has not moved for some seconds."""
        name, position = open_queue.registered.name, open_queue.registered.position
        now = time.monotonic()
        position_before, since = self._moved_at.get(name, (None, now))
        if position != position_before:
            self._moved_at[name] = (position, now)
            self._stuck.pop(name, None)
        elif now - since > _STUCK_SECONDS and name not in self._stuck:
            # It loads the engine, and is seldom needed. Another process may do it meanwhile.
            from sleeper.export_queue.capture import capture_exports

            report = capture_exports(self.instance, name, seconds_max=0)
            if report.problem is not None and not report.is_complete:
                self._stuck[name] = report.problem
            self._moved_at[name] = (position, now)
        return self._stuck.get(name)
