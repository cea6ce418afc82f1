"""Controls the stashes that workers make: plans them, sends their tasks, and ends them.

A function does it on AWS every minute, and `sleeper run` locally. Every step can be repeated, also
by two processes at once.
"""

import logging
from dataclasses import dataclass, replace

from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.instance import Instance
from sleeper.properties.instance import STASH_HOURS_MAX
from sleeper.stash.cut import LostTableError, keep_cuts
from sleeper.stash.finish import (
    complete_stash,
    describe_decision,
    end_stash,
    fail_stash,
    hold_owner,
    is_finished,
)
from sleeper.stash.layout import root_time_ms
from sleeper.stash.message import make_sender
from sleeper.stash.record import Outcome, StashRecord, StashRecords

logger = logging.getLogger(__name__)
_HOUR_MS = 3_600_000


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
    if instance.clock() - root_time_ms(record.name) > hours * _HOUR_MS:
        fail_stash(instance, record, f"it was not complete after {hours} h")
        return replace(report, ended=(*report.ended, record.name))
    owner = hold_owner(instance, record)
    was_planned = record.cuts() is not None
    cuts = plan_stash(instance, record, owner, make_sender(instance, record))
    keep_cuts(instance, cuts, owner)
    if not was_planned:
        report = replace(report, planned=(*report.planned, record.name))
    if is_finished(record):
        complete_stash(instance, record)
        report = replace(report, ended=(*report.ended, record.name))
    return report


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
