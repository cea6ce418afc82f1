"""The job tracker and the task tracker on DynamoDB (docs/formats.md).

Each event is an item under the key of its job or task, so a repeated event replaces itself.
The index `recent` lists events by time, so the first event of a job in it is the job's newest.
DynamoDB limits the writes per second to one key of an index, so the index is divided into
`LISTINGS` keys per kind. Items expire, a rejection not before a week, so that the job's sender
can read the reason.
"""

import heapq
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from sleeper.aws.dynamo import DynamoItems, Item
from sleeper.aws.errors import RefusedError
from sleeper.errors import DataError, NotFoundError
from sleeper.jobs.event import JobEvent, JobKind, JobStep, TaskEvent, TaskStep
from sleeper.jobs.status import JobStatus, TaskStatus, fold_jobs, fold_tasks
from sleeper.jobs.tracker import RECENT_JOBS
from sleeper.json_codec import JsonCodec, camel_case
from sleeper.properties.deployed import RECENT, TIME_TO_LIVE
from sleeper.tables import TableId

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LISTINGS = 4
REJECTED_DAYS_MIN = 7
_TASK = "task"
_READERS = 8
_LISTED_PER_PAGE = 250
# An item has room for 400 KB.
_REASON_CHARACTERS_MAX = 5_000
_REASONS_MAX = 10
# `found` marks an end that another process recorded: it gives way to the task's own, of any time.
_PUT = "attribute_not_exists(#at) OR attribute_exists(#found) OR #at > :at"
_PUT_FOUND = "attribute_not_exists(#at) OR (attribute_exists(#found) AND #at > :at)"
_PUT_LATER = "attribute_not_exists(#at) OR #at < :at"


_JOB_EVENTS = JsonCodec(JobEvent, lambda name: {"at_ms": "at"}.get(name, camel_case(name)))
_TASK_NAMES = {"task_id": "task", "step": "event", "at_ms": "at", "reason": "found"}
_TASK_EVENTS = JsonCodec(TaskEvent, lambda name: _TASK_NAMES.get(name, camel_case(name)))
# An item lacks the attributes without a value.
_NO_JOB_VALUES: Item = {
    **dict.fromkeys(("taskId", "inputs", "rowsRead", "rowsWritten")),
    "reasons": [],
}
_NO_TASK_VALUES = dict.fromkeys(("process", "jobs", "rowsRead", "rowsWritten", "found"))


class _Events:
    """The events of a tracker's table, keyed by `subject` (`job` or `task`) and `event`."""

    def __init__(self, client: "DynamoDBClient", table_name: str, subject: str) -> None:
        self.items = DynamoItems(client, table_name, f"{subject} tracker")
        self._subject = subject

    def put(self, events: Sequence[Item]) -> None:
        """Puts each event unless one as good or better exists."""
        self.items.put_all(
            [(e, _PUT if e.get("found") is None else _PUT_FOUND, {"at": e["at"]}) for e in events]
        )

    def put_latest(self, event: Item) -> None:
        """Puts the event unless a later one exists."""
        with suppress(RefusedError):
            self.items.put(event, _PUT_LATER, {"at": event["at"]})

    def read(self, subject: str) -> list[Item]:
        """Returns all events of one job or task."""
        key = self._subject
        return list(self.items.query(f"#{key} = :{key}", {key: subject}))

    def newest(self, kinds: Sequence[str], prefix: str = "") -> Iterator[str]:
        """Yields jobs or tasks of these kinds by the time of their newest event, newest first."""
        items = heapq.merge(
            *(self._listed(listing) for listing in _listings(kinds)),
            key=lambda item: (-item["at"], item[self._subject]),
        )
        seen: set[str] = set()
        for item in items:
            subject = item[self._subject]
            if subject not in seen and subject.startswith(prefix):
                seen.add(subject)
                yield subject

    def remove_before(self, kinds: Sequence[str], time_ms: int) -> int:
        """Deletes jobs or tasks without an event since then; returns how many."""
        old = {
            item[self._subject]
            for listing in _listings(kinds)
            for item in self._listed(listing, time_ms)
        }
        removed = 0
        for subject in old:
            events = self.read(subject)
            if events and max(event["at"] for event in events) < time_ms:
                keys = [{name: e[name] for name in (self._subject, "event")} for e in events]
                self.items.delete(keys)
                removed += 1
        return removed

    def _listed(self, listing: str, before_ms: int | None = None) -> Iterator[Item]:
        condition, values = "#listing = :listing", {"listing": listing, "before": before_ms}
        if before_ms is not None:
            condition += " AND #at < :before"
        return self.items.query(condition, values, RECENT.name, True, _LISTED_PER_PAGE)


class DynamoJobTracker:
    """Implements `sleeper.jobs.tracker.JobTracker`. Safe for threads.

    Events expire after `days`.
    """

    def __init__(self, client: "DynamoDBClient", table_name: str, days: int) -> None:
        self._days = days
        self._events = _Events(client, table_name, "job")

    def record(self, *events: JobEvent) -> None:
        """See the port. A job's events, up to a hundred, are recorded together."""
        self._events.put([self._item(event) for event in _earliest(events)])

    def job(self, table_id: TableId, job_id: str) -> JobStatus:
        jobs = fold_jobs(map(_job_event, self._events.read(_job_key(table_id, job_id))))
        if not jobs:
            raise NotFoundError(f"table {table_id} has no job {job_id!r}")
        return jobs[0]

    def unknown(self, table_id: TableId, job_ids: Sequence[str]) -> tuple[str, ...]:
        subjects = {job_id: _job_key(table_id, job_id) for job_id in job_ids}
        created = _event_key("", JobStep.CREATED)
        keys = [{"job": subject, "event": created} for subject in subjects.values()]
        tracked = {item["job"] for item in self._events.items.get_all(keys, ["job"])}
        # Few jobs have other events without a creation, so these are read one by one.
        return tuple(
            job_id
            for job_id, subject in subjects.items()
            if subject not in tracked and not self._events.read(subject)
        )

    def recent(
        self,
        kind: JobKind | None = None,
        table_id: TableId | None = None,
        limit: int = RECENT_JOBS,
    ) -> tuple[JobStatus, ...]:
        """See the port. With a table it reads the list of all tables' jobs of that kind."""
        prefix = "" if table_id is None else _job_key(table_id, "")
        newest = self._events.newest(_kinds(kind), prefix)
        with ThreadPoolExecutor(_READERS) as readers:
            subjects = readers.map(self._events.read, list(islice(newest, limit)))
            return fold_jobs(_job_event(item) for items in subjects for item in items)

    def remove_before(self, time_ms: int) -> int:
        """See the port. Events also expire."""
        return self._events.remove_before(_kinds(None), time_ms)

    def _item(self, event: JobEvent) -> Item:
        is_rejected = event.step is JobStep.REJECTED
        days = max(self._days, REJECTED_DAYS_MIN) if is_rejected else self._days
        subject = _job_key(event.table_id, event.job_id)
        return {
            **_JOB_EVENTS.to_json(event),
            "job": subject,
            "event": _event_key(event.run_id, event.step),
            "listing": _listing(event.kind.value, subject),
            "reasons": [r[:_REASON_CHARACTERS_MAX] for r in event.reasons[:_REASONS_MAX]] or None,
            TIME_TO_LIVE: _expiry_seconds(event.at_ms, days),
        }


class DynamoTaskTracker:
    """Implements `sleeper.jobs.tracker.TaskTracker`. Safe for threads.

    Events expire after `days`.
    """

    def __init__(self, client: "DynamoDBClient", table_name: str, days: int) -> None:
        self._days = days
        self._events = _Events(client, table_name, _TASK)

    def record(self, event: TaskEvent) -> None:
        is_heartbeat = event.step is TaskStep.HEARTBEAT
        item: Item = {
            **_TASK_EVENTS.to_json(event),
            # A heartbeat is neither start nor end, so the index does not list it.
            "listing": None if is_heartbeat else _listing(_TASK, event.task_id),
            TIME_TO_LIVE: _expiry_seconds(event.at_ms, self._days),
        }
        if is_heartbeat:
            self._events.put_latest(item)
        else:
            self._events.put([item])

    def task(self, task_id: str) -> TaskStatus:
        tasks = fold_tasks(map(_task_event, self._events.read(task_id)))
        if not tasks:
            raise NotFoundError(f"task {task_id!r} does not exist")
        return tasks[0]

    def recent(self, kind: str | None = None, limit: int = RECENT_JOBS) -> tuple[TaskStatus, ...]:
        newest = self._events.newest([_TASK])
        tasks: list[TaskStatus] = []
        with ThreadPoolExecutor(_READERS) as readers:
            while len(tasks) < limit and (some := list(islice(newest, limit))):
                events = (e for items in readers.map(self._events.read, some) for e in items)
                tasks += [t for t in fold_tasks(map(_task_event, events)) if kind in {None, t.kind}]
        return tuple(tasks[:limit])

    def remove_before(self, time_ms: int) -> int:
        """See the port. Events also expire."""
        return self._events.remove_before([_TASK], time_ms)


def _earliest(events: Sequence[JobEvent]) -> Iterator[JobEvent]:
    """Yields one of each step, because DynamoDB refuses an item twice in one transaction."""
    earliest: dict[tuple[str, str, str, JobStep], JobEvent] = {}
    for event in events:
        key = (event.table_id, event.job_id, event.run_id, event.step)
        if key not in earliest or event.at_ms < earliest[key].at_ms:
            earliest[key] = event
    yield from earliest.values()


def _job_key(table_id: TableId, job_id: str) -> str:
    return f"{table_id}#{job_id}"


def _event_key(run_id: str, step: JobStep) -> str:
    return f"{run_id}#{step.value}"


def _kinds(kind: JobKind | None) -> list[str]:
    return [each.value for each in JobKind if kind in {None, each}]


def _listing(kind: str, subject: str) -> str:
    """Returns the key of the index under which the job's or task's events are listed."""
    return f"{kind}#{zlib.crc32(subject.encode()) % LISTINGS}"


def _listings(kinds: Sequence[str]) -> list[str]:
    return [f"{kind}#{number}" for kind in kinds for number in range(LISTINGS)]


def _expiry_seconds(at_ms: int, days: int) -> int:
    return at_ms // 1000 + days * 86_400


def _job_event(item: Item) -> JobEvent:
    return _JOB_EVENTS.from_json({**_NO_JOB_VALUES, **item}, "job event", DataError)


def _task_event(item: Item) -> TaskEvent:
    return _TASK_EVENTS.from_json({**_NO_TASK_VALUES, **item}, "task event", DataError)
