"""Key filters pass every key of their file and detect damage."""

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.key_values import from_key_values
from sleeper.datafiles.sidecars import key_filter_builder as module
from sleeper.datafiles.sidecars.key_filter import (
    HashedKeys,
    KeyFilter,
    hash_key,
    hash_keys,
    hashed_key,
    hashed_keys,
    key_filter_from_bytes,
)
from sleeper.datafiles.sidecars.key_filter_builder import KeyFilterBuilder
from sleeper.datafiles.sidecars.key_order import encode_key, encode_row, shortest_start
from sleeper.datafiles.sidecars.row_hashes import hash_by_engine, hash_few, hash_rows
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.errors import DataError
from sleeper.files import FILTER_SUFFIX, DataFile
from sleeper.schema.model import (
    INT_RANGES,
    DecimalType,
    Field,
    Key,
    PrimitiveType,
    Schema,
    is_key_type,
)
from sleeper.storage.location import DataRoot

LONG = Schema((Field("key", PrimitiveType.LONG),))

VALUES = {
    PrimitiveType.INT: st.integers(*INT_RANGES[PrimitiveType.INT]),
    PrimitiveType.LONG: st.integers(*INT_RANGES[PrimitiveType.LONG]),
    PrimitiveType.STRING: st.text(max_size=50),
    PrimitiveType.BYTE_ARRAY: st.binary(max_size=50),
    PrimitiveType.TIMESTAMP: st.integers(*INT_RANGES[PrimitiveType.LONG]),
    PrimitiveType.DATE: st.integers(*INT_RANGES[PrimitiveType.INT]),
    PrimitiveType.BOOLEAN: st.integers(0, 1),
    DecimalType(9, 2): st.integers(-(10**9) + 1, 10**9 - 1),
    DecimalType(18, 18): st.integers(-(10**18) + 1, 10**18 - 1),
}
key_types = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4)


def test_values_cover_all_key_types() -> None:
    assert {each for each in PrimitiveType if is_key_type(each)} <= set(VALUES)


@st.composite
def schemas_and_keys(draw: st.DrawFn) -> tuple[Schema, list[Key]]:
    types = draw(key_types)
    schema = Schema(tuple(Field(f'key "{i}"', kind) for i, kind in enumerate(types)))
    keys = draw(st.lists(st.tuples(*(VALUES[kind] for kind in types)), min_size=1, max_size=40))
    return schema, keys


def make_batch(schema: Schema, keys: list[Key]) -> pa.RecordBatch:
    columns = zip(*keys, strict=True)
    kinds = arrow_schema(schema)
    return pa.RecordBatch.from_arrays(
        [from_key_values(c, f.type) for c, f in zip(columns, kinds, strict=True)], schema=kinds
    )


def random_hashes(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def keys_of(hashes: np.ndarray, first: int = 0) -> HashedKeys:
    """Returns ascending keys, from `first` on, that have these hashes."""
    return HashedKeys(LONG, [(first + place,) for place in range(len(hashes))], hashes)


def build_filter(
    keys: HashedKeys, bits: int = 14, bytes_max: int = 2**25, turn: int = 1000
) -> KeyFilter | None:
    builder = KeyFilterBuilder(bits, bytes_max)
    for start in range(0, len(keys.keys), turn):
        builder.add(keys.hashes[start : start + turn], lambda row: keys.orders[start + row])  # noqa: B023
    return builder.finish()


@given(schemas_and_keys())
def test_hashes_of_columns_and_single_keys_are_equal(sample: tuple[Schema, list[Key]]):
    schema, keys = sample
    half = len(keys) // 2
    batches = [make_batch(schema, keys).slice(0, half), make_batch(schema, keys).slice(half)]
    expected = hash_keys(schema, keys).tolist()
    assert hash_by_engine(schema, batches).tolist() == expected
    assert hash_few(schema, batches).tolist() == expected
    assert hash_rows(schema, batches).tolist() == expected


def test_hash_equals_spark():
    # SELECT xxhash64('Spark'), xxhash64('Spark', array(123), 2) and others of Spark's own tests.
    text = Schema((Field("key", PrimitiveType.STRING),))
    assert hash_key(text, ("Spark",)) == np.int64(-4294468057691064905).view(np.uint64)
    assert hash_key(LONG, (1,)) == np.int64(-7001672635703045582).view(np.uint64)


def test_hash_separates_fields():
    schema = Schema((Field("a", PrimitiveType.STRING), Field("b", PrimitiveType.STRING)))
    assert hash_key(schema, ("ab", "c")) != hash_key(schema, ("a", "bc"))


@given(st.data())
def test_bytes_of_keys_sort_as_the_keys_do(data: st.DataObject):
    schema, keys = data.draw(schemas_and_keys())
    # Strings sort by their UTF-8 bytes.
    expected = sorted(keys, key=lambda key: [v.encode() if isinstance(v, str) else v for v in key])
    encoded = [encode_key(schema, key) for key in expected]
    assert encoded == sorted(encoded)
    assert len(set(encoded)) == len(set(keys))
    assert encode_row(schema, make_batch(schema, expected), 0) == encoded[0]


@given(st.binary(max_size=5), st.binary(max_size=5))
def test_start_of_a_range_lies_between_two_keys(one: bytes, other: bytes):
    previous, first = sorted([one, other])
    if previous != first:
        start = shortest_start(previous, first)
        assert previous < start <= first
        assert first.startswith(start)


def sort_keys(schema: Schema, keys: list[Key]) -> HashedKeys:
    return hashed_keys(schema, sorted(keys, key=lambda key: encode_key(schema, key)))


@given(schemas_and_keys(), st.integers(1, 64), st.integers(1, 60), st.integers(1, 8))
def test_filter_passes_every_added_key(
    sample: tuple[Schema, list[Key]], bits: int, range_keys: int, turn: int
):
    schema, keys = sample
    ordered = sort_keys(schema, keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_RANGE_KEYS", range_keys)
        key_filter = build_filter(ordered, bits, turn=turn)
    assert key_filter is not None
    assert key_filter.keys == len(set(keys))
    # A range ends at the first turn that has reached the number of keys.
    assert len(key_filter.ranges) <= -(-key_filter.keys // range_keys)
    assert len(key_filter.ranges) >= -(-key_filter.keys // (range_keys + turn))
    read = key_filter_from_bytes(key_filter.to_bytes(), "f")
    assert read.starts == key_filter.starts
    assert read.may_hold(hashed_keys(schema, keys)).all()
    assert all(read.may_hold_key(hashed_key(schema, key)) for key in keys)
    assert read.may_hold_ascending(ordered.hashes, ordered.orders.__getitem__).all()


@given(st.integers(0, 3000), st.integers(1, 500), st.integers(1, 64), st.integers(64, 8192))
def test_folded_filter_passes_every_added_key(
    count: int, range_keys: int, bits: int, bytes_max: int
):
    keys = keys_of(random_hashes(count, seed=count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_RANGE_KEYS", range_keys)
        key_filter = build_filter(keys, bits, bytes_max, turn=100)
    if key_filter is None:
        # Too few bits per key, or more ranges than fit when they are halved six times.
        blocks_min = count * bits / 256 / 64 + count / range_keys + 1
        assert count * 3 > bytes_max // 32 * 256 or blocks_min > bytes_max // 32
        return
    assert key_filter.may_hold(keys).all()
    assert key_filter.size_bytes <= bytes_max


@pytest.mark.parametrize(("bits", "rate_max"), [(10, 0.018), (12, 0.008), (14, 0.004), (16, 0.002)])
@pytest.mark.parametrize("range_keys", [2**20, 5_000])
def test_few_absent_keys_pass(
    bits: int, rate_max: float, range_keys: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_RANGE_KEYS", range_keys)
    key_filter = build_filter(keys_of(random_hashes(50_000, seed=1)), bits)
    assert key_filter is not None
    assert len(key_filter.ranges) == (10 if range_keys == 5_000 else 1)
    absent = keys_of(random_hashes(50_000, seed=2))
    assert key_filter.may_hold(absent).mean() < rate_max


def test_filter_of_the_largest_size_has_fewer_bits_per_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_RANGE_KEYS", 5_000)
    keys, absent = (keys_of(random_hashes(50_000, seed=seed)) for seed in (1, 2))
    key_filter = build_filter(keys, bytes_max=50_000)  # 8 of 14 bits per key
    assert key_filter is not None
    assert 40_000 < key_filter.size_bytes <= 50_000
    assert key_filter.may_hold(keys).all()
    assert key_filter.may_hold(absent).mean() < 0.08


def test_folded_range_equals_a_direct_one(monkeypatch: pytest.MonkeyPatch):
    # 16 bits for each of 4096 keys are 256 blocks.
    keys = keys_of(random_hashes(2 * 4096, seed=5))
    direct = build_filter(keys_of(keys.hashes[4096:]), bits=16)
    monkeypatch.setattr(module, "_RANGE_KEYS", 4096)
    folded = build_filter(keys, bits=32, bytes_max=2 * 256 * 32, turn=4096)
    assert direct is not None
    assert folded is not None
    assert np.array_equal(folded.ranges[1], direct.ranges[0])


def test_each_range_is_asked_only_about_its_keys(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_RANGE_KEYS", 1000)
    keys = keys_of(random_hashes(2000, seed=9))
    key_filter = build_filter(keys)
    assert key_filter is not None
    swapped = KeyFilter(key_filter.ranges[::-1], 2000, key_filter.starts)
    assert swapped.may_hold(keys).mean() < 0.02
    one_by_one = [swapped.may_hold_key(hashed_key(LONG, (place,))) for place in range(20)]
    assert sum(one_by_one) < 20


def test_equal_keys_count_once():
    key_filter = build_filter(keys_of(np.repeat(random_hashes(100, seed=3), 1000)))
    assert key_filter is not None
    assert key_filter.keys == 100
    assert key_filter.size_bytes < 200


def test_equal_keys_stay_in_one_range(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_RANGE_KEYS", 10)
    keys = sort_keys(LONG, [(place // 25,) for place in range(1000)])
    key_filter = build_filter(keys, turn=10)
    assert key_filter is not None
    assert key_filter.keys == 40
    assert len(key_filter.ranges) == 4
    assert key_filter.may_hold(keys).all()


def test_too_many_keys_have_no_filter():
    assert build_filter(keys_of(random_hashes(1000, seed=4)), bytes_max=256) is None


@pytest.mark.parametrize("range_keys", [300, 2000])
def test_filter_round_trip(range_keys: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_RANGE_KEYS", range_keys)
    keys = keys_of(random_hashes(1000, seed=6))
    key_filter = build_filter(keys, turn=100)
    assert key_filter is not None
    read = key_filter_from_bytes(key_filter.to_bytes(), "f.filter")
    assert read.keys == 1000
    assert read.starts == key_filter.starts
    assert len(read.ranges) == (4 if range_keys == 300 else 1)
    assert all(map(np.array_equal, read.ranges, key_filter.ranges))


def test_format_of_ranges_equals_the_specification():
    ranges = tuple(np.full((count, 8), count, np.uint32) for count in (1, 3))
    content = KeyFilter(ranges, 7, (b"abc",)).to_bytes()
    assert struct.unpack_from("<I", content, 8) == (2,)
    assert struct.unpack_from("<QI", content, 28) == (7, 2)
    assert struct.unpack_from("<IIII", content, 48) == (1, 0, 3, 3)
    assert content[64:67] == b"abc"
    assert content[67:96] == bytes(29)
    assert np.frombuffer(content, "<u4", 8, 96).tolist() == [1] * 8
    assert len(content) == 96 + 4 * 32


def test_format_equals_the_specification():
    blocks = np.zeros((2, 8), np.uint32)
    content = KeyFilter((blocks,), 0).to_bytes()
    assert content[:8] == b"SLPRFLTR"
    assert struct.unpack_from("<I", content, 8) == (1,)
    assert content[12:28] == b"spark-xxhash64\0\0"
    assert struct.unpack_from("<QI", content, 28) == (0, 2)
    assert len(content) == 48 + 2 * 32


def test_upper_half_of_the_hash_selects_the_block():
    upper = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1], np.uint64) << np.uint64(32)
    for count, places in ((1, [0] * 5), (2, [0, 0, 0, 1, 1]), (10, [0, 0, 4, 5, 9])):
        for one, place in zip(upper, places, strict=True):
            blocks = np.zeros((count, 8), np.uint32)
            blocks[place] = 1
            assert KeyFilter((blocks,), 1).may_hold(keys_of(np.array([one]))).all()


@pytest.mark.parametrize("low", [1, 0x10000001, 0x08000001, 0x02000001])
def test_hash_sets_the_bits_of_parquets_specification(low: int):
    key_filter = build_filter(keys_of(np.array([0x80000000_00000000 | low], np.uint64)), bits=64)
    assert key_filter is not None
    salts = [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D]
    salts += [0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31]
    (blocks,) = key_filter.ranges
    assert len(blocks) == 1
    assert blocks[0].tolist() == [1 << ((low * salt % 2**32) >> 27) for salt in salts]


@given(st.data())
def test_any_damage_is_detected(data: st.DataObject):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_RANGE_KEYS", data.draw(st.sampled_from([7, 20])))
        patch.setattr(module, "_BLOCKS_MULTIPLE", 1)
        key_filter = build_filter(keys_of(random_hashes(20, seed=7)), turn=7)
    assert key_filter is not None
    content = bytearray(key_filter.to_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DataError, match=r"f\.filter"):
        key_filter_from_bytes(bytes(content), "f.filter")


def test_newer_version_is_refused():
    key_filter = build_filter(keys_of(random_hashes(20, seed=8)))
    assert key_filter is not None
    content = bytearray(key_filter.to_bytes())
    content[8] = 3
    with pytest.raises(DataError, match=r"not a key filter of version 1 or 2.*version 3"):
        key_filter_from_bytes(bytes(content), "f.filter")


def write_file(folder: Path, settings: FileSettings, keys: range = range(0, 2000, 2)) -> DataFile:
    writer = DataFileWriter(DataRoot(folder), "f.parquet", LONG, settings)
    writer.write([make_batch(LONG, [(k // 4,) for k in keys])])
    return writer.finish()


def test_data_file_has_a_filter_of_its_keys(tmp_path: Path):
    file = write_file(tmp_path, FileSettings())
    assert FILTER_SUFFIX in file.sidecars
    key_filter = key_filter_from_bytes((tmp_path / "f.parquet.filter").read_bytes(), "f")
    assert key_filter.keys == 500
    assert key_filter.may_hold(hashed_keys(LONG, [(k,) for k in range(500)])).all()
    absent = hashed_keys(LONG, [(k,) for k in range(500, 5000)])
    assert key_filter.may_hold(absent).mean() < 0.02


@pytest.mark.parametrize("left_out", [{"filter_bits_per_key": 0}, {"filter_bytes_max": 64}])
def test_data_file_without_a_filter(tmp_path: Path, left_out: dict):
    file = write_file(tmp_path, FileSettings(**left_out))
    assert FILTER_SUFFIX not in file.sidecars
    assert not (tmp_path / "f.parquet.filter").exists()


@given(schemas_and_keys(), st.integers(1, 40), st.integers(1, 10))
def test_one_key_is_judged_as_many_are(
    sample: tuple[Schema, list[Key]], bits: int, range_keys: int
) -> None:
    schema, keys = sample
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_RANGE_KEYS", range_keys)
        key_filter = build_filter(sort_keys(schema, keys[: len(keys) // 2]), bits, turn=4)
    if key_filter is None:
        return
    hashed = sort_keys(schema, keys)
    expected = key_filter.may_hold(hashed).tolist()
    one_by_one = [key_filter.may_hold_key(hashed_key(schema, key)) for key in hashed.keys]
    assert one_by_one == expected
    ascending = key_filter.may_hold_ascending(hashed.hashes, hashed.orders.__getitem__)
    assert ascending.tolist() == expected
