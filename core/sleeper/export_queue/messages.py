"""Messages of the queue `export-queue.fifo` on AWS: each names a bucket with exports to drain.

Messages only wake exporters. A lost one is replaced by the next schedule, and one too many finds an
empty bucket. The queue has a group for each bucket, so a bucket has one exporter at a time.
"""

import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.export_queue.definition import check_queue_name
from sleeper.export_queue.drain import DrainReport
from sleeper.export_queue.function_checks import END_SECONDS
from sleeper.export_queue.properties import EXPORT_DRAIN_TIMEOUT_SECONDS
from sleeper.export_queue.queue_drain import QueueDrain
from sleeper.export_queue.registration import QueueWatch, find_queue
from sleeper.export_queue.store import BucketStatus, open_export_store
from sleeper.instance import Instance
from sleeper.jobs.queue import Message, QueueName
from sleeper.json_codec import JsonCodec, camel_case
from sleeper.lenient_json import StrictText
from sleeper.runs.remaining_time import seconds_left
from sleeper.runs.retry_policy import RETRY_POLICIES, return_message

logger = logging.getLogger(__name__)

_QUEUE = QueueName("export_queue")
_EXPORTERS = 5
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class BucketMessage:
    """A bucket to drain."""

    queue: StrictText
    bucket: int

    def __post_init__(self) -> None:
        check_queue_name(self.queue)


_CODEC = JsonCodec(BucketMessage, camel_case)


def parse_bucket_message(body: str) -> BucketMessage:
    """Parses the body of a message. InvalidRequestError names a wrong member."""
    return _CODEC.parse(body, "message of an export queue")


@dataclass(slots=True)
class MessageReport:
    """What the messages of a batch did, and the ids of those that return to their queue."""

    drained: DrainReport
    failed: list[str]


def send_due_buckets(instance: Instance, name: str) -> int:
    """Sends a message for each bucket of a queue that can be drained. Returns their number.

    The queue drops messages of a bucket within a minute unless its first item is another one, so a
    receiver that is unavailable or slow does not cause a flood.
    """
    due, minute = _due_buckets(instance, name), instance.clock() // _MINUTE_MS
    _send(instance, name, {each: f"{each.oldest_ms}/{minute}" for each in due})
    return len(due)


def drain_messages(instance: Instance, messages: Sequence[Message]) -> MessageReport:
    """Drains the buckets of messages, until they are empty or the function must end.

    Then it sends messages for the others. Those of a deleted queue do nothing.
    """
    batch = _Batch(instance, time.monotonic() + seconds_left(), seconds_left())
    by_queue: dict[str, list[tuple[int, Message]]] = defaultdict(list)
    for message in messages:
        try:
            parsed = parse_bucket_message(message.body)
        except InvalidRequestError as error:
            batch.fail([message], error)
        else:
            by_queue[parsed.queue].append((parsed.bucket, message))
    # A queue whose receiver is slow does not delay the others.
    with ThreadPoolExecutor(max(1, len(by_queue))) as threads:
        list(threads.map(batch.drain, by_queue, by_queue.values()))
    return batch.report


@dataclass(slots=True)
class _Batch:
    """The messages of one run of the function, which is killed at `ends_at`, a monotonic time."""

    instance: Instance
    ends_at: float
    seconds: float
    report: MessageReport = field(default_factory=lambda: MessageReport(DrainReport(), []))

    def drain(self, name: str, messages: Sequence[tuple[int, Message]]) -> None:
        """Drains buckets of one queue."""
        try:
            self.report.drained.add(self._drain(name, {bucket for bucket, _ in messages}))
        except NotFoundError as error:
            logger.info("messages dropped: %s", error)
        except Exception as error:
            self.fail([message for _, message in messages], error)

    def _drain(self, name: str, buckets: Collection[int]) -> DrainReport:
        open_queue = find_queue(self.instance, name)
        queue = open_queue.definition
        needed_seconds = queue.timeout_seconds + END_SECONDS
        if needed_seconds > self.seconds:
            raise InvalidRequestError(
                f"export queue {name!r} has a timeout of {queue.timeout_seconds} s, and the "
                f"function that drains it one of {self.seconds:.0f} s (expected at least "
                f"{needed_seconds} s: see {EXPORT_DRAIN_TIMEOUT_SECONDS.name})"
            )
        last_call_at = self.ends_at - needed_seconds
        watch = QueueWatch(open_queue)
        with closing(
            QueueDrain(self.instance, queue, open_queue.generation, _EXPORTERS, buckets)
        ) as drain:
            report = drain.run(lambda: time.monotonic() > last_call_at or watch.has_changed())
        # The schedule sends those that another worker has.
        rest = [s for s in _due_buckets(self.instance, name, buckets) if not s.claimed_until_ms]
        _send(self.instance, name, {each: secrets.token_hex(8) for each in rest})
        return report

    def fail(self, messages: Sequence[Message], error: Exception) -> None:
        """Returns messages to their queue."""
        queue = self.instance.jobs.queue(_QUEUE)
        for message in messages:
            logger.error("message failed: %s", error, extra={"message_id": message.message_id})
            delay = RETRY_POLICIES[_QUEUE].delay_seconds(message, error)
            return_message(queue, message, delay)
            self.report.failed.append(message.message_id)


def _due_buckets(
    instance: Instance, name: str, buckets: Collection[int] | None = None
) -> list[BucketStatus]:
    store, now_ms = open_export_store(instance), instance.clock()
    if store.find(name).is_paused:
        return []
    return [
        each
        for each in store.buckets(name)
        if each.due_ms <= now_ms and (buckets is None or each.bucket in buckets)
    ]


def _send(instance: Instance, name: str, buckets: Mapping[BucketStatus, str]) -> None:
    """Sends a message for each bucket. The queue drops those that repeat a bucket with its mark."""
    if buckets:
        groups = [f"{name}/{each.bucket}" for each in buckets]
        instance.jobs.queue(_QUEUE).send_all(
            [_CODEC.format(BucketMessage(name, each.bucket)) for each in buckets],
            groups,
            [f"{group}/{mark}" for group, mark in zip(groups, buckets.values(), strict=True)],
        )
