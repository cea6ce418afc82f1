"""The task tracker on DynamoDB. See `tracker_items` for how events are kept and found."""

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from sleeper.aws.dynamo_batches import Item
from sleeper.aws.tracker_items import (
    TrackerItems,
    expiry_of,
    listing_of,
    number,
    numbers,
    text,
    texts,
)
from sleeper.errors import NotFoundError
from sleeper.jobs.event import TaskEvent, TaskStep
from sleeper.jobs.status import TaskStatus, fold_tasks
from sleeper.jobs.tracker import RECENT_JOBS

_LISTED_AS = "task"
_READERS = 8


class DynamoTaskTracker:
    """Implements `sleeper.jobs.tracker.TaskTracker`. Safe for threads.

    `days` is how long an event is kept.
    """

    def __init__(self, client: Any, table_name: str, days: int) -> None:
        self._days = days
        self._items = TrackerItems(client, table_name, "task")

    def record(self, event: TaskEvent) -> None:
        """See the port."""
        counted = {
            "at": event.at_ms,
            "jobs": event.jobs,
            "rowsRead": event.rows_read,
            "rowsWritten": event.rows_written,
        }
        item: Item = {
            "task": {"S": event.task_id},
            "event": {"S": event.step.value},
            "kind": {"S": event.kind},
            **numbers(counted),
            # That it was found makes room for what the task itself may still tell.
            **texts({"process": event.process, "found": event.reason}),
            **expiry_of(event.at_ms, self._days),
        }
        if event.step is TaskStep.HEARD:
            # Not listed: it is no end and no start.
            self._items.put_later(item)
            return
        item["listing"] = listing_of(_LISTED_AS, event.task_id)
        self._items.put([item])

    def task(self, task_id: str) -> TaskStatus:
        """See the port."""
        tasks = fold_tasks(map(_event, self._items.of(task_id)))
        if not tasks:
            raise NotFoundError(f"no task {task_id!r} is known")
        return tasks[0]

    def recent(self, kind: str | None = None, limit: int = RECENT_JOBS) -> tuple[TaskStatus, ...]:
        """See the port."""
        newest = self._items.newest([_LISTED_AS], lambda _: True)
        found: list[TaskStatus] = []
        with ThreadPoolExecutor(_READERS) as readers:
            while len(found) < limit and (some := list(islice(newest, limit))):
                events = [
                    _event(item) for items in readers.map(self._items.of, some) for item in items
                ]
                found += [t for t in fold_tasks(events) if kind in {None, t.kind}]
        return tuple(found[:limit])

    def remove_before(self, time_ms: int) -> int:
        """See the port. Without it they expire by themselves."""
        return self._items.remove_before([_LISTED_AS], time_ms)


def _event(item: Item) -> TaskEvent:
    return TaskEvent(
        task_id=item["task"]["S"],
        kind=item["kind"]["S"],
        step=TaskStep(item["event"]["S"]),
        at_ms=int(item["at"]["N"]),
        process=text(item, "process"),
        jobs=number(item, "jobs"),
        rows_read=number(item, "rowsRead"),
        rows_written=number(item, "rowsWritten"),
        reason=text(item, "found"),
    )
