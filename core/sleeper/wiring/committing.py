"""The committer: commits what runs sent, the messages of a table as one entry of its log.

A refusal is an outcome like another: its run is told, and the message is done. So is one that
can never be committed (a table that is gone, a transaction that cannot be read), if it names a
run to tell; if it does not, it fails until it is among the dead letters. What fails for a reason
that may pass returns, with all others of its table. A message that comes again finds its
transactions done, so its outcome is the same.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.jobs.event import JobEvent, JobStep
from sleeper.jobs.queue import Message
from sleeper.statestore.commit_message import (
    CommitMessage,
    commit_message_from_json,
    lines_of_object,
    transactions_of,
)
from sleeper.statestore.outcome import Outcome, Status
from sleeper.statestore.transactions.transaction import Transaction
from sleeper.tables.table_index import find_table
from sleeper.tables.table_ref import TableId, TableRef
from sleeper.wiring.instance import Instance, OpenTable

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CommitCounts:
    """What became of the transactions of a table."""

    applied: int = 0
    already_done: int = 0
    refused: int = 0


@dataclass(slots=True)
class CommitReport:
    """What became of messages: `failed` are the ids of those that must come again."""

    failed: list[str] = field(default_factory=list)
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


def commit_messages(instance: Instance, messages: Sequence[Message]) -> CommitReport:
    """Commits what the messages ask for."""
    report = CommitReport()
    by_table: defaultdict[TableId, list[_Wanted]] = defaultdict(list)
    for message in messages:
        try:
            commit = commit_message_from_json(message.body)
        except InvalidRequestError as error:
            logger.error(
                "left to the dead letters: %s", error, extra={"message_id": message.message_id}
            )
            report.failed.append(message.message_id)
            continue
        by_table[commit.table_id].append(_Wanted(message.message_id, commit))
    for table_id, wanted in by_table.items():
        try:
            _commit_table(instance, table_id, wanted, report)
        except Exception:
            # Not known how far it came. All that comes again finds what was done.
            logger.exception("commits return to the queue", extra={"table": table_id})
            told_before = set(report.failed)
            report.failed += [w.message_id for w in wanted if w.message_id not in told_before]
    return report


def _commit_table(
    instance: Instance, table_id: TableId, wanted: Sequence[_Wanted], report: CommitReport
) -> None:
    try:
        table = OpenTable(instance, find_table(instance.tables, None, table_id))
    except NotFoundError as error:
        for each in wanted:
            _refuse(instance, each, JobStep.REJECTED, str(error), report)
        return
    legible: list[tuple[_Wanted, list[Transaction]]] = []
    for each in wanted:
        try:
            legible.append((each, _transactions_of(instance, each.commit)))
        except InvalidRequestError as error:
            _refuse(instance, each, JobStep.REJECTED, str(error), report)
        except NotFoundError as error:
            # It was there until its outcome was told: which stands, if there was one.
            _refuse(instance, each, JobStep.FAILED, f"the commit is gone: {error}", report)
    if legible:
        counts = report.counts.setdefault(table.ref, CommitCounts())
        _commit_together(table, legible, counts, report)


def _commit_together(
    table: OpenTable,
    wanted: Sequence[tuple[_Wanted, list[Transaction]]],
    counts: CommitCounts,
    report: CommitReport,
) -> None:
    try:
        outcomes = table.state.commit(*(t for _, transactions in wanted for t in transactions))
    except SleeperError:
        raise
    except Exception as error:
        # One of them cannot even be judged: it alone must fail.
        if len(wanted) == 1:
            reason = f"the commit cannot be judged: {error!r}"
            _refuse(table.instance, wanted[0][0], JobStep.REJECTED, reason, report)
            return
        for alone in wanted:
            _commit_together(table, [alone], counts, report)
        return
    events: list[JobEvent] = []
    remaining = iter(outcomes)
    for each, transactions in wanted:
        own = list(islice(remaining, len(transactions)))
        _count(own, counts)
        events += _outcome_of(table.instance, each, own)
    table.instance.jobs.record(*events)
    _delete_objects(table.instance, [each.commit for each, _ in wanted])


def _transactions_of(instance: Instance, commit: CommitMessage) -> list[Transaction]:
    if commit.object_path is not None:
        return transactions_of(lines_of_object(instance.root.read(commit.object_path)))
    return transactions_of(commit.lines or ())


def _outcome_of(instance: Instance, wanted: _Wanted, outcomes: Sequence[Outcome]) -> list[JobEvent]:
    reasons = tuple(outcome.reason for outcome in outcomes if outcome.refused)
    what = f"refused: {'; '.join(reasons)}" if reasons else "done"
    logger.info("commit %s", what, extra=wanted.told())
    if wanted.commit.run is None:
        return []
    step = JobStep.FAILED if reasons else JobStep.COMMITTED
    return [wanted.commit.run.event(step, instance.clock(), reasons=reasons)]


def _refuse(
    instance: Instance, wanted: _Wanted, step: JobStep, reason: str, report: CommitReport
) -> None:
    """Tells the run, and is done with the message; without a run to tell it fails."""
    run = wanted.commit.run
    if run is None:
        logger.error("left to the dead letters: %s", reason, extra=wanted.told())
        report.failed.append(wanted.message_id)
        return
    logger.warning("commit refused: %s", reason, extra=wanted.told())
    instance.jobs.record(run.event(step, instance.clock(), reasons=(reason,)))
    _delete_objects(instance, [wanted.commit])


def _delete_objects(instance: Instance, commits: Sequence[CommitMessage]) -> None:
    """One that stays behind is an orphan, and collected as such."""
    paths = [commit.object_path for commit in commits if commit.object_path is not None]
    if not paths:
        return
    try:
        instance.root.delete(paths)
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
