"""The distribution of rows over slots, in pieces."""

from bisect import bisect_right
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.bulk_import.exchange import SlotTarget, count_not_after, distribute, write_slot
from sleeper.bulk_import.slots import Slot
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.write.file import FileSettings
from sleeper.partitions.partition import tree_from_split_points
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot

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


@pytest.mark.slow
def test_a_slot_s_objects_are_written_by_the_engine_and_uploaded(
    tmp_path: Path, data_bucket: Bucket
) -> None:
    schema = Schema((Field("n", PrimitiveType.LONG),))
    (leaf,) = tree_from_split_points(schema, [])
    root, folder = DataRoot(data_bucket), tmp_path / "spill"
    target = SlotTarget(root, "table", schema, 1, FileSettings())
    rows = pa.record_batch([pa.array(range(25_000))], schema=arrow_schema(schema))
    slot = Slot(leaf.region.ranges[0], (leaf,))
    (new,) = write_slot(slot, iter([rows]), target, EngineSettings(folder))
    with root.open(new.file.path) as content, pq.ParquetFile(content) as stored:
        assert stored.metadata.created_by.startswith("datafusion")
        assert stored.read().num_rows == new.file.rows == 25_000
    assert list(folder.iterdir()) == []
