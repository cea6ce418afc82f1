"""Timestamps: Athena reads milliseconds, and bounds that may mean another time are hints.

Answers to plausible bounds are exact. Answers to hints contain all rows that may meet them, and
Athena's own filter makes them exact.
"""

import datetime as dt

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from tests.unit.athena.protocol import DATE_MILLI, Athena, Json, among, block, plain_rows, ranges

SCHEMA = """{"rowKeyFields":[{"name":"k","type":"TimestampType"}],
 "valueFields":[{"name":"t","type":"TimestampType","nullable":true}]}"""
START_MS = 1_577_836_800_000
# An hour apart; the first ones are before 1970, and each is later than its millisecond.
MILLIS = [-7_200_001, -1, 0, *(START_MS + 3_600_000 * hour for hour in range(93))]
SPLIT_AT = [START_MS * 1000 + 7, (START_MS + 3_600_000 * 50) * 1000]
PACKED = pa.timestamp("ms", tz="UTC")


@pytest.fixture
def table(instance: Instance) -> str:
    create_table(instance, "t", SCHEMA, split_points=SPLIT_AT)
    kind = pa.timestamp("us", tz="UTC")
    micros = [ms * 1000 + 789 for ms in MILLIS]
    values = [None if place == 5 else v for place, v in enumerate(micros)]
    columns = {"k": pa.array(micros, kind), "t": pa.array(values, kind)}
    ingest_rows(instance, "t", [pa.record_batch(columns)])
    return "t"


def millis(athena: Athena, table: str, summary: Json, **constraints: int) -> list[int]:
    rows = plain_rows(athena.query(table, summary, **constraints))
    epoch = dt.datetime(1970, 1, 1)
    return [(row["k"] - epoch) // dt.timedelta(milliseconds=1) for row in rows]


def test_times_are_rounded_down_to_milliseconds(athena: Athena, table: str) -> None:
    assert millis(athena, table, {}) == MILLIS


@pytest.mark.parametrize("column", ["k", "t"])
def test_plausible_bounds_select_exactly_the_rows_that_athena_s_filter_keeps(
    athena: Athena, table: str, column: str
) -> None:
    known = [ms for place, ms in enumerate(MILLIS) if column == "k" or place != 5]
    low, high = START_MS, START_MS + 3_600_000 * 60
    for lower, upper in (("EXACTLY", "EXACTLY"), ("ABOVE", "BELOW")):
        summary = {column: ranges(DATE_MILLI, (low, lower, high, upper))}
        is_closed = lower == "EXACTLY"
        expected = [ms for ms in known if low < ms < high or (is_closed and ms in (low, high))]
        assert millis(athena, table, summary) == expected
        assert set(millis(athena, table, summary, limit=1)) < set(expected)
    assert millis(athena, table, {column: among(DATE_MILLI, -1, low, high)}) == [-1, low, high]
    others = {"@type": "EquatableValueSet", "valueBlock": block([-1, low], DATE_MILLI)}
    others |= {"whiteList": False, "nullAllowed": False}
    assert millis(athena, table, {column: others}) == [ms for ms in known if ms not in (-1, low)]


def test_null_is_not_a_hint(athena: Athena, table: str) -> None:
    assert millis(athena, table, {"t": ranges(DATE_MILLI, null=True)}) == [MILLIS[5]]
    not_null = ranges(DATE_MILLI, (None, "ABOVE", None, "BELOW"))
    assert millis(athena, table, {"t": not_null}) == MILLIS[:5] + MILLIS[6:]


@pytest.mark.parametrize("column", ["k", "t"])
@pytest.mark.parametrize(
    ("kind", "time"),
    [
        (PACKED, START_MS << 12 | 2117),
        # As it is, packed.
        (PACKED, START_MS),
        (DATE_MILLI, START_MS << 12),
        (DATE_MILLI, START_MS * 1000),
        (pa.timestamp("us", tz="UTC"), START_MS * 1000),
        (pa.int64(), START_MS),
        (pa.date32(), 18_262),
    ],
)
def test_bounds_that_are_not_plausible_are_hints(
    athena: Athena, table: str, column: str, kind: pa.DataType, time: int
) -> None:
    listed = {"@type": "EquatableValueSet", "valueBlock": block([time], kind)}
    listed |= {"whiteList": True, "nullAllowed": False}
    for values in (ranges(kind, (time, "EXACTLY", time, "EXACTLY")), listed):
        assert athena.layout_rows(table, {column: values}) == 1
        assert millis(athena, table, {column: values}) == MILLIS
        # Athena may drop the first row, so a limit beside a hint does not end a read.
        assert millis(athena, table, {column: values}, limit=1) == MILLIS


def test_a_query_planned_by_an_earlier_release_still_reads_microseconds(
    athena: Athena, table: str
) -> None:
    micros = pa.schema([pa.field("k", pa.timestamp("us", tz="UTC"))])
    result = athena.query(table, schema=micros)
    assert result["k"].cast(pa.int64()).to_pylist() == [ms * 1000 + 789 for ms in MILLIS]
