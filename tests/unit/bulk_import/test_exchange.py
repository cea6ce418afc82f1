"""The distribution of rows over slots, in pieces."""

from bisect import bisect_right

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sleeper.bulk_import.exchange import count_not_after, distribute

words = st.text("ab\U0001f600", max_size=3)


@given(st.lists(words), st.lists(words, max_size=9, unique=True).map(sorted))
def test_the_place_of_a_key_is_the_number_of_starts_that_are_not_greater(
    keys: list[str], starts: list[str]
) -> None:
    places = count_not_after(pa.array(keys, pa.string()), pa.array(starts, pa.string()))
    assert places.tolist() == [bisect_right(starts, key) for key in keys]


@given(st.lists(st.integers(0, 9)), st.sets(st.integers(1, 9)).map(sorted))
def test_each_row_is_in_the_slot_of_its_key(keys: list[int], starts: list[int]) -> None:
    batch = pa.record_batch({"k": pa.array(keys, pa.int32()), "n": list(range(len(keys)))})
    rows = [
        (place, row)
        for place, part in distribute(batch, pa.array(starts, pa.int32()))
        for row in part.to_pylist()
    ]
    assert all(place == bisect_right(starts, row["k"]) for place, row in rows)
    # Rows of a slot keep their order.
    assert [row["n"] for _, row in rows] == sorted(
        range(len(keys)), key=lambda n: bisect_right(starts, keys[n])
    )
