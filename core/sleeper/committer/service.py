"""The committer: commits what runs sent, the messages of a table as one entry of its log.

A refusal is an outcome like another: its run is told, and the message is done. So is what can
never be committed (a table that is gone, a transaction that cannot be read), if the message
names a run to tell; if not, it fails until it is among the dead letters. What fails for a reason
that may pass returns, with all others of its entry. A message that comes again finds its
transactions done, so its outcome is the same; it is done only when the tracker knows.

A message that was received before may be the one that failed its batch, or killed the function. So
it is committed alone, after the others, and each message is deleted as soon as it is done.
"""

import logging
import random
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobEvent, JobStep
from sleeper.jobs.queue import Message, QueueName
from sleeper.runs.remaining_time import MessageTimer
from sleeper.runs.retry import return_after, return_soon
from sleeper.statestore.commit_message import (
    CommitMessage,
    commit_message_from_json,
    decode_transactions,
    parse_commit_object,
)
from sleeper.statestore.transactions.transaction import Outcome, Status, Transaction
from sleeper.tables.table_index import find_table
from sleeper.tables.table_ref import TableId, TableRef

logger = logging.getLogger(__name__)

_TABLES_AT_ONCE = 8
# What judging raises of a transaction that makes no sense. Anything else, such as a disk that
# is full, is of this machine, and may pass.
_SENSELESS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(slots=True)
class CommitCounts:
    """What became of the transactions of a table."""

    applied: int = 0
    already_done: int = 0
    refused: int = 0


@dataclass(slots=True)
class CommitReport:
    """What became of messages: `failed` are the ids of those that must come again.

    The `hopeless` among them only until they are dead letters.
    """

    failed: list[str] = field(default_factory=list)
    hopeless: set[str] = field(default_factory=set)
    counts: dict[TableRef, CommitCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A message that asks for a commit."""

    message_id: str
    commit: CommitMessage

    def told(self) -> dict[str, object]:
        """What log lines on it say."""
        run = self.commit.run
        job_id = None if run is None else run.job_id
        return {"table": self.commit.table_id, "job_id": job_id, "message_id": self.message_id}


@dataclass(frozen=True, slots=True)
class _Settled:
    """A message with its outcome, and what the tracker is to be told of it."""

    wanted: _Wanted
    event: JobEvent | None


def commit_messages(instance: Instance, messages: Sequence[Message]) -> CommitReport:
    """Commits what the messages ask for, tables beside each other, and tells the tracker."""
    report, timer = CommitReport(), MessageTimer()
    first = [message for message in messages if message.receives <= 1]
    again = [message for message in messages if message.receives > 1]
    with timer.message():
        _commit_batch(instance, first, report)
    if again:
        _acknowledge(instance, first, report)
    # At random: one that kills the function must not always be before the same others.
    for message in random.sample(again, len(again)):
        if timer.has_time():
            with timer.message():
                _commit_batch(instance, [message], report)
            _acknowledge(instance, [message], report)
        else:
            logger.warning("no time left", extra={"message_id": message.message_id})
            report.failed.append(message.message_id)
            return_after(instance.jobs.queue(QueueName.COMMITS), message, 0)
    return report


def _commit_batch(instance: Instance, messages: Sequence[Message], report: CommitReport) -> None:
    by_table: defaultdict[TableId, list[_Wanted]] = defaultdict(list)
    for message in messages:
        try:
            commit = commit_message_from_json(message.body)
        except InvalidRequestError as error:
            told = {"message_id": message.message_id}
            logger.error("left to the dead letters: %s", error, extra=told)
            report.failed.append(message.message_id)
            report.hopeless.add(message.message_id)
            continue
        by_table[commit.table_id].append(_Wanted(message.message_id, commit))
    if by_table:
        with ThreadPoolExecutor(min(len(by_table), _TABLES_AT_ONCE)) as threads:
            work = partial(_commit_table, instance, report)
            settled = list(chain.from_iterable(threads.map(work, by_table, by_table.values())))
        _tell(instance, settled, report)
    _return(instance, messages, report)


def _commit_table(
    instance: Instance, report: CommitReport, table_id: TableId, wanted: Sequence[_Wanted]
) -> list[_Settled]:
    """The messages that have an outcome; those without one have failed."""
    try:
        table = OpenTable(instance, find_table(instance.tables.index, None, table_id))
    except NotFoundError as error:
        return [done for each in wanted for done in _rejected(instance, each, str(error), report)]
    except SleeperError:
        return _failed(wanted, report)
    settled: list[_Settled] = []
    legible: list[tuple[_Wanted, list[Transaction]]] = []
    for each in wanted:
        try:
            legible.append((each, _transactions_of(instance, each.commit)))
        except InvalidRequestError as error:
            settled += _rejected(instance, each, str(error), report)
        except NotFoundError as error:
            # It was there until its outcome was told: which stands, if there was one.
            reason = f"the commit is gone: {error}"
            settled.append(_refused(instance, each, JobStep.FAILED, reason))
        except SleeperError:
            settled += _failed([each], report)
    if legible:
        report.counts.setdefault(table.ref, CommitCounts())
        settled += _commit_together(table, legible, report)
    return settled


def _commit_together(
    table: OpenTable, wanted: Sequence[tuple[_Wanted, list[Transaction]]], report: CommitReport
) -> list[_Settled]:
    try:
        outcomes = table.state.commit(*(t for _, transactions in wanted for t in transactions))
    except SleeperError:
        return _failed([each for each, _ in wanted], report)
    except Exception as error:
        if len(wanted) > 1:
            # One of them cannot be judged or applied: it alone must fail.
            return [done for alone in wanted for done in _commit_together(table, [alone], report)]
        if isinstance(error, _SENSELESS):
            reason = f"the commit cannot be judged: {error!r}"
            return _rejected(table.instance, wanted[0][0], reason, report)
        return _failed([wanted[0][0]], report)
    settled: list[_Settled] = []
    remaining = iter(outcomes)
    for each, transactions in wanted:
        own = list(islice(remaining, len(transactions)))
        _count(own, report.counts[table.ref])
        settled.append(_settled(table.instance, each, own))
    return settled


def _transactions_of(instance: Instance, commit: CommitMessage) -> list[Transaction]:
    if commit.object_path is not None:
        return decode_transactions(
            parse_commit_object(instance.storage.root.read(commit.object_path))
        )
    return decode_transactions(commit.lines or ())


def _settled(instance: Instance, wanted: _Wanted, outcomes: Sequence[Outcome]) -> _Settled:
    reasons = tuple(outcome.reason for outcome in outcomes if outcome.refused)
    if reasons:
        return _refused(instance, wanted, JobStep.FAILED, *reasons)
    logger.info("committed", extra=wanted.told())
    return _Settled(wanted, _event(instance, wanted, JobStep.COMMITTED))


def _rejected(
    instance: Instance, wanted: _Wanted, reason: str, report: CommitReport
) -> list[_Settled]:
    """It can never be committed. Without a run to tell so it is left to the dead letters."""
    if wanted.commit.run is None:
        logger.error("left to the dead letters: %s", reason, extra=wanted.told())
        report.failed.append(wanted.message_id)
        report.hopeless.add(wanted.message_id)
        return []
    return [_refused(instance, wanted, JobStep.REJECTED, reason)]


def _refused(instance: Instance, wanted: _Wanted, step: JobStep, *reasons: str) -> _Settled:
    logger.warning("commit refused: %s", "; ".join(reasons), extra=wanted.told())
    return _Settled(wanted, _event(instance, wanted, step, reasons))


def _event(
    instance: Instance, wanted: _Wanted, step: JobStep, reasons: tuple[str, ...] = ()
) -> JobEvent | None:
    run = wanted.commit.run
    return None if run is None else run.event(step, instance.clock(), reasons=reasons)


def _failed(wanted: Sequence[_Wanted], report: CommitReport) -> list[_Settled]:
    """Not known how far they came. What comes again finds what was done."""
    for each in wanted:
        logger.warning("the commit returns to the queue", exc_info=True, extra=each.told())
    report.failed += [each.message_id for each in wanted]
    return []


def _tell(instance: Instance, settled: Sequence[_Settled], report: CommitReport) -> None:
    """Tells the tracker; a message that it does not take the outcome of must come again."""
    try:
        instance.jobs.tracker.record(*(each.event for each in settled if each.event is not None))
    except InvalidRequestError:
        # One of them can never be told: it alone is left out.
        if len(settled) > 1:
            for each in settled:
                _tell(instance, [each], report)
            return
        logger.error("the tracker was not told", exc_info=True, extra=settled[0].wanted.told())
    except SleeperError:
        _failed([each.wanted for each in settled], report)
        return
    _delete_objects(instance, [each.wanted.commit for each in settled])


def _return(instance: Instance, messages: Sequence[Message], report: CommitReport) -> None:
    """Shows those that failed again; the hopeless at once, so that they are dead letters soon."""
    for message in messages:
        if message.message_id in report.hopeless:
            return_after(instance.jobs.queue(QueueName.COMMITS), message, 0)
        elif message.message_id in report.failed:
            return_soon(instance.jobs.queue(QueueName.COMMITS), message)


def _acknowledge(instance: Instance, messages: Sequence[Message], report: CommitReport) -> None:
    """Deletes those that are done, for the case that the function is killed before it returns."""
    queue = instance.jobs.queue(QueueName.COMMITS)
    for message in messages:
        if message.message_id not in report.failed:
            try:
                queue.delete(message.receipt)
            except SleeperError:
                told = {"message_id": message.message_id}
                logger.warning("could not delete a message", exc_info=True, extra=told)


def _delete_objects(instance: Instance, commits: Sequence[CommitMessage]) -> None:
    """One that stays behind is an orphan, and collected as such."""
    paths = [commit.object_path for commit in commits if commit.object_path is not None]
    try:
        instance.storage.root.delete(paths)
    except SleeperError:
        logger.warning("bodies of commits were left", exc_info=True)


def _count(outcomes: Sequence[Outcome], counts: CommitCounts) -> None:
    for outcome in outcomes:
        match outcome.status:
            case Status.APPLIED:
                counts.applied += 1
            case Status.ALREADY_DONE:
                counts.already_done += 1
            case Status.REFUSED:
                counts.refused += 1
