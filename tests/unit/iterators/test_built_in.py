"""The iterators that come with the product, held against plain Python."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.merge.iterate import align_to_groups
from sleeper.iterators.builtin import AgeOffByField, LatestBySortKey, RowSecurity, SumByKey
from sleeper.iterators.protocol import NarrowIterator, RowIterator, TimedIterator

KIND = pa.schema(
    [
        pa.field("k", pa.string(), False),
        pa.field("t", pa.int64(), False),
        pa.field("n", pa.int32(), True),
        pa.field("m", pa.int64(), False),
    ]
)
LABELLED = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        pa.field("text", pa.string()),
        pa.field("list", pa.list_(pa.field("element", pa.string(), False))),
        pa.field("seen", pa.timestamp("us", "UTC")),
    ]
)
Row = tuple[Any, ...]
ints = st.integers(-(2**31), 2**31 - 1)
rows = st.lists(
    st.tuples(st.sampled_from("aé"), st.integers(0, 3), st.none() | ints, st.integers(0, 5)),
    max_size=20,
).map(lambda found: sorted(found, key=lambda row: row[:2]))
labels = st.none() | st.lists(st.sampled_from(["a", "b c", "é"]), max_size=3)


def run(iterator: RowIterator, kind: pa.Schema, input_rows: list[Row], size: int) -> list[Row]:
    columns = list(zip(*input_rows, strict=True)) or [()] * len(kind)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, kind, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=kind)
    batches: Iterator[pa.RecordBatch] = iter(table.to_batches(max_chunksize=size))
    keys = [name for name in kind.names if name in ("k", "t")]
    results = []
    for batch in iterator(align_to_groups(batches, keys, 10**6, lambda key: ValueError(key))):
        assert batch.schema == kind
        results += [tuple(row.values()) for row in batch.to_pylist()]
    return results


@given(rows, st.integers(1, 9))
def test_sums_are_those_of_plain_python(input_rows: list[Row], size: int) -> None:
    iterator: NarrowIterator = SumByKey(KIND, ["k"], ["t"], "")
    expected = []
    for key, group in groupby(input_rows, key=lambda row: row[:2]):
        members = list(group)
        present = [row[2] for row in members if row[2] is not None]
        n = (sum(present) + 2**31) % 2**32 - 2**31 if present else None
        expected.append((*key, n, sum(row[3] for row in members)))
    assert run(iterator, KIND, input_rows, size) == expected
    assert iterator.required_fields("") == ()


@given(rows, st.integers(1, 9))
def test_the_latest_of_each_row_key_is_kept(input_rows: list[Row], size: int) -> None:
    unique = list({row[:2]: row for row in input_rows}.values())
    expected = list({row[0]: row for row in unique}.values())
    assert run(LatestBySortKey(KIND, ["k"], ["t"], ""), KIND, unique, size) == expected


@given(rows, st.integers(1, 9))
def test_rows_are_left_out_by_age(input_rows: list[Row], size: int) -> None:
    iterator: TimedIterator = AgeOffByField(KIND, ["k"], ["t"], "t, 2")
    iterator.start_at(4)
    assert run(iterator, KIND, input_rows, size) == [row for row in input_rows if row[1] > 2]


def test_a_null_time_stays_and_timestamps_are_compared() -> None:
    iterator = AgeOffByField(LABELLED, ["k"], [], "seen,1")
    iterator.start_at(2)
    input_rows = [(i, None, None, seen) for i, seen in enumerate([None, 1000, 1001])]
    result = run(iterator, LABELLED, input_rows, 10)
    assert [row[0] for row in result] == [0, 2]
    iterator = AgeOffByField(LABELLED, ["k"], [], f"seen,{10**30}")
    iterator.start_at(0)
    assert len(run(iterator, LABELLED, input_rows, 10)) == 3


@given(st.lists(labels, max_size=6), st.sets(st.sampled_from(["a", "b c", "é"])), st.integers(1, 4))
def test_rows_pass_whose_labels_are_all_held(
    of_rows: list[list[str] | None], held_labels: set[str], size: int
) -> None:
    input_rows = [
        (i, None if row is None else " ,".join(row), row, None) for i, row in enumerate(of_rows)
    ]
    expected = [i for i, row in enumerate(of_rows) if row is not None and set(row) <= held_labels]
    for field in ("text", "list"):
        iterator = RowSecurity(LABELLED, ["k"], [], ", ".join([field, *sorted(held_labels)]))
        assert [row[0] for row in run(iterator, LABELLED, input_rows, size)] == expected


@pytest.mark.parametrize(
    ("make", "kind", "config", "reason"),
    [
        (SumByKey, KIND, "x", "expected none"),
        (SumByKey, LABELLED, "", "field 'text' is string: expected an integer"),
        (LatestBySortKey, KIND, "x", "expected none"),
        (AgeOffByField, KIND, "", "is not field,millis"),
        (AgeOffByField, KIND, "t", "is not field,millis"),
        (AgeOffByField, KIND, "t,-1", "is not field,millis"),
        (AgeOffByField, KIND, "x,1", "unknown field 'x' .expected one of k, t, n, m"),
        (AgeOffByField, KIND, "n,1", "field 'n' is int32"),
        (RowSecurity, LABELLED, "", "is not field,label"),
        (RowSecurity, LABELLED, "x,a", "unknown field 'x'"),
        (RowSecurity, LABELLED, "seen,a", "expected a string or a list"),
    ],
)
def test_a_wrong_config_is_refused(make: Any, kind: pa.Schema, config: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make(kind, ["k"], ["t"], config)


def test_without_a_sort_key_no_row_is_the_latest() -> None:
    with pytest.raises(ValueError, match="has no sort key"):
        LatestBySortKey(KIND, ["k"], [], "")
