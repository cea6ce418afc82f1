"""The job tracker on DynamoDB. See `tracker_items` for how events are kept and found."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from sleeper.aws.dynamo_batches import Item, get_items
from sleeper.aws.errors import translated
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
from sleeper.jobs.event import JobEvent, JobKind, JobStep
from sleeper.jobs.status import JobStatus, fold_jobs
from sleeper.jobs.tracker import RECENT_JOBS
from sleeper.tables.table_ref import TableId

REJECTED_DAYS_MIN = 7
_READERS = 8
# An item holds 400 KB in all; nobody reads so much.
_REASON_CHARACTERS_MAX = 5_000
_REASONS_MAX = 10


class DynamoJobTracker:
    """Implements `sleeper.jobs.tracker.JobTracker`. Safe for threads.

    `days` is how long an event is kept.
    """

    def __init__(self, client: Any, table_name: str, days: int) -> None:
        self._client = client
        self._table_name = table_name
        self._days = days
        self._items = TrackerItems(client, table_name, "job")

    def record(self, *events: JobEvent) -> None:
        """See the port. All or none of a job's, and of a hundred events at a time."""
        self._items.put([self._item(event) for event in _earliest(events)])

    def job(self, table_id: TableId, job_id: str) -> JobStatus:
        """See the port."""
        jobs = fold_jobs(map(_event, self._items.of(_subject(table_id, job_id))))
        if not jobs:
            raise NotFoundError(f"no job {job_id!r} is known of table {table_id}")
        return jobs[0]

    def unknown(self, table_id: TableId, job_ids: Sequence[str]) -> tuple[str, ...]:
        """See the port."""
        subjects = {job_id: _subject(table_id, job_id) for job_id in job_ids}
        created = {"event": {"S": _event_key("", JobStep.CREATED)}}
        keys = [{"job": {"S": subject}, **created} for subject in subjects.values()]
        with translated("job tracker"):
            found = get_items(self._client, self._table_name, keys, "job")
        known = {item["job"]["S"] for item in found}
        # Of some the creation alone may be missing: they are few, and asked for one by one.
        return tuple(
            job_id
            for job_id, subject in subjects.items()
            if subject not in known and not self._items.of(subject)
        )

    def recent(
        self,
        kind: JobKind | None = None,
        table_id: TableId | None = None,
        limit: int = RECENT_JOBS,
    ) -> tuple[JobStatus, ...]:
        """See the port. Of one table it looks through the newest of all tables of that kind."""
        prefix = "" if table_id is None else _subject(table_id, "")
        newest = self._items.newest(_kinds(kind), lambda subject: subject.startswith(prefix))
        with ThreadPoolExecutor(_READERS) as readers:
            found = readers.map(self._items.of, list(islice(newest, limit)))
            return fold_jobs(_event(item) for items in found for item in items)

    def remove_before(self, time_ms: int) -> int:
        """See the port. Without it they expire by themselves."""
        return self._items.remove_before(_kinds(None), time_ms)

    def _item(self, event: JobEvent) -> Item:
        days = self._days
        if event.step is JobStep.REJECTED:
            days = max(days, REJECTED_DAYS_MIN)
        reasons = [reason[:_REASON_CHARACTERS_MAX] for reason in event.reasons[:_REASONS_MAX]]
        counted = {
            "at": event.at_ms,
            "inputs": event.inputs,
            "rowsRead": event.rows_read,
            "rowsWritten": event.rows_written,
        }
        subject = _subject(event.table_id, event.job_id)
        return {
            "job": {"S": subject},
            "event": {"S": _event_key(event.run_id, event.step)},
            "listing": listing_of(event.kind.value, subject),
            "kind": {"S": event.kind.value},
            "step": {"S": event.step.value},
            "tableId": {"S": event.table_id},
            "jobId": {"S": event.job_id},
            "runId": {"S": event.run_id},
            **numbers(counted),
            **texts({"taskId": event.task_id}),
            **({"reasons": {"L": [{"S": reason} for reason in reasons]}} if reasons else {}),
            **expiry_of(event.at_ms, days),
        }


def _earliest(events: Sequence[JobEvent]) -> Iterator[JobEvent]:
    """One of each step: DynamoDB refuses an item that comes twice in one transaction."""
    earliest: dict[tuple[str, str, str, JobStep], JobEvent] = {}
    for event in events:
        key = (event.table_id, event.job_id, event.run_id, event.step)
        if key not in earliest or event.at_ms < earliest[key].at_ms:
            earliest[key] = event
    yield from earliest.values()


def _subject(table_id: TableId, job_id: str) -> str:
    return f"{table_id}#{job_id}"


def _event_key(run_id: str, step: JobStep) -> str:
    return f"{run_id}#{step.value}"


def _kinds(kind: JobKind | None) -> list[str]:
    return [each.value for each in JobKind if kind in {None, each}]


def _event(item: Item) -> JobEvent:
    return JobEvent(
        table_id=TableId(item["tableId"]["S"]),
        job_id=item["jobId"]["S"],
        kind=JobKind(item["kind"]["S"]),
        step=JobStep(item["step"]["S"]),
        at_ms=int(item["at"]["N"]),
        run_id=item["runId"]["S"],
        task_id=text(item, "taskId"),
        inputs=number(item, "inputs"),
        rows_read=number(item, "rowsRead"),
        rows_written=number(item, "rowsWritten"),
        reasons=tuple(reason["S"] for reason in item.get("reasons", {}).get("L", ())),
    )
