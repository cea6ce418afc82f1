"""Parts of a table have each row once."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.adapters.sql_parts import Bounds, plan_parts
from sleeper.databases.columns import ColumnKind, DatabaseColumn
from sleeper.errors import InvalidRequestError

_NUMBER = DatabaseColumn("n", "int8", ColumnKind.INTEGER)
_DAY = DatabaseColumn("day", "date", ColumnKind.DATE)
_TIME = DatabaseColumn("at", "timestamp", ColumnKind.TIMESTAMP)
NONE = (None, None)
_VALUES = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(_VALUES | st.integers(-20, 20) | st.none(), max_size=30),
    _VALUES | st.integers(-20, 20),
    st.integers(0, 2**63) | st.integers(0, 40),
    st.integers(1, 9),
)
def test_each_row_is_in_one_part(
    values: list[int | None], lower: int, width: int, parts: int
) -> None:
    conditions = plan_parts(_NUMBER, (str(lower), str(lower + width)), NONE, parts, "shop")
    assert len(conditions) <= parts
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE t (part)")
        database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
        found = [
            row[0]
            for condition in conditions or ["1 = 1"]
            for row in database.execute(f"SELECT part FROM t WHERE {condition}")
        ]
    database.close()
    assert sorted(found, key=repr) == sorted(values, key=repr)


def test_parts_are_cut_evenly() -> None:
    assert plan_parts(_NUMBER, ("0", "100"), NONE, 4, "shop") == (
        "part < 25 OR part IS NULL",
        "part >= 25 AND part < 50",
        "part >= 50 AND part < 75",
        "part >= 75",
    )
    assert plan_parts(_DAY, NONE, ("2024-01-01", "2024-01-03"), 2, "shop") == (
        "part < DATE '2024-01-02' OR part IS NULL",
        "part >= DATE '2024-01-02'",
    )
    times = ("2024-01-01 00:00:00+01", "2024-01-01 00:00:00.000002")
    assert plan_parts(_TIME, times, NONE, 2, "shop") == (
        "part < TIMESTAMP '2023-12-31 23:30:00.000001' OR part IS NULL",
        "part >= TIMESTAMP '2023-12-31 23:30:00.000001'",
    )


@pytest.mark.parametrize(
    ("given", "found", "parts"),
    [
        (NONE, NONE, 4),
        (("1", None), NONE, 4),
        (NONE, ("5", "5"), 4),
        (("1", "9"), NONE, 1),
        (("1000", None), ("1", "500"), 4),  # rows above the bound were deleted
        ((None, "0"), ("1", "500"), 4),
    ],
)
def test_one_part_has_no_condition(given: Bounds, found: Bounds, parts: int) -> None:
    assert plan_parts(_NUMBER, given, found, parts, "shop") == ()


def test_given_bounds_prevail_over_those_of_the_values() -> None:
    assert plan_parts(_NUMBER, ("0", None), ("50", "99"), 2, "shop") == (
        "part < 50 OR part IS NULL",
        "part >= 50",
    )


def test_wrong_bounds_are_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        plan_parts(_NUMBER, ("9", "1"), NONE, 2, "shop")
    assert str(caught.value) == (
        "shop: the lower bound 9 of partition column 'n' is above the upper bound 1"
    )
    for column, bound in ((_NUMBER, "1; DROP TABLE t"), (_DAY, "infinity"), (_TIME, "now()")):
        with pytest.raises(InvalidRequestError) as caught:
            plan_parts(column, (bound, None), (None, bound), 2, "shop")
        assert str(caught.value) == (
            f"shop: the bound '{bound}' is not a value of partition column '{column.name}', which "
            f"has the type {column.type_name}"
        )
