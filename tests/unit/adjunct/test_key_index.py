"""An index of keys finds what a dict does."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sleeper.adjunct.columns.key_index import (
    build_slots,
    find_rows,
    hash_contents,
    hash_numbers,
)

NUMBERS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(NUMBERS, unique=True), st.lists(NUMBERS), st.data())
def test_numbers_are_found_as_in_a_dict(
    keys: list[int], others: list[int], data: st.DataObject
) -> None:
    asked = data.draw(st.permutations(keys + others))
    stored, numbers = np.array(keys, np.int64), np.array(asked, np.int64)
    slots = build_slots(hash_numbers(stored))
    found = find_rows(
        slots, hash_numbers(numbers), lambda rows, places: stored[places] == numbers[rows]
    )
    places = {key: place for place, key in enumerate(keys)}
    assert found.tolist() == [places.get(number, -1) for number in asked]


def test_keys_with_one_hash_are_told_apart() -> None:
    for hashes in (np.full(50, 7, np.uint64), np.full(50, 2**64 - 1, np.uint64)):
        slots = build_slots(hashes)
        found = find_rows(slots, hashes, lambda rows, places: rows == places)
        assert found.tolist() == [*range(50)]
        assert (find_rows(slots, hashes, lambda rows, _places: rows < 0) == -1).all()


@given(st.lists(st.binary(max_size=40)), st.integers(0, 3))
def test_equal_bytes_have_equal_hashes(contents: list[bytes], start: int) -> None:
    alone = [int(hash_contents(pa.array([each]))[0]) for each in contents[start:]]
    assert hash_contents(pa.array(contents, pa.binary()).slice(start)).tolist() == alone
    large = pa.array(contents, pa.large_binary()).slice(start)
    assert hash_contents(large).tolist() == alone


def test_hashes_differ() -> None:
    contents = [b"a" * n for n in range(64)] + [b"a" * n + b"\0" for n in range(64)]
    assert len({*hash_contents(pa.array(contents)).tolist()}) == len(contents)
    numbers = np.arange(-5000, 5000) << 40
    low_bits = hash_numbers(numbers) & np.uint64(2**16 - 1)
    assert len({*low_bits.tolist()}) > 9000
