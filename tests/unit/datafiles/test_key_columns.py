"""Key columns and the values that sort are the same, in Arrow and in statistics of files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.key_values import (
    as_key_column,
    from_key_values,
    key_column_type,
    key_scalar,
    key_statistics,
    key_value,
    key_values,
)

LONGS = st.integers(-(2**63), 2**63 - 1)
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): LONGS,
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.timestamp("us", "UTC"): LONGS,
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.bool_(): st.integers(0, 1),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1),
    pa.decimal128(18, 0): st.integers(-(10**18) + 1, 10**18 - 1),
}
STORED = {
    pa.timestamp("us", "UTC"): pa.int64(),
    pa.date32(): pa.int32(),
    pa.bool_(): pa.int8(),
    pa.decimal128(9, 2): pa.int64(),
    pa.decimal128(18, 0): pa.int64(),
}


@given(st.data())
@settings(deadline=None)
def test_columns_keep_their_values_and_order(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    values = data.draw(st.lists(st.none() | KINDS[kind], min_size=1, max_size=20))
    start = data.draw(st.integers(0, len(values)))
    column = from_key_values(values, kind).slice(start)
    stored = as_key_column(column)
    stored.validate(full=True)
    assert column.type == kind
    assert stored.type == key_column_type(kind) == STORED.get(kind, kind)
    assert stored.to_pylist() == key_values(column) == values[start:]
    assert [key_value(each) for each in column] == values[start:]
    present = [each for each in values if each is not None]
    assert [key_value(key_scalar(each, kind)) for each in present] == present


@pytest.mark.parametrize("writer", ["arrow", "arrow-integers", "engine"])
@pytest.mark.parametrize("kind", list(KINDS), ids=str)
def test_statistics_are_the_values_that_sort(
    tmp_path: Path, kind: pa.DataType, writer: str
) -> None:
    few = {pa.string(): ["a", "é"], pa.binary(): [b"", b"\xff"], pa.bool_(): [0, 1]}
    values: list[Any] = few.get(kind, [-7, 5])
    rows = pa.table({"key": from_key_values(values, kind)})
    path = tmp_path / "rows.parquet"
    if writer == "engine":
        SessionContext().from_arrow(rows).write_parquet(str(path))
        path = path if path.is_file() else next(path.rglob("*.parquet"))
    else:
        pq.write_table(rows, path, store_decimal_as_integer=writer == "arrow-integers")
    found = pq.read_metadata(path).row_group(0).column(0).statistics
    assert key_statistics(found) == (values[0], values[-1])
    without = tmp_path / "without.parquet"
    pq.write_table(rows, without, write_statistics=False)
    assert not pq.read_metadata(without).row_group(0).column(0).statistics
