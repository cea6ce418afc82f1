"""Batches of messages that Lambda hands to a function, and which of them it is to give back.

A message that fails returns to its queue, and the others are done. So does one for which the
function has no time left: a function that is killed fails its whole batch.
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
from sleeper.jobs.queue import Message, MessageQueue, QueueName
from sleeper.runs.remaining_time import MessageTimer
from sleeper.runs.retry import return_after, return_job, return_soon
from sleeper.tables.table_index import find_table
from sleeper.tables.table_ref import TableRef, is_table_id

logger = logging.getLogger(__name__)

Failures = Mapping[str, Any]
"""What Lambda reads: `batchItemFailures`, each with its message's id."""


def run_messages(
    event: Mapping[str, Any],
    instance: Instance,
    queue: QueueName,
    run: Callable[[Message], object],
    settled: tuple[type[SleeperError], ...] = (),
    give_back: Callable[[MessageQueue, Message], None] = return_job,
) -> Failures:
    """Runs each message of a standard queue; `settled` errors drop a message.

    One that failed returns as the message of a job does, unless `give_back` is another.
    """

    def run_record(record: SQSRecord) -> None:
        message = received_message(record)
        try:
            run(message)
        except settled as error:
            logger.warning("message dropped: %s", error, extra={"message_id": record.message_id})
        except Exception:
            logger.exception("message failed", extra={"message_id": record.message_id})
            give_back(instance.jobs.queue(queue), message)
            raise

    return _process(event, instance.jobs.queue(queue), run_record)


def received_message(record: SQSRecord) -> Message:
    """The message of a record, with how often it was received and who sent it."""
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


def run_for_tables(
    event: Mapping[str, Any],
    instance: Instance,
    operation: QueueName,
    operate: Callable[[TableRef], object],
    online_only: bool = False,
) -> Failures:
    """Does something for each table that the messages of an operation's queue name by its id.

    Once for each table, however often the batch has it: if that fails, the first of its
    messages returns soon and stands for the others. Nothing is done for a table that is
    gone, nor with `online_only` for one that went offline meanwhile.
    """
    tried: set[str] = set()

    def run_record(record: SQSRecord) -> None:
        table_id = record.body
        if table_id in tried:
            return
        tried.add(table_id)
        try:
            _operate(instance, table_id, operate, online_only)
        except Exception:
            return_soon(instance.jobs.queue(operation), received_message(record))
            raise

    return _process(event, instance.jobs.queue(operation), run_record)


def _operate(
    instance: Instance, table_id: str, operate: Callable[[TableRef], object], online_only: bool
) -> None:
    told = {"table": table_id[:100]}
    ref = _table(instance, table_id)
    if ref is None or (online_only and not ref.online):
        logger.info("no such table, or offline", extra=told)
        return
    try:
        operate(ref)
    except (InvalidRequestError, StateMovedOnError) as error:
        # Another try would end alike, and the next period has one anyway.
        logger.error("dropped: %s", error, extra=told)
    except Exception as error:
        if isinstance(error, SleeperError) and _table(instance, table_id) is None:
            logger.info("the table was deleted meanwhile", extra=told)
            return
        logger.exception("given back", extra=told)
        raise


def _table(instance: Instance, table_id: str) -> TableRef | None:
    if not is_table_id(table_id):
        return None
    try:
        return find_table(instance.tables.index, None, table_id)
    except NotFoundError:
        return None


class _NoTimeError(Exception):
    """The function has no time left for the message."""


def _process(
    event: Mapping[str, Any], queue: MessageQueue, run_record: Callable[[SQSRecord], None]
) -> Failures:
    timer = MessageTimer()

    def run_in_time(record: SQSRecord) -> None:
        if not timer.has_time():
            logger.warning("no time left", extra={"message_id": record.message_id})
            return_after(queue, received_message(record), 0)
            raise _NoTimeError
        with timer.message():
            run_record(record)

    # Of a FIFO queue as well: what its messages say does not hang on their order.
    processor = BatchProcessor(EventType.SQS)
    # A function that fails returns all its messages: the answer says so just as well.
    processor.raise_on_entire_batch_failure = False
    return process_partial_response(dict(event), run_in_time, processor)
