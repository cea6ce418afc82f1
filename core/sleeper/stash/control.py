"""Controls the stashes that workers make: plans them, sends their tasks, and ends them.

A function does it on AWS every minute, and `sleeper run` locally. Every step can be repeated, also
by two processes at once.
"""

import logging
from dataclasses import dataclass, replace

from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.instance import Instance
from sleeper.properties.instance import STASH_HOURS_MAX
from sleeper.stash.cut import LostTableError, hold_minutes, keep_cuts
from sleeper.stash.finish import (
    complete_stash,
    describe_decision,
    end_stash,
    fail_stash,
    hold_owner,
    is_finished,
)
from sleeper.stash.message import make_sender
from sleeper.stash.record import Cut, Outcome, StashRecord, StashRecords

logger = logging.getLogger(__name__)
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class ControlReport:
    """The names of stashes that were planned or ended, and errors as text."""

    planned: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def control_stashes(instance: Instance) -> ControlReport:
    """Takes each stash that workers make one step on. An error does not stop the others."""
    report = ControlReport()
    for record in StashRecords(instance.storage.root).running():
        if not record.request.submitted:
            continue
        try:
            report = _control(instance, record, report)
        except SleeperError as error:
            if isinstance(error, LostTableError):
                fail_stash(instance, record, str(error))
            problem = f"stash {record.name} of {record.request.destination}: {error}"
            logger.warning("%s", problem)
            report = replace(report, problems=(*report.problems, problem))
    return report


def _control(instance: Instance, record: StashRecord, report: ControlReport) -> ControlReport:
    from sleeper.stash.planning import plan_stash

    decision = record.decision()
    if decision is not None:
        end_stash(instance, record, decision)
        return replace(report, ended=(*report.ended, record.name))
    hours = instance.properties().get(STASH_HOURS_MAX)
    if instance.clock() - record.request.started_ms > hours * _HOUR_MS:
        fail_stash(instance, record, f"it was not complete after {hours} h")
        return replace(report, ended=(*report.ended, record.name))
    owner = hold_owner(instance, record)
    was_planned = record.cuts() is not None
    cuts = plan_stash(instance, record, owner, make_sender(instance, record))
    _keep(instance, record, cuts, owner)
    if not was_planned:
        report = replace(report, planned=(*report.planned, record.name))
    if is_finished(record):
        complete_stash(instance, record)
        report = replace(report, ended=(*report.ended, record.name))
    return report


def _keep(instance: Instance, record: StashRecord, cuts: tuple[Cut, ...], owner: str) -> None:
    """Renews the holds in time, because that opens the state of each table.

    If a task fails, its cut may have been collected, so they are renewed at once.
    """
    now_ms = instance.clock()
    is_due = now_ms - record.kept_ms() > hold_minutes(instance) * _MINUTE_MS // 3
    if is_due or record.problems():
        keep_cuts(instance, cuts, owner)
        record.record_kept(now_ms)


def recover_stash(instance: Instance, record: StashRecord) -> int:
    """Sends the tasks of a stash that are not done to workers again, and returns their number.

    Its cuts stay the same. LostTableError if files of one were collected, InvalidRequestError if
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
        cuts = plan_stash(instance, record, owner)
        keep_cuts(instance, cuts, owner)
    except LostTableError as error:
        fail_stash(instance, record, str(error))
        raise
    return send_unfinished(record, cuts, make_sender(instance, record))


def check_recoverable(record: StashRecord) -> None:
    """Raises InvalidRequestError if a stash has ended."""
    decision = record.decision()
    if decision is not None and (
        decision.outcome is not Outcome.COMPLETE or not record.is_running()
    ):
        raise InvalidRequestError(
            f"stash {record.name} was {describe_decision(decision)} (make another one)"
        )
