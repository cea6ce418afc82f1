"""Conversions without pandas return what Arrow's own return."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.conversions import (
    as_booleans,
    as_numbers,
    boolean_array,
    empty_table,
    integer_array,
    key_array,
    text_scalar,
)

KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_keys(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KEYS)))
    keys = data.draw(st.lists(KEYS[kind], max_size=20))
    made = key_array(keys, kind)
    made.validate(full=True)
    assert made.equals(pa.array(keys, kind))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 2**31 - 1), max_size=20), st.integers(0, 20))
def test_numbers(values: list[int], start: int) -> None:
    for kind in (np.int32, np.int64, np.uint64):
        numbers = np.array(values, kind)
        column = integer_array(numbers[::2])
        assert column.equals(pa.array(numbers[::2]))
        part = column.slice(min(start, len(column)))
        assert as_numbers(part).tolist() == part.to_pylist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_booleans(values: list[bool], start: int, length: int) -> None:
    column = boolean_array(np.array(values, np.bool_))
    assert column.equals(pa.array(values, pa.bool_()))
    part = column.slice(min(start, len(column)), length)
    assert as_booleans(part).tolist() == part.to_pylist()


def test_text() -> None:
    assert text_scalar("é").equals(pa.scalar("é"))


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_nothing(kind: pa.DataType) -> None:
    assert len(key_array([], kind)) == 0
    schema = pa.schema([pa.field("key", kind, nullable=False)])
    assert empty_table(schema).equals(schema.empty_table())
    assert as_numbers(pa.array([], pa.int64())).tolist() == []
    assert as_booleans(pa.array([], pa.bool_())).tolist() == []
