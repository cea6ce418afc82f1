"""Batches of SQS messages in a Lambda function, with partial failures.

A failed message returns to its queue, and the others are deleted. A message also returns if the
function has no time left for it, because a timeout fails the whole batch.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError, StateMovedOnError
from sleeper.instance import Instance
from sleeper.jobs.queue import Message, QueueName
from sleeper.runs.remaining_time import MessageTimer
from sleeper.runs.retry_policy import RETRY_POLICIES, return_message
from sleeper.tables import TableRef, find_table, is_table_id

logger = logging.getLogger(__name__)

Failures = Mapping[str, Any]
"""A function's response: `batchItemFailures`, each with a message's id."""


def run_messages(
    event: Mapping[str, Any],
    instance: Instance,
    name: QueueName,
    run: Callable[[Message], object],
) -> Failures:
    """Runs each message of a standard queue, with the queue's retry policy."""
    dropped = RETRY_POLICIES[name].dropped

    def run_message(message: Message) -> None:
        extra = {"message_id": message.message_id}
        try:
            run(message)
        except dropped as error:
            logger.warning("message dropped: %s", error, extra=extra)
        except Exception:
            logger.exception("message failed", extra=extra)
            raise

    return _process(event, instance, name, run_message)


def run_for_tables(
    event: Mapping[str, Any],
    instance: Instance,
    operation: QueueName,
    operate: Callable[[TableRef], object],
    online_only: bool = False,
) -> Failures:
    """Runs the operation for each table whose id is a message of the operation's queue.

    Runs once per table and batch; on failure, only the table's first message returns. Skips a
    deleted table, and with `online_only` a table that went offline.
    """
    seen: set[str] = set()

    def run_message(message: Message) -> None:
        if message.body not in seen:
            seen.add(message.body)
            _operate(instance, message.body, operate, online_only)

    return _process(event, instance, operation, run_message)


def received_message(record: SQSRecord) -> Message:
    """Returns the message of a record."""
    attributes = record.attributes
    return Message(
        record.message_id,
        record.body,
        record.receipt_handle,
        int(attributes.approximate_receive_count),
        int(attributes.sent_timestamp),
        attributes.message_group_id,
        str(attributes.get("SenderId") or ""),
    )


def _operate(
    instance: Instance, table_id: str, operate: Callable[[TableRef], object], online_only: bool
) -> None:
    extra = {"table": table_id[:100]}
    ref = _find_table(instance, table_id)
    if ref is None or (online_only and not ref.online):
        logger.info("skipped a table that is deleted or offline", extra=extra)
        return
    try:
        operate(ref)
    except (InvalidRequestError, StateMovedOnError) as error:
        # A retry would fail alike, and the next period retries anyway.
        logger.error("message dropped: %s", error, extra=extra)
    except Exception as error:
        if isinstance(error, SleeperError) and _find_table(instance, table_id) is None:
            logger.info("table was deleted during the operation", extra=extra)
            return
        logger.exception("message failed", extra=extra)
        raise


def _find_table(instance: Instance, table_id: str) -> TableRef | None:
    if not is_table_id(table_id):
        return None
    try:
        return find_table(instance.tables.index, None, table_id)
    except NotFoundError:
        return None


class _NoTimeError(Exception):
    """The function has no time left for the message."""


def _process(
    event: Mapping[str, Any],
    instance: Instance,
    name: QueueName,
    run_message: Callable[[Message], None],
) -> Failures:
    if event.get("Records") == []:
        # A run that only keeps a container warm. Powertools refuses it.
        return {"batchItemFailures": []}
    queue, timer = instance.jobs.queue(name), MessageTimer()

    def run_record(record: SQSRecord) -> None:
        message = received_message(record)
        if not timer.has_time():
            logger.warning(
                "message returned: not enough time left", extra={"message_id": record.message_id}
            )
            return_message(queue, message, 0)
            raise _NoTimeError
        with timer.message():
            try:
                run_message(message)
            except Exception as error:
                delay = RETRY_POLICIES[name].delay_seconds(message, error)
                return_message(queue, message, delay)
                raise

    # Also for FIFO queues, because the messages of a group are independent.
    processor = BatchProcessor(EventType.SQS)
    # By default a batch without any success raises. The response lists the same failures.
    processor.raise_on_entire_batch_failure = False
    return process_partial_response(dict(event), run_record, processor)
