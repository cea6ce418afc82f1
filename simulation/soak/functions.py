"""The functions of an AWS instance in one process, called as Lambda does.

Each round sends the messages of the schedules, gives messages to the handlers of their queues, and
deletes those that did not fail. The others return to their queue after their visibility timeout.
"""

import copy
import logging
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from sleeper.errors import SleeperError
from sleeper.jobs.queue import Message, MessageQueue, QueueName
from sleeper.opening import open_instance
from sleeper.workers.schedule import TABLE_OPERATIONS

logger = logging.getLogger(__name__)
_SCHEDULE_SECONDS = 5.0
# Each collection of orphans adds a transaction, so that export queues never catch up otherwise.
_ORPHANS_SECONDS = 60.0
_IDLE_SECONDS = 0.2
_MESSAGES_MAX = 10
_HANDLERS = {
    QueueName.COMMITS: "commit_transactions",
    QueueName.DELETION: "delete_rows",
    QueueName.INGEST_BATCHER: "receive_batch_files",
    QueueName.SPLITTING: "split_partition",
    QueueName.QUERY: "plan_query",
    QueueName.LEAF_QUERY: "run_leaf_query",
    QueueName("export_queue"): "drain_exports",
    QueueName.COMPACTION_JOB_CREATION: "create_compaction_jobs",
    QueueName.FIND_PARTITIONS_TO_SPLIT: "find_partitions_to_split",
    QueueName.GARBAGE_COLLECTION: "collect_garbage",
    QueueName.ORPHAN_COLLECTION: "collect_orphans",
    QueueName.STATE_SNAPSHOTS: "take_state_snapshots",
}
_SCHEDULED = ("create_ingest_batches", "follow_exports", "sweep_instance")
_CONTEXT = SimpleNamespace(
    function_name="soak",
    memory_limit_in_mb=2048,
    invoked_function_arn="arn:aws:lambda:us-east-1:000000000000:function:soak",
    aws_request_id="request",
    get_remaining_time_in_millis=lambda: 300_000,
)
Handler = Callable[[dict[str, Any], Any], Any]


def main() -> None:
    instance = open_instance()
    queues = {name: instance.jobs.queue(name) for name in _HANDLERS}
    handlers = {name: _load(function) for name, function in _HANDLERS.items()}
    scheduled = [_load(function) for function in _SCHEDULED]
    fan_out = _load("fan_out_tables")
    due, orphans_due = 0.0, time.monotonic() + _SCHEDULE_SECONDS
    while True:
        if time.monotonic() >= due:
            due = time.monotonic() + _SCHEDULE_SECONDS
            operations = {*TABLE_OPERATIONS} & {*queues} - {QueueName.ORPHAN_COLLECTION}
            if time.monotonic() >= orphans_due:
                orphans_due = time.monotonic() + _ORPHANS_SECONDS
                operations.add(QueueName.ORPHAN_COLLECTION)
            for operation in operations:
                os.environ["SLEEPER_OPERATION"] = operation.value
                _call(fan_out, {})
            for handler in scheduled:
                _call(handler, {})
        counts = [_handle(queues[name], handler) for name, handler in handlers.items()]
        if not any(counts):
            time.sleep(_IDLE_SECONDS)


def _load(function: str) -> Handler:
    handler: Handler = import_module(f"lambdas.{function}.handler").handler
    return handler


def _call(handler: Handler, event: dict[str, Any]) -> Any:
    """Calls a handler; an error is that of the function, which Lambda logs."""
    try:
        return handler(copy.deepcopy(event), _CONTEXT)
    except SleeperError:
        logger.exception("a function failed")
        return None


def _handle(queue: MessageQueue, handler: Handler) -> int:
    try:
        messages = queue.receive(_MESSAGES_MAX)
    except SleeperError as error:
        logger.warning("no messages: %s", error)
        return 0
    if not messages:
        return 0
    answer = _call(handler, {"Records": _make_records(messages)})
    if answer is None:
        return 0
    failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
    for message in messages:
        if message.message_id not in failed:
            try:
                queue.delete(message.receipt)
            except SleeperError as error:
                logger.warning("a message comes again: %s", error)
    return len(messages)


def _make_records(messages: Sequence[Message]) -> list[dict[str, Any]]:
    records = []
    for message in messages:
        attributes = {
            "ApproximateReceiveCount": str(message.receives),
            "SentTimestamp": str(message.sent_ms),
            "SenderId": message.sender,
        }
        if message.group is not None:
            attributes |= {"MessageGroupId": message.group}
        records.append(
            {
                "messageId": message.message_id,
                "receiptHandle": message.receipt,
                "body": message.body,
                "attributes": attributes,
                "messageAttributes": {},
                "eventSource": "aws:sqs",
            }
        )
    return records


if __name__ == "__main__":
    main()
