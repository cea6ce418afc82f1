"""Versions by number, time and age."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.statestore.version import PointInTime, parse_version, parse_version_text
from tests.tables.state_table import StateTable

NOON_MS = 1_769_860_800_000
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [
        ("2026-01-31T12:00:00Z", NOON_MS),
        ("2026-01-31T12:00:00.250Z", NOON_MS + 250),
        ("2026-01-31 12:00", NOON_MS),
        ("2026-01-31T13:30:00+01:30", NOON_MS),
        ("2026-01-31", NOON_MS - 12 * 3_600_000),
        ("90s", NOON_MS - 90_000),
        ("30m", NOON_MS - 1_800_000),
        ("2h", NOON_MS - 7_200_000),
        ("2d", NOON_MS - 2 * 86_400_000),
        ("1w", NOON_MS - 7 * 86_400_000),
        (NOON, NOON_MS),
        (NOON.replace(tzinfo=None), NOON_MS),
        (NOON.astimezone(timezone(timedelta(hours=-5))), NOON_MS),
    ],
)
def test_times_and_ages_are_points_in_time(value: object, time_ms: int) -> None:
    point = parse_version(value, lambda: NOON_MS)
    assert isinstance(point, PointInTime)
    assert point.time_ms == time_ms


def test_digits_of_an_option_are_a_number() -> None:
    assert (parse_version(3), parse_version_text("3")) == (3, 3)
    assert parse_version_text("20260131") == 20_260_131


@pytest.mark.parametrize(
    "value", ["", "x", "3", "20260131", "-1", "2 h", "2y", "²h", "yesterday", "25:00", 0, 1.5, True]
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"as of .*: expected a transaction number"):
        parse_version(value)


def test_time_selects_the_last_transaction_at_or_before_it(tmp_path: Path) -> None:
    table = StateTable(tmp_path, "embedded").initialise()
    start_ms = table.clock.now_ms
    for path, milliseconds in (("a", 1000), ("b", 0), ("c", 1000), ("d", 5000)):
        table.clock.now_ms += milliseconds
        table.ingest(path)
    with table.store.reading() as state:
        assert state.number == 5

    def version_at(offset_ms: int) -> int:
        with table.store.reading(PointInTime(start_ms + offset_ms, "then")) as state:
            return state.version

    offsets = (0, 999, 1000, 1999, 2000, 6999, 7000, 10**9)
    assert [version_at(each) for each in offsets] == [1, 1, 3, 3, 4, 4, 5, 5]
    with pytest.raises(InvalidRequestError, match="as of then: the table did not exist: its "):
        version_at(-1)
