"""The due times of schedules."""

from datetime import UTC, datetime

import pytest
from aws_croniter import AwsCroniter
from hypothesis import given
from hypothesis import strategies as st

from sleeper.clock import iso_time
from sleeper.errors import InvalidRequestError
from sleeper.schedule import (
    Schedule,
    due_run_id,
    due_run_ms,
    latest_due_ms,
    make_schedule,
    next_due_ms,
)
from tests.clock import DAY_MS, START_MS

MINUTE_MS = 60_000


def times(expression: str, count: int, since_ms: int = START_MS) -> list[str]:
    """Returns the first due times."""
    schedule, found, now_ms = make_schedule(expression, since_ms), [], since_ms
    for _ in range(count):
        due_ms = next_due_ms(schedule, now_ms)
        assert due_ms is not None
        found.append(iso_time(due_ms)[:16])
        now_ms = due_ms
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("15m", ["2026-01-01T00:15", "2026-01-01T00:30"]),
        ("1d", ["2026-01-02T00:00", "2026-01-03T00:00"]),
        ("rate(1 hour)", ["2026-01-01T01:00", "2026-01-01T02:00"]),
        ("rate(90 minutes)", ["2026-01-01T01:30", "2026-01-01T03:00"]),
        ("cron(0 6 * * ? *)", ["2026-01-01T06:00", "2026-01-02T06:00"]),
        ("cron(0/30 8-9 ? * MON-FRI *)", ["2026-01-01T08:00", "2026-01-01T08:30"]),
        ("cron(15 2 L * ? *)", ["2026-01-31T02:15", "2026-02-28T02:15"]),
        ("cron(0 0 ? * 2#1 *)", ["2026-01-05T00:00", "2026-02-02T00:00"]),
        ("cron( 0 0  1 1 ? 2027 )", ["2027-01-01T00:00"]),
    ],
)
def test_a_schedule_has_these_due_times(expression: str, expected: list[str]) -> None:
    assert times(expression, len(expected)) == expected


def test_a_rate_counts_from_the_time_at_which_it_was_set() -> None:
    assert times("1h", 2, START_MS + 17 * MINUTE_MS) == ["2026-01-01T01:17", "2026-01-01T02:17"]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("soon", "schedule 'soon' is invalid (expected a duration such as 15m"),
        ("", "schedule '' is invalid"),
        ("30s", "schedule '30s' is not between 1 minute and 366 days"),
        ("0m", "is not between 1 minute and 366 days"),
        ("367d", "is not between 1 minute and 366 days"),
        ("rate(1 week)", "is invalid (expected a duration"),
        ("cron(0 6 * * *)", "Incorrect number of values"),
        ("cron(0 6 * * * *)", "One must be a question mark"),
        ("cron(61 6 * * ? *)", "Invalid minute value '61' (expected six fields"),
        ("cron(0/0 6 * * ? *)", "step must be positive (expected six fields"),
        ("cron(0 0 LW * ? *)", "is invalid"),
        ("cron(0 0 1 1 ? 2025)", "is never due after now"),
        ("cron(0 0 30 2 ? *)", "is never due after now"),
    ],
)
def test_an_invalid_schedule_is_refused_with_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        make_schedule(expression, START_MS)
    assert reason in str(refused.value)


def test_a_run_is_due_once_for_each_time() -> None:
    schedule = make_schedule("1h", START_MS)
    first_ms = START_MS + 60 * MINUTE_MS
    assert due_run_ms(schedule, None, first_ms - 1) is None
    assert due_run_ms(schedule, None, first_ms) == first_ms
    assert due_run_ms(schedule, first_ms, first_ms + 59 * MINUTE_MS) is None
    assert due_run_ms(schedule, first_ms, first_ms + 60 * MINUTE_MS) == first_ms + 60 * MINUTE_MS


@pytest.mark.parametrize("expression", ["1m", "cron(* * * * ? *)"])
def test_times_that_were_missed_are_caught_up_by_one_run(expression: str) -> None:
    schedule = make_schedule(expression, START_MS)
    late_ms = START_MS + 1000 * DAY_MS + 30_000
    due_ms = due_run_ms(schedule, START_MS + MINUTE_MS, late_ms)
    assert due_ms == START_MS + 1000 * DAY_MS
    assert due_run_ms(schedule, due_ms, late_ms) is None


def test_an_earlier_time_than_the_last_run_is_not_due() -> None:
    # The clock of this machine is behind that of the one that sent the last run.
    schedule = make_schedule("1h", START_MS)
    assert due_run_ms(schedule, START_MS + DAY_MS, START_MS + DAY_MS // 2) is None


def test_a_last_run_of_a_wrong_clock_does_not_stop_the_schedule() -> None:
    schedule = make_schedule("1h", START_MS)
    now_ms = START_MS + DAY_MS
    assert due_run_ms(schedule, START_MS + 365 * DAY_MS, now_ms) == now_ms


def test_the_id_of_a_run_is_its_due_time() -> None:
    assert due_run_id(START_MS + 90 * MINUTE_MS) == "20260101T013000Z"


RATES = ("7m", "3h", "2d")
CRONS = ("5/20 * * * ?", "0 3 ? * SUN,WED", "30 12 31 * ?", "0 0 1 3-4 ?", "0 0 ? * 6L")


@given(
    st.sampled_from([*RATES, *(f"cron({cron} *)" for cron in CRONS)]),
    st.integers(0, 10**11),
    st.integers(0, 10**11),
)
def test_no_due_time_is_between_the_latest_and_the_next(
    expression: str, since_ms: int, passed_ms: int
) -> None:
    schedule = Schedule(expression, START_MS + since_ms // 1000 * 1000)
    now_ms = schedule.since_ms + passed_ms
    latest_ms, next_ms = latest_due_ms(schedule, now_ms), next_due_ms(schedule, now_ms)
    assert next_ms is not None
    assert next_ms > now_ms
    if latest_ms is None:
        assert next_due_ms(schedule, schedule.since_ms) == next_ms
    else:
        assert schedule.since_ms < latest_ms <= now_ms
        assert next_due_ms(schedule, latest_ms) == next_ms


def test_the_library_still_misses_earlier_times() -> None:
    # When this fails, `latest_due_ms` can use the library's own search.
    now = datetime(2027, 10, 7, tzinfo=UTC)
    assert AwsCroniter("0 9 * 11 ? *").get_prev(now) == [None]
