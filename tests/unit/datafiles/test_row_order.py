"""The order of rows in memory, beside Python's."""

import datetime
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.arrow import without_pages
from sleeper.datafiles.merge import row_order
from sleeper.datafiles.merge.row_order import sort_positions, take_rows

INT, LONG = pa.int32(), pa.int64()
TEXT, BYTES = pa.string(), pa.binary()
TIME = pa.timestamp("us", tz="UTC")
LONG_TEXT = "b" * 127
LONG_BYTES = b"\xff" * 127
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    INT: st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2),
    LONG: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    TEXT: st.text("ab\0é\U0001f600", max_size=30) | st.text("aé\U0001f600").map(LONG_TEXT.__add__),
    BYTES: st.binary(max_size=3) | st.binary(max_size=30) | st.binary().map(LONG_BYTES.__add__),
    pa.bool_(): st.booleans(),
    TIME: st.datetimes(timezones=st.just(datetime.UTC)),
    pa.date32(): st.dates(),
    pa.decimal128(18, 2): st.integers(-(10**18) + 1, 10**18 - 1).map(
        lambda n: Decimal(n).scaleb(-2)
    ),
}


Rows = list[tuple[Any, ...]]


@st.composite
def columns_and_rows(
    draw: st.DrawFn,
) -> tuple[list[pa.DataType], list[bool], Rows]:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    are_descending = [draw(st.booleans()) for _ in kinds]
    values = [st.none() | VALUES[kind] if draw(st.booleans()) else VALUES[kind] for kind in kinds]
    pool = draw(st.lists(st.tuples(*values), min_size=1, max_size=20))
    rows = draw(st.lists(st.sampled_from(pool) | st.tuples(*values), max_size=60))
    return kinds, are_descending, rows


def expected(rows: Rows, are_descending: list[bool]) -> list[int]:
    order = list(range(len(rows)))
    for place in reversed(range(len(are_descending))):

        def key(row: int, place: int = place) -> Any:
            value = rows[row][place]
            return value.encode() if isinstance(value, str) else value

        filled = [row for row in order if rows[row][place] is not None]
        empty = [row for row in order if rows[row][place] is None]
        is_descending = are_descending[place]
        if is_descending:
            # Equal rows keep their order, which a reversed sort does, too.
            filled = sorted(filled, key=key, reverse=True)
        else:
            filled = sorted(filled, key=key)
        order = filled + empty
    return order


@given(columns_and_rows(), st.booleans(), st.integers(0, 3))
def test_rows_are_in_the_order_of_python_and_equal_rows_keep_theirs(
    given: tuple[list[pa.DataType], list[bool], Rows], as_views: bool, offset: int
) -> None:
    kinds, are_descending, rows = given
    padded = [rows[0]] * offset + rows if rows else []
    columns = []
    for place, kind in enumerate(kinds):
        column = pa.array([row[place] for row in padded], kind)
        if as_views and kind in (TEXT, BYTES):
            column = without_pages(
                column.cast(pa.string_view() if kind == TEXT else pa.binary_view())
            )
        columns.append(column.slice(offset if rows else 0))
    places = sort_positions(columns, are_descending)
    assert places.tolist() == expected(rows, are_descending)
    taken = take_rows(columns, places)
    result = list(zip(*(column.to_pylist() for column in taken), strict=True))
    assert result == [rows[place] for place in places]


@pytest.mark.parametrize("distinct", [1, 7, 1000, 10**9])
@pytest.mark.parametrize("prefix", ["", "the same beginning of all keys/"])
def test_many_rows_with_equal_beginnings_are_in_order(distinct: int, prefix: str) -> None:
    numbers = np.random.default_rng(5).integers(0, distinct, 20_000)
    second = np.random.default_rng(6).integers(-(2**63), 2**63 - 1, 20_000)
    texts = [f"{prefix}{number}" for number in numbers]
    places = sort_positions([pa.array(texts), pa.array(second)], [False, True])
    keys = [(texts[place], -int(second[place])) for place in places]
    assert all(a <= b for a, b in itertools.pairwise(keys))
    assert sorted(places.tolist()) == list(range(20_000))


@pytest.mark.parametrize("is_descending", [False, True])
def test_a_long_key_beside_equal_ones_takes_few_words(is_descending: bool) -> None:
    texts = ["equal"] * 1000 + ["x" * 1_000_000] * 2 + ["x" * 1_000_001, "x" * 127 + "y"]
    column = pa.array(texts)
    words = list(row_order._words(column, is_descending))
    assert len(words) < 20
    second = pa.array(range(len(texts)))
    places = sort_positions([column, second], [is_descending, False]).tolist()
    if is_descending:
        assert places == [1003, 1002, 1000, 1001, *range(1000)]
    else:
        assert places == [*range(1000), 1000, 1001, 1002, 1003]


def test_what_memory_has_for_nulls_does_not_matter() -> None:
    values = pa.py_buffer(np.array([5, 0, 3, 0, 9, 0, 1, 0], np.int64))
    kind = pa.decimal128(10, 2)
    nulls = pa.Array.from_buffers(kind, 4, [pa.py_buffer(b"\0"), values])
    places = sort_positions([nulls, pa.array([1, 2, 3, 4])], [True, True])
    assert places.tolist() == [3, 2, 1, 0]
