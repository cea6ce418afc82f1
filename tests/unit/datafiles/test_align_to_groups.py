"""Alignment of batches to groups."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.merge.iterate import Key, align_to_groups
from sleeper.datafiles.merge.key_runs import first_descent

KEYS = ("a", "b")
rows_in_order = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["", "é", "z"])), max_size=30
).map(sorted)


def make_batch(rows: list[tuple[int, str]]) -> pa.RecordBatch:
    a, b = zip(*rows, strict=True) if rows else ((), ())
    columns = [pa.array(a, pa.int64()), pa.array(b, pa.string()), pa.array(range(len(rows)))]
    return pa.RecordBatch.from_arrays(columns, ["a", "b", "n"])


def cut(rows: list[tuple[int, str]], sizes: list[int]) -> Iterator[pa.RecordBatch]:
    batch = make_batch(rows)
    start = 0
    for size in [*sizes, len(rows)]:
        yield batch.slice(start, size)
        start += size


def too_long(key: Key) -> Exception:
    return ValueError(f"too long: {key}")


def list_keys(batch: pa.RecordBatch) -> list[Key]:
    return list(zip(*(batch.column(name).to_pylist() for name in KEYS), strict=True))


@given(rows_in_order, st.lists(st.integers(0, 7), max_size=12), st.integers(1, 12))
def test_each_group_is_in_one_batch(
    rows: list[tuple[int, str]], sizes: list[int], least: int
) -> None:
    result = list(align_to_groups(cut(rows, sizes), KEYS, 1000, too_long, least))
    assert [n for batch in result for n in batch.column("n").to_pylist()] == list(range(len(rows)))
    groups = [set(list_keys(batch)) for batch in result]
    assert sum(map(len, groups)) == len(set(rows))
    assert all(batch.num_rows >= least for batch in result[:-1])


@given(rows_in_order, st.lists(st.integers(0, 7), max_size=12), st.integers(1, 12))
def test_at_most_a_group_and_a_batch_are_held(
    rows: list[tuple[int, str]], sizes: list[int], rows_max: int
) -> None:
    input_rows = 0

    def count_batches() -> Iterator[pa.RecordBatch]:
        nonlocal input_rows
        for batch in cut(rows, sizes):
            input_rows += batch.num_rows
            yield batch

    longest = max((rows.count(row) for row in rows), default=0)
    output_rows = 0
    try:
        for batch in align_to_groups(count_batches(), KEYS, rows_max, too_long):
            held_rows = input_rows - output_rows - batch.num_rows
            assert held_rows <= max([*sizes, len(rows) - sum(sizes)]) + longest
            output_rows += batch.num_rows
    except ValueError:
        assert longest > rows_max
        assert input_rows - output_rows <= rows_max + max([*sizes, len(rows)])
    else:
        assert longest <= rows_max


def test_too_long_group_fails_early_with_its_key() -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        yield make_batch([(0, "x")])
        while True:
            yield make_batch([(1, "y")] * 10)

    with pytest.raises(ValueError, match=r"too long: \(1, 'y'\)"):
        list(align_to_groups(endless(), KEYS, 25, too_long))


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["", "é", "z"])), max_size=8))
def test_first_descent_finds_the_first_row_out_of_order(rows: list[tuple[int, str]]) -> None:
    wrong = [i for i in range(1, len(rows)) if rows[i] < rows[i - 1]]
    batch = make_batch(rows)
    result = first_descent([batch.column(name) for name in KEYS])
    assert result == (wrong[0] if wrong else None)
