"""The times at which scheduled work of systems is due.

A schedule is a *rate*, whose due times are whole periods after the schedule was set, or a *cron
expression* of EventBridge in UTC. A due time that passed while nothing looked is caught up by one
run, of the latest. The run's id is derived from the due time, so that all processes that find a
run due name the same one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from aws_croniter import AwsCroniter

from sleeper.clock import parse_duration
from sleeper.errors import InvalidRequestError

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
_LATE_MS = 5 * _MINUTE_MS
_PERIOD_MS_MAX = 366 * _DAY_MS
_RATE = re.compile(r"rate\(([0-9]{1,9}) (minute|hour|day)s?\)")
_CRON = re.compile(r"cron\((.*)\)")
_EXPECTED = 'a duration such as 15m, "rate(1 hour)" or "cron(0 6 * * ? *)"'


@dataclass(frozen=True, slots=True)
class Schedule:
    """An expression, and the time at which it was set. Nothing is due before that."""

    expression: str
    since_ms: int


def make_schedule(expression: str, now_ms: int) -> Schedule:
    """Returns the schedule that begins now.

    InvalidRequestError if the expression is invalid or will never be due.
    """
    schedule = Schedule(expression.strip(), now_ms // 1000 * 1000)
    if next_due_ms(schedule, now_ms) is None:
        raise InvalidRequestError(
            f"schedule {expression!r} is never due after now (expected a future time)"
        )
    return schedule


def latest_due_ms(schedule: Schedule, now_ms: int) -> int | None:
    """Returns the latest due time that is not in the future, or None."""
    since_ms = schedule.since_ms
    following = _following(schedule)
    first_ms = following(since_ms)
    if first_ms is None or first_ms > now_ms:
        return None
    # The library's search for earlier times misses some, so only its search for the next is used:
    # a bisection finds a time after which the next due time is the latest one.
    early_ms, late_ms = since_ms, now_ms
    while late_ms - early_ms > 1:
        middle_ms = (early_ms + late_ms) // 2
        due_ms = following(middle_ms)
        if due_ms is not None and due_ms <= now_ms:
            early_ms = middle_ms
        else:
            late_ms = middle_ms
    return following(early_ms)


def next_due_ms(schedule: Schedule, now_ms: int) -> int | None:
    """Returns the first due time in the future; None if there is none."""
    return _following(schedule)(max(now_ms, schedule.since_ms))


def due_run_ms(schedule: Schedule, last_ms: int | None, now_ms: int) -> int | None:
    """Returns the due time to run now, or None. `last_ms` is the due time of the last run.

    A last run more than a day ahead was sent by a wrong clock, and must not stop the schedule.
    """
    if last_ms is not None and last_ms > now_ms + _DAY_MS:
        last_ms = None
    due_ms = latest_due_ms(schedule, now_ms)
    return None if due_ms is None or (last_ms is not None and due_ms <= last_ms) else due_ms


def missed_due_ms(schedule: Schedule, last_ms: int | None, now_ms: int) -> int | None:
    """Returns the due time that passed without a run, long enough ago for any worker; else None."""
    return due_run_ms(schedule, last_ms, now_ms - _LATE_MS)


def due_run_id(due_ms: int) -> str:
    """Returns the id of the run of a due time, such as `20261123T060000Z`."""
    return datetime.fromtimestamp(due_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")


def _following(schedule: Schedule) -> Callable[[int], int | None]:
    """Returns the function that returns the first due time after a time."""
    period_ms = _period_ms(schedule.expression)
    if period_ms is not None:
        since_ms = schedule.since_ms
        return lambda time_ms: since_ms + ((time_ms - since_ms) // period_ms + 1) * period_ms
    cron = _cron(schedule.expression)

    def following(time_ms: int) -> int | None:
        after = datetime.fromtimestamp(time_ms // 1000, UTC)
        result: datetime | None = cron.get_next(after)[0]
        return None if result is None else int(result.timestamp()) * 1000

    return following


def _period_ms(expression: str) -> int | None:
    """Returns the period of a rate; None for another expression."""
    rate = _RATE.fullmatch(expression)
    period_ms = parse_duration(f"{rate[1]}{rate[2][0]}" if rate else expression)
    if period_ms is None:
        return None
    if not _MINUTE_MS <= period_ms <= _PERIOD_MS_MAX:
        raise InvalidRequestError(f"schedule {expression!r} is not between 1 minute and 366 days")
    return period_ms


def _cron(expression: str) -> AwsCroniter:
    match = _CRON.fullmatch(expression)
    if match is None:
        raise InvalidRequestError(f"schedule {expression!r} is invalid (expected {_EXPECTED})")
    try:
        return AwsCroniter(" ".join(match[1].split()))
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise InvalidRequestError(
            f"schedule {expression!r} is invalid: {reason} (expected six fields: minutes, hours, "
            "day of month, month, day of week, year)"
        ) from error
