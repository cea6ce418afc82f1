"""The choice of encodings and codecs by sample."""

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.datafiles.write.layout import ColumnLayout, Encoding, choose_layout

ROWS = 8_192
random = np.random.default_rng(7)


def words(letters: int, alphabet: str = "abcdefghijklmnopqrstuvwxyz") -> list[str]:
    picked = random.choice(list(alphabet), (ROWS, letters))
    return ["".join(each) for each in picked]


def layout_of(values: pa.Array, codec: str = "zstd", key: str = "") -> ColumnLayout:
    (layout,) = choose_layout(pa.table({"c": values}), [key], codec, 512)
    return layout


def random_longs() -> pa.Array:
    return pa.array(random.integers(-(2**63), 2**63, ROWS))


COLUMNS = {
    "random text": (words(10), Encoding.DELTA_LENGTH_BYTE_ARRAY, "zstd"),
    "random bytes": (
        [random.bytes(12) for _ in range(ROWS)],
        Encoding.DELTA_LENGTH_BYTE_ARRAY,
        "none",
    ),
    "random longs": (random_longs(), Encoding.PLAIN, "none"),
    "random doubles": (random.random(ROWS), Encoding.PLAIN, "none"),
    "prices": (np.round(random.random(ROWS) * 99_999), Encoding.PLAIN, "zstd"),
    "decimals": ([Decimal(each) for each in range(ROWS)], Encoding.PLAIN, "zstd"),
    "row numbers": (np.arange(ROWS), Encoding.DELTA_BINARY_PACKED, "none"),
    "small integers": (
        random.integers(0, 30_000, ROWS, np.int32),
        Encoding.DELTA_BINARY_PACKED,
        "none",
    ),
    "times": (
        [datetime.fromtimestamp(each * 60, UTC) for each in range(ROWS)],
        Encoding.DELTA_BINARY_PACKED,
        "none",
    ),
    "few texts": (words(1), Encoding.DICTIONARY, "none"),
    "cycles of few texts": (["a", "b", "c", "d"] * (ROWS // 4), Encoding.DICTIONARY, "zstd"),
    "runs of few texts": (sorted(words(1)), Encoding.DICTIONARY, "none"),
    "few long texts": (
        [f"{'x' * 99}{n % 100}" for n in range(ROWS)],
        Encoding.DICTIONARY,
        "zstd",
    ),
    "nulls": (pa.nulls(ROWS, pa.int64()), Encoding.DICTIONARY, "none"),
    "lists": ([[each] for each in range(ROWS)], Encoding.DICTIONARY, "zstd"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_encoding_and_codec_follow_from_the_values(name: str) -> None:
    values, encoding, codec = COLUMNS[name]
    layout = layout_of(pa.array(values))
    assert (layout.encoding, layout.codec) == (encoding, codec)


def test_only_keys_with_common_prefixes_store_prefixes() -> None:
    table = pa.table({"a": sorted(words(10)), "b": sorted(words(10)), "c": words(10)})
    layouts = choose_layout(table, ["a", "c"], "zstd", 512)
    assert [each.encoding for each in layouts] == [
        Encoding.DELTA_BYTE_ARRAY,
        Encoding.DELTA_LENGTH_BYTE_ARRAY,
        Encoding.DELTA_LENGTH_BYTE_ARRAY,
    ]


@pytest.mark.parametrize("codec", ["none", "uncompressed"])
def test_no_column_is_compressed_without_a_codec(codec: str) -> None:
    assert layout_of(pa.array(words(10)), codec).codec == "none"


def test_equal_neighbours_share_no_more_than_their_length() -> None:
    values = pa.array(["a" if n % 8 < 2 else each for n, each in enumerate(words(6))])
    assert layout_of(values, key="c").encoding is Encoding.DELTA_LENGTH_BYTE_ARRAY


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "brotli"])
def test_every_codec_is_used_where_it_pays(codec: str) -> None:
    assert layout_of(pa.array(["abcdefgh" * 9 + each for each in words(6)]), codec).codec == codec
    assert layout_of(random_longs(), codec).codec == "none"


def test_nulls_do_not_hide_the_values() -> None:
    values = [None if place % 3 else place for place in range(ROWS)]
    assert layout_of(pa.array(values)).encoding is Encoding.DELTA_BINARY_PACKED


def test_views_have_the_layout_of_plain_text() -> None:
    texts = pa.array(words(10))
    assert layout_of(texts) == layout_of(texts.cast(pa.string_view()))


def test_empty_files_have_a_layout() -> None:
    kinds = pa.schema([("a", pa.string()), ("b", pa.map_(pa.string(), pa.int64()))])
    paths = [each.path for each in choose_layout(kinds.empty_table(), ["a"], "zstd", 512)]
    assert paths == ["a", "b.key_value.key", "b.key_value.value"]


@given(st.integers(1, 63), st.integers(0, 2**32))
def test_chosen_differences_are_smaller_than_plain_values(bits: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), 500)
    layout = layout_of(pa.array(values))
    if layout.encoding is not Encoding.DELTA_BINARY_PACKED:
        return
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"c": values}),
        sink,
        use_dictionary=False,
        compression="none",
        column_encoding=layout.encoding.value,
    )
    chunk = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0).column(0)
    assert chunk.total_compressed_size < values.nbytes
