"""The committer: commits the queued transactions of a table as one entry of its log.

The outcome of a commit, applied or refused, is recorded in the job tracker, then the message is
deleted. A message that can never be committed (its table is deleted, a transaction is invalid) is
recorded as rejected if it names a run, or else fails until it is a dead letter. After a transient
error all messages of the entry return. A redelivered message finds its transactions already done,
so its outcome is the same.

A redelivered message may have failed its batch, or killed the function. So it is committed alone,
after the others, and each message is deleted as soon as it is done.
"""

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError, UnavailableError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobEvent, JobStep
from sleeper.jobs.queue import Message, QueueName
from sleeper.runs.commit import is_hopeless
from sleeper.runs.remaining_time import MessageTimer
from sleeper.runs.retry_policy import RETRY_POLICIES, return_message
from sleeper.statestore.commit_message import (
    CommitMessage,
    commit_message_from_json,
    decode_transactions,
    parse_commit_object,
)
from sleeper.statestore.joint_commit import commit_jointly
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.transaction import Outcome, Status, Transaction
from sleeper.tables import TableId, TableRef, check_active

logger = logging.getLogger(__name__)

# A FIFO queue delivers at most ten messages.
_TABLES_PARALLEL = 10
# Errors of validating an invalid transaction. Other errors, for example of a full disk, may be
# transient.
_INVALID = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(slots=True)
class CommitReport:
    """The ids of `failed` messages, which return to the queue, and the counts by table.

    The `hopeless` ones among them return at once, until they are dead letters.
    """

    failed: list[str] = field(default_factory=list)
    hopeless: set[str] = field(default_factory=set)
    counts: dict[TableRef, Counter[Status]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Request:
    """A message with its commit."""

    message_id: str
    commit: CommitMessage

    @property
    def log_extra(self) -> dict[str, object]:
        run = self.commit.run
        job_id = None if run is None else run.job_id
        return {"table": self.commit.table_id, "job_id": job_id, "message_id": self.message_id}


_Read = tuple[_Request, list[Transaction]]
"""A request with its transactions."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """A request with an outcome, and the outcome's event for the tracker."""

    request: _Request
    event: JobEvent | None


@cache
def _threads() -> ThreadPoolExecutor:
    """Returns the threads of this process, which keep their connections between batches."""
    return ThreadPoolExecutor(_TABLES_PARALLEL, "committer")


def commit_messages(instance: Instance, messages: Sequence[Message]) -> CommitReport:
    """Commits the transactions of the messages, tables in parallel, and records the outcomes."""
    report, timer = CommitReport(), MessageTimer()
    new = [message for message in messages if message.receives <= 1]
    redelivered = [message for message in messages if message.receives > 1]
    with timer.message():
        _commit_batch(instance, new, report)
    if redelivered:
        _delete_messages(instance, new, report)
    # In random order, so that a message that kills the function does not always block the same.
    for message in random.sample(redelivered, len(redelivered)):
        if timer.has_time():
            with timer.message():
                _commit_batch(instance, [message], report)
            _delete_messages(instance, [message], report)
        else:
            logger.warning(
                "message returned: not enough time left", extra={"message_id": message.message_id}
            )
            report.failed.append(message.message_id)
            return_message(instance.jobs.queue(QueueName.COMMITS), message, 0)
    return report


def _commit_batch(instance: Instance, messages: Sequence[Message], report: CommitReport) -> None:
    requests: defaultdict[TableId, list[_Request]] = defaultdict(list)
    for message in messages:
        try:
            commit = commit_message_from_json(message.body)
        except InvalidRequestError as error:
            extra = {"message_id": message.message_id}
            logger.error("message becomes a dead letter: %s", error, extra=extra)
            report.failed.append(message.message_id)
            report.hopeless.add(message.message_id)
            continue
        requests[commit.table_id].append(_Request(message.message_id, commit))
    if requests:
        _record(instance, _commit_tables(instance, report, requests), report)
    queue, policy = instance.jobs.queue(QueueName.COMMITS), RETRY_POLICIES[QueueName.COMMITS]
    for message in messages:
        if message.message_id in report.hopeless:
            return_message(queue, message, 0)
        elif message.message_id in report.failed:
            return_message(queue, message, policy.delay_seconds(message))


def _commit_tables(
    instance: Instance, report: CommitReport, requests: Mapping[TableId, Sequence[_Request]]
) -> list[_Settled]:
    """Returns the requests with an outcome. The others have failed."""
    try:
        refs = instance.tables.index.get_all(requests)
    except SleeperError:
        return _fail(list(chain.from_iterable(requests.values())), report)
    settled = _commit_jointly(instance, report, refs, requests)
    others = [table_id for table_id in requests if table_id not in settled]
    if others:
        with instance.tables.announce_commits(len(others)) as withdraw:

            def commit(table_id: TableId) -> list[_Settled]:
                try:
                    return _commit_table(instance, report, refs.get(table_id), requests[table_id])
                finally:
                    withdraw()

            commits = {table_id: _threads().submit(commit, table_id) for table_id in others}
            # If one fails, the others end before the batch does.
            wait(commits.values())
            settled |= {table_id: each.result() for table_id, each in commits.items()}
    return list(chain.from_iterable(settled.values()))


def _commit_jointly(
    instance: Instance,
    report: CommitReport,
    refs: Mapping[TableId, TableRef],
    requests: Mapping[TableId, Sequence[_Request]],
) -> dict[TableId, list[_Settled]]:
    """Commits to tables whose logs need not be read. Leaves out all others, and those in error."""
    tables: list[tuple[OpenTable, list[_Read]]] = []
    commits: list[tuple[StateStore, list[Transaction]]] = []
    for table_id, each in requests.items():
        # Objects are read in parallel.
        if table_id not in refs or any(r.commit.object_path is not None for r in each):
            continue
        # `_commit_table` meets the error too, and reports it.
        with suppress(Exception):
            table = OpenTable(instance, check_active(refs[table_id]))
            read = [(r, _read_transactions(instance, r.commit)) for r in each]
            commits.append((table.state, [t for _, transactions in read for t in transactions]))
            tables.append((table, read))
    settled: dict[TableId, list[_Settled]] = {}
    for (table, read), result in zip(tables, commit_jointly(commits), strict=True):
        if isinstance(result, UnavailableError):
            settled[table.ref.id] = _fail([r for r, _ in read], report, result)
        elif result is not None:
            settled[table.ref.id] = _settle_all(table, read, result, report)
    return settled


def _commit_table(
    instance: Instance, report: CommitReport, ref: TableRef | None, requests: Sequence[_Request]
) -> list[_Settled]:
    try:
        if ref is None:
            raise NotFoundError(f"no table has id {requests[0].commit.table_id!r}")
        table = OpenTable(instance, check_active(ref))
    except NotFoundError as error:
        return [done for each in requests for done in _reject(instance, each, str(error), report)]
    settled: list[_Settled] = []
    valid: list[_Read] = []
    for each in requests:
        try:
            valid.append((each, _read_transactions(instance, each.commit)))
        except InvalidRequestError as error:
            settled += _reject(instance, each, str(error), report)
        except NotFoundError as error:
            # The object is deleted after its outcome is recorded. A recorded outcome prevails.
            reason = f"the commit is gone: {error}"
            settled.append(_refuse(instance, each, JobStep.FAILED, reason))
        except SleeperError:
            settled += _fail([each], report)
    if valid:
        report.counts.setdefault(table.ref, Counter())
        settled += _commit_together(table, valid, report)
    return settled


def _commit_together(
    table: OpenTable, requests: Sequence[_Read], report: CommitReport
) -> list[_Settled]:
    try:
        outcomes = table.state.commit(*(t for _, transactions in requests for t in transactions))
    except SleeperError:
        return _fail([each for each, _ in requests], report)
    except Exception as error:
        if len(requests) > 1:
            # One request cannot be validated or applied, and it alone must fail.
            return [done for each in requests for done in _commit_together(table, [each], report)]
        if isinstance(error, _INVALID):
            reason = f"invalid transaction: {error!r}"
            return _reject(table.instance, requests[0][0], reason, report)
        return _fail([requests[0][0]], report)
    return _settle_all(table, requests, outcomes, report)


def _settle_all(
    table: OpenTable, requests: Sequence[_Read], outcomes: Sequence[Outcome], report: CommitReport
) -> list[_Settled]:
    settled: list[_Settled] = []
    counts = report.counts.setdefault(table.ref, Counter())
    remaining = iter(outcomes)
    for each, transactions in requests:
        own = list(islice(remaining, len(transactions)))
        counts.update(outcome.status for outcome in own)
        settled.append(_settle(table, each, transactions, own))
    return settled


def _read_transactions(instance: Instance, commit: CommitMessage) -> list[Transaction]:
    if commit.object_path is not None:
        return decode_transactions(
            parse_commit_object(instance.storage.root.read(commit.object_path))
        )
    return decode_transactions(commit.lines or ())


def _settle(
    table: OpenTable,
    request: _Request,
    transactions: Sequence[Transaction],
    outcomes: Sequence[Outcome],
) -> _Settled:
    reasons = tuple(outcome.reason for outcome in outcomes if outcome.refused)
    if reasons:
        is_final = any(is_hopeless(table.state, each) for each in transactions)
        step = JobStep.REJECTED if is_final else JobStep.FAILED
        return _refuse(table.instance, request, step, *reasons)
    logger.info("committed", extra=request.log_extra)
    return _Settled(request, _event(table.instance, request, JobStep.COMMITTED))


def _reject(
    instance: Instance, request: _Request, reason: str, report: CommitReport
) -> list[_Settled]:
    """Settles a request that can never be committed. Without a run it becomes a dead letter."""
    if request.commit.run is None:
        logger.error("message becomes a dead letter: %s", reason, extra=request.log_extra)
        report.failed.append(request.message_id)
        report.hopeless.add(request.message_id)
        return []
    return [_refuse(instance, request, JobStep.REJECTED, reason)]


def _refuse(instance: Instance, request: _Request, step: JobStep, *reasons: str) -> _Settled:
    logger.warning("commit refused: %s", "; ".join(reasons), extra=request.log_extra)
    return _Settled(request, _event(instance, request, step, reasons))


def _event(
    instance: Instance, request: _Request, step: JobStep, reasons: tuple[str, ...] = ()
) -> JobEvent | None:
    run = request.commit.run
    return None if run is None else run.event(step, instance.clock(), reasons=reasons)


def _fail(
    requests: Sequence[_Request], report: CommitReport, error: SleeperError | bool = True
) -> list[_Settled]:
    """Returns requests of unknown outcome to the queue. A retry finds applied transactions.

    The log names the `error`, by default the one that is handled.
    """
    for each in requests:
        logger.warning("commit returns to its queue", exc_info=error, extra=each.log_extra)
    report.failed += [each.message_id for each in requests]
    return []


def _record(instance: Instance, settled: Sequence[_Settled], report: CommitReport) -> None:
    """Records the outcomes. A message whose outcome could not be recorded returns."""
    try:
        instance.jobs.tracker.record(*(each.event for each in settled if each.event is not None))
    except InvalidRequestError:
        # One event can never be recorded, and it alone is left out.
        if len(settled) > 1:
            for each in settled:
                _record(instance, [each], report)
            return
        extra = settled[0].request.log_extra
        logger.error("could not record job status", exc_info=True, extra=extra)
    except SleeperError:
        _fail([each.request for each in settled], report)
        return
    _delete_objects(instance, [each.request.commit for each in settled])


def _delete_messages(instance: Instance, messages: Sequence[Message], report: CommitReport) -> None:
    """Deletes messages that are done, because the function may be killed before it returns."""
    queue = instance.jobs.queue(QueueName.COMMITS)
    for message in messages:
        if message.message_id not in report.failed:
            try:
                queue.delete(message.receipt)
            except SleeperError:
                extra = {"message_id": message.message_id}
                logger.warning("could not delete message", exc_info=True, extra=extra)


def _delete_objects(instance: Instance, commits: Sequence[CommitMessage]) -> None:
    """Deletes the objects of large commits. Orphan collection deletes what remains."""
    paths = [commit.object_path for commit in commits if commit.object_path is not None]
    try:
        instance.storage.root.delete(paths)
    except SleeperError:
        logger.warning("could not delete objects of commits", exc_info=True)
