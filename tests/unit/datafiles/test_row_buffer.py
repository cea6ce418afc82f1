"""Rows in memory that is used again."""

import numpy as np
import pyarrow as pa
import pytest

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.merge import row_buffer
from sleeper.datafiles.merge.row_buffer import RowBuffer

KIND = pa.schema([("id", pa.int64()), ("text", pa.string_view())])


def make_batch(texts: list[str | None], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(len(texts))), pa.array(texts, kind)], ["id", "text"])


def texts_of(buffer: RowBuffer) -> list[str | None]:
    texts: list[str | None] = as_plain(buffer.columns()[1]).to_pylist()
    return texts


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()])
def test_rows_are_added_by_their_own_size(kind: pa.DataType) -> None:
    buffer = RowBuffer(KIND, 1000)
    rest = buffer.add(make_batch(["x" * 400] * 2 + ["", None] * 500, kind).slice(1))
    assert texts_of(buffer)[:3] == ["x" * 400, "", None]
    assert buffer.rows < 60
    assert rest.num_rows == 1001 - buffer.rows


def test_a_value_that_many_rows_share_is_added_to_few_of_them() -> None:
    shared = pa.array(["y" * 10_000]).cast(pa.string_view())
    views = pa.py_buffer(bytes(shared.buffers()[1])[:16] * 1000)
    column = pa.Array.from_buffers(pa.string_view(), 1000, [None, views, shared.buffers()[2]])
    buffer = RowBuffer(KIND, 50_000)
    buffer.add(pa.record_batch([pa.array(range(1000)), column], ["id", "text"]))
    assert texts_of(buffer) == ["y" * 10_000] * 4


@pytest.mark.parametrize(("size", "most"), [(2**16, 2**20), (2**24, 2**25)])
def test_small_columns_grow_fast_and_large_ones_twofold(size: int, most: int) -> None:
    column = np.full(size, 7, np.uint8)
    grown = row_buffer._with_room(column, size + 1)
    assert len(grown) == most
    assert (grown[:size] == 7).all()
    assert row_buffer._with_room(grown, most) is grown


def test_a_buffer_is_full_before_the_offsets_of_its_text_overflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_buffer, "_TEXT_BYTES_MAX", 1000)
    buffer = RowBuffer(KIND, 10**6)
    batch = make_batch(["z" * 600], pa.string())
    assert buffer.add(batch).num_rows == 0
    assert buffer.has_room
    assert buffer.add(batch).num_rows == 1
    assert not buffer.has_room
    assert texts_of(buffer) == ["z" * 600]
    buffer.clear()
    assert buffer.has_room
    assert buffer.add(batch).num_rows == 0
