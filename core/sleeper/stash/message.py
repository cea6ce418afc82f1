"""Tasks of stashes by message (docs/formats.md, "Stash messages")."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.jobs.queue import Message, QueueName
from sleeper.json_codec import JsonCodec, Member, camel_case
from sleeper.lenient_json import StrictText
from sleeper.properties.instance import OPTIONAL_STACKS
from sleeper.stash.destination import parse_destination
from sleeper.stash.layout import is_root_name
from sleeper.stash.properties import STASH_BUCKET
from sleeper.stash.record import StashRecord
from sleeper.stash.spark_table import write_in_process
from sleeper.tables import TableId, is_table_id

QUEUE = QueueName("stash")
_DIGEST = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class StashMessage:
    """A task of a stash. `stash` is the digest of its destination and the name of its root.

    Without a task, it is all tasks of the table, which Spark does in a process of its own.
    """

    stash: StrictText
    table_id: StrictText
    task: Annotated[int | None, Member(optional=True)] = None

    def __post_init__(self) -> None:
        digest, _, name = self.stash.partition("/")
        if not _DIGEST.fullmatch(digest) or not is_root_name(name):
            raise InvalidRequestError(f"stash {self.stash[:100]!r} is not the key of a stash")
        if not is_table_id(self.table_id):
            raise InvalidRequestError(f"{self.table_id[:100]!r} is not the id of a table")


_CODEC = JsonCodec(StashMessage, camel_case, known=("stash", "tableId", "task"))


def check_workers(instance: Instance, destination: str) -> None:
    """Raises InvalidRequestError if workers of the instance could not write to the destination.

    Tasks on AWS write to one bucket: that of the deployment, or the one that a property names.
    """
    if QUEUE not in instance.jobs.queues:
        raise InvalidRequestError(
            f"instance {instance.where} has no workers for stashes (expected the part "
            f"StashStack in {OPTIONAL_STACKS.name}, or no --submit)"
        )
    if instance.background is not None:
        return
    bucket = f"s3://{instance.properties().get(STASH_BUCKET)}"
    if not parse_destination(destination).startswith(f"{bucket}/"):
        raise InvalidRequestError(
            f"destination {destination} is not in the bucket that tasks of {instance.where} write "
            f"to (expected {bucket} or a folder in it, or no --submit)"
        )


def make_sender(
    instance: Instance, record: StashRecord
) -> Callable[[TableId, Sequence[int] | None], None]:
    """Returns a function that sends tasks of a table, or a table for Spark, to the queue.

    On AWS it sends no table for Spark, because `watch_platform` starts the job.
    """
    queue = instance.jobs.queue(QUEUE)

    def send(table_id: TableId, numbers: Sequence[int] | None) -> None:
        if numbers is None and instance.jobs.spark_platform is not None:
            return
        tasks = (None,) if numbers is None else numbers
        messages = (StashMessage(record.key, table_id, number) for number in tasks)
        queue.send_all([_CODEC.format(message) for message in messages])

    return send


def parse_stash_message(body: str) -> StashMessage:
    """Parses the body of a message. InvalidRequestError names a wrong member."""
    return _CODEC.parse(body, "stash message")


def run_stash_message(
    instance: Instance, message: Message, _task_id: str | None = None
) -> tuple[int, int]:
    """Does the task of a message. Returns the numbers of rows read and written.

    InvalidRequestError if the message is invalid. A message of a stash that has ended, or whose
    record was deleted, does nothing.
    """
    request = parse_stash_message(message.body)
    digest, _, name = request.stash.partition("/")
    record = StashRecord(instance.storage.root, digest, name)
    if not record.is_running():
        return 0, 0
    table_id = TableId(request.table_id)
    if request.task is None:
        rows = write_in_process(instance, record, table_id)
    else:
        from sleeper.stash.task import do_task

        result = do_task(instance, record, table_id, request.task)
        rows = 0 if result is None else result.rows
    return rows, rows
