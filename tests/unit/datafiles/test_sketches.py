"""Sketches, samples and torn sketch sidecars."""

import bisect
import struct

import pyarrow as pa
import pytest
from datasketches import PyLongsSerDe, quantiles_items_sketch
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.sidecars.sketches import (
    build_sketches,
    distinct_inside,
    sketches_from_bytes,
    sketches_to_bytes,
    weighted_quantiles,
)
from sleeper.datafiles.write.key_facts import KeySampler
from sleeper.errors import DataError
from sleeper.partitions.region import Range
from sleeper.schema.model import DecimalType, Field, PrimitiveType, Schema

SCHEMA = Schema(
    (
        Field("s", PrimitiveType.STRING),
        Field("n", PrimitiveType.LONG),
        Field("b", PrimitiveType.BYTE_ARRAY),
    )
)


def test_sketches_round_trip_with_any_text() -> None:
    texts = [f"é{i:04d}𝄞" for i in range(2000)]
    numbers = [i * 10**12 - 10**15 for i in range(2000)]
    raws = [struct.pack(">I", i) for i in range(2000)]
    content = sketches_to_bytes(SCHEMA, build_sketches([texts, numbers, raws]))
    s, n, b = sketches_from_bytes(SCHEMA, content, "x")
    for sketch, values in ((s, texts), (n, numbers), (b, raws)):
        median = weighted_quantiles(
            [(p, 1.0) for p in sketch.points(Range(values[0], None))], [0.5]
        )
        assert abs(bisect.bisect(values, median[0]) - 1000) < 30
        assert sketch.share(Range(values[500], values[1500])) == pytest.approx(0.5, abs=0.02)
    # The layout is that of the field: length first, then a sketch that the library itself reads.
    (length,) = struct.unpack(">i", content[:4])
    (number_length,) = struct.unpack(">i", content[4 + length : 8 + length])
    body = content[8 + length : 8 + length + number_length]
    assert quantiles_items_sketch.deserialize(body, PyLongsSerDe()).n == 2000


def test_sketches_of_times_dates_booleans_and_decimals_have_8_byte_integers() -> None:
    kinds = PrimitiveType.TIMESTAMP, PrimitiveType.DATE, PrimitiveType.BOOLEAN, DecimalType(18, 2)
    schema = Schema(tuple(Field(f"f{n}", kind) for n, kind in enumerate(kinds)))
    samples = [[2**63 - 1, -5, 0], [-(2**31), 1], [0, 1, 1], [-(10**18) + 1, 7]]
    content = sketches_to_bytes(schema, build_sketches(samples))
    found = sketches_from_bytes(schema, content, "x")
    for each, values in zip(found, samples, strict=True):
        assert set(each.points(Range(min(values), None))) == set(values)
    (length,) = struct.unpack(">i", content[:4])
    first = quantiles_items_sketch.deserialize(content[4 : 4 + length], PyLongsSerDe())
    assert (first.get_min_value(), first.get_max_value()) == (-5, 2**63 - 1)


@pytest.mark.parametrize("cut", [0, 3, 20, -1])
def test_error_names_the_torn_sidecar(cut: int) -> None:
    content = sketches_to_bytes(SCHEMA, build_sketches([["a"], [1], [b"x"]]))
    with pytest.raises(DataError, match=r"sidecar t/x\.sketches"):
        sketches_from_bytes(SCHEMA, content[:cut], "t/x.sketches")


@given(st.lists(st.integers(1, 3000), max_size=30))
def test_sample_is_evenly_spaced_for_any_batches(sizes: list[int]) -> None:
    sampler = KeySampler(Schema((Field("n", PrimitiveType.LONG),)))
    start = 0
    for size in sizes:
        sampler.add(pa.record_batch({"n": pa.array(range(start, start + size), pa.int64())}))
        start += size
    (sample,) = sampler.samples()
    assert len(sample) <= 8192
    if start:
        stride = sample[1] - sample[0] if len(sample) > 1 else start
        assert sample == list(range(0, start, stride))
        assert start <= 4096 * stride * 2 or stride == 1


def test_quantiles_are_weighted() -> None:
    points = [("a", 1.0), ("b", 8.0), ("c", 1.0)]
    assert weighted_quantiles(points, [0.05, 0.5, 0.95]) == ["a", "b", "c"]


def test_distinct_inside_keeps_cuts_of_the_range() -> None:
    assert distinct_inside([0, 1, 1, 5, 9, 10], Range(0, 10)) == [1, 5, 9]
