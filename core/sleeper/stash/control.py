"""Controls the stashes that workers make: plans them, sends their tasks, and ends them.

A function does it on AWS every minute, and `sleeper run` locally. Every step can be repeated, also
by two processes at once.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sleeper.errors import ConflictError, InvalidRequestError, SleeperError
from sleeper.instance import Instance
from sleeper.runs.lock import lock_root
from sleeper.stash.due import start_due_stashes
from sleeper.stash.finish import (
    complete_stash,
    describe_decision,
    end_stash,
    fail_stash,
    hold_owner,
)
from sleeper.stash.message import make_sender
from sleeper.stash.progress import Progress, TableProgress
from sleeper.stash.properties import STASH_HOURS_MAX
from sleeper.stash.record import Outcome, StashRecord, TableVersion
from sleeper.stash.record_index import StashRecords
from sleeper.stash.spark_table import spark_bytes, watch_platform
from sleeper.stash.table_choice import describe_omitted, read_omitted
from sleeper.stash.versions import LostTableError, hold_minutes, renew_holds

logger = logging.getLogger(__name__)
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


@dataclass(slots=True)
class ControlReport:
    """The names of stashes that were planned or have ended, and errors as text.

    `partial` are the planned ones that omit tables.
    """

    planned: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def ended(self) -> tuple[str, ...]:
        return self.completed + self.failed + self.cancelled

    def add_end(self, record: StashRecord, outcome: Outcome) -> None:
        match outcome:
            case Outcome.COMPLETE:
                self.completed += (record.name,)
            case Outcome.FAILED:
                self.failed += (record.name,)
            case Outcome.CANCELLED:
                self.cancelled += (record.name,)

    def add_problem(self, record: StashRecord, error: Exception | str) -> None:
        problem = f"stash {record.name} of {record.request.destination}: {error}"
        logger.warning("%s", problem)
        self.problems += (problem,)


def control_stashes(instance: Instance) -> ControlReport:
    """Takes each stash that workers make one step on. An error does not stop the others."""
    report = ControlReport()
    for record in StashRecords(instance.storage.root).running():
        if not record.is_submitted():
            continue
        try:
            _control_or_fail(instance, record, report)
        except SleeperError as error:
            report.add_problem(record, error)
    return report


def advance_stashes(instance: Instance, due_ms: int | None) -> tuple[bool, Sequence[str]]:
    """Starts due stashes and advances running ones. Returns whether any moved, and the problems."""
    due = start_due_stashes(instance, due_ms)
    report = control_stashes(instance)
    did_anything = bool(due.started or report.planned or report.ended)
    return did_anything, (*due.problems, *report.problems)


def _control_or_fail(instance: Instance, record: StashRecord, report: ControlReport) -> None:
    try:
        _control(instance, record, report)
    except LostTableError as error:
        _fail(instance, record, str(error), report)
        report.add_problem(record, error)


def _control(instance: Instance, record: StashRecord, report: ControlReport) -> None:
    decision = record.decision()
    if decision is not None:
        end_stash(instance, record, decision)
        report.add_end(record, decision.outcome)
        return
    hours = instance.properties().get(STASH_HOURS_MAX)
    if instance.clock() - record.request.started_ms > hours * _HOUR_MS:
        _fail(instance, record, f"it was not complete after {hours} h", report)
        return
    versions, progress = record.versions(), record.progress()
    tables = [progress.get(version.id, TableProgress()) for version in versions or ()]
    if versions is None or not all(each.is_planned for each in tables):
        _plan(instance, record, progress, report)
        return
    _keep(instance, record, versions, progress)
    watch_platform(instance, record, progress, make_sender(instance, record))
    # Tasks that are done meanwhile count in the next step.
    if all(each.is_done for each in tables):
        complete_stash(instance, record)
        report.add_end(record, Outcome.COMPLETE)


def _keep(
    instance: Instance, record: StashRecord, versions: tuple[TableVersion, ...], progress: Progress
) -> None:
    """Renews the holds in time, because that opens the state of each table.

    If a task fails, its version may have been collected, so they are renewed at once.
    """
    now_ms = instance.clock()
    is_due = now_ms - record.kept_ms() > hold_minutes(instance) * _MINUTE_MS // 3
    if is_due or record.problems(progress):
        renew_holds(instance, versions, hold_owner(instance, record))
        record.record_kept(now_ms)


def _plan(
    instance: Instance, record: StashRecord, progress: Progress, report: ControlReport
) -> None:
    """Plans a stash, unless another process does."""
    from sleeper.stash.planning import plan_stash

    owner = hold_owner(instance, record)
    with ExitStack() as locked:
        try:
            lock = lock_root(record.own, record.lock_path, "a planner", instance.clock)
            locked.enter_context(lock)
        except ConflictError as error:
            # Two planners would send all tasks twice.
            logger.info("stash %s is being planned: %s", record.name, error)
            return
        # A planner that died may have had hours.
        _keep(instance, record, record.versions() or (), progress)
        send = make_sender(instance, record)
        versions = plan_stash(instance, record, owner, send, spark_bytes=spark_bytes(instance))
        _keep(instance, record, versions, progress)
    report.planned += (record.name,)
    if (omitted := describe_omitted(read_omitted(record))) is not None:
        report.partial += (record.name,)
        report.add_problem(record, omitted)


def _fail(instance: Instance, record: StashRecord, reason: str, report: ControlReport) -> None:
    report.add_end(record, fail_stash(instance, record, reason).outcome)


def recover_stash(instance: Instance, record: StashRecord) -> int:
    """Sends the tasks of a stash that are not done to workers again, and returns their number.

    Versions stay the same. LostTableError if files of one were collected, InvalidRequestError if
    the stash has ended.
    """
    from sleeper.stash.planning import plan_stash, send_unfinished

    check_recoverable(record)
    decision = record.decision()
    if decision is not None:
        end_stash(instance, record, decision)
        return 0
    owner = hold_owner(instance, record)
    try:
        versions = plan_stash(instance, record, owner, spark_bytes=spark_bytes(instance))
        renew_holds(instance, versions, owner)
    except LostTableError as error:
        fail_stash(instance, record, str(error))
        raise
    sent = send_unfinished(record, versions, make_sender(instance, record))
    # From now on, the control function completes it.
    record.submit()
    return sent


def check_recoverable(record: StashRecord) -> None:
    """Raises InvalidRequestError if a stash has ended."""
    decision = record.decision()
    if decision is not None and (
        decision.outcome is not Outcome.COMPLETE or not record.is_running()
    ):
        raise InvalidRequestError(
            f"stash {record.name} {describe_decision(decision)} (make another one)"
        )
