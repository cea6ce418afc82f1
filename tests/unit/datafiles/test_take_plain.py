"""Rows of columns by their places."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.arrow import as_plain, take_plain

TEXTS = st.lists(st.none() | st.text(max_size=30), min_size=1, max_size=40)


@given(TEXTS, st.data())
def test_rows_of_views_are_those_of_the_copied_column(
    texts: list[str | None], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(texts) - 1))
    views = pa.array(texts, pa.string_view()).slice(start)
    places = np.array(data.draw(st.lists(st.integers(0, len(views) - 1), max_size=20)), np.int64)
    taken = take_plain(views, places)
    taken.validate(full=True)
    assert taken == as_plain(views).take(pa.array(places))


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.string(), pa.int64()])
def test_chunks_are_one_column(kind: pa.DataType) -> None:
    values = [1, 2, 3, 4] if kind == pa.int64() else ["a", "b" * 20, "c", "d" * 30]
    chunks = pa.chunked_array([pa.array(values[:2], kind), pa.array(values[2:], kind)])
    taken = take_plain(chunks, np.array([1, 3]))
    assert taken == pa.array([values[1], values[3]], as_plain(chunks).type)
