"""The order by numbers of keys is that of the keys."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.key_values import from_key_values
from sleeper.datafiles.merge import rows as merge_rows
from sleeper.datafiles.merge.rows import sorted_positions

ORDER = [("key", "ascending"), ("by", "descending")]
KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
    pa.string(): st.one_of(
        st.text(max_size=9),
        st.text("a\0é", max_size=12),
        st.text("ab", min_size=9, max_size=10).map("prefix-".__add__),
    ),
    pa.binary(): st.one_of(st.binary(max_size=10), st.sampled_from([b"", b"\0", b"a", b"a\0"])),
    pa.timestamp("us", "UTC"): st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.bool_(): st.integers(0, 1),
    pa.decimal128(18, 5): st.one_of(st.integers(-3, 3), st.integers(-(10**18) + 1, 10**18 - 1)),
}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_rows, "_RANKED_ROWS_MIN", 1)


@pytest.mark.parametrize("share", [0.5, 1.0])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_order(data: st.DataObject, share: float) -> None:
    kind = data.draw(st.sampled_from(list(KEYS)))
    keys = data.draw(st.lists(KEYS[kind], min_size=1, max_size=30))
    by = data.draw(st.lists(st.integers(0, 2), min_size=len(keys), max_size=len(keys)))
    rows = pa.table({"key": from_key_values(keys, kind), "by": by})
    expected = pc.sort_indices(rows, sort_keys=ORDER).to_pylist()
    original = merge_rows._TIED_SHARE_MAX
    merge_rows._TIED_SHARE_MAX = share
    try:
        assert sorted_positions(rows, ORDER).to_pylist() == expected
    finally:
        merge_rows._TIED_SHARE_MAX = original


def test_a_slice_has_its_own_order() -> None:
    rows = pa.table({"key": ["z", "b", "a", "c"], "by": [0, 0, 0, 0]}).slice(1)
    assert sorted_positions(rows, ORDER).to_pylist() == [1, 0, 2]
