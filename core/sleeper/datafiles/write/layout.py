"""The layout of a data file's columns: encoding and codec, decided from its first rows.

* A column whose values repeat has a dictionary, which makes it small. A dictionary of many values
  is slow to write and larger than the values (two random texts and a number: 3.3 instead of 7.1 M
  rows/s, 76 instead of 57 MB).
* Other text has its lengths first, which decodes faster than lengths between the values. A key
  field whose neighbours share a prefix stores the rest of each value only.
* Whole numbers and times store the differences of neighbours if that is as small as compression,
  which takes many times as long.
* A column whose pages compression makes less than a tenth smaller is not compressed, nor are the
  indices of a small dictionary if they lose less than a fifth: small pages cost readers a
  decompressor each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain, take_plain

UNCOMPRESSED = "none"
_UNCOMPRESSED_NAMES = (UNCOMPRESSED, "uncompressed")


class Encoding(Enum):
    """An encoding of Parquet. A column with a dictionary continues without one if it grows."""

    PLAIN = "PLAIN"
    DICTIONARY = "RLE_DICTIONARY"
    DELTA_BINARY_PACKED = "DELTA_BINARY_PACKED"
    DELTA_LENGTH_BYTE_ARRAY = "DELTA_LENGTH_BYTE_ARRAY"
    DELTA_BYTE_ARRAY = "DELTA_BYTE_ARRAY"


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The layout of a column. `path` is Parquet's, and `codec` Arrow's name."""

    path: str
    encoding: Encoding
    codec: str


# A dictionary of rarely repeated values costs the reader memory and time, so a column continues
# without one beyond half a page.
_DICTIONARIES_PER_PAGE = 2


@dataclass(frozen=True, slots=True)
class PageLimits:
    """The maximum size of a page. The pages of all columns have the same rows if rows limit it."""

    bytes: int
    rows: int

    @property
    def dictionary_bytes(self) -> int:
        """The maximum size of a dictionary, which a reader of one page reads too."""
        return self.bytes // _DICTIONARIES_PER_PAGE


# Twice as many rows would take a tenth of the time of an ingest into small files.
_SAMPLE_ROWS = 4_096
_DISTINCT_SHARE_MAX = 1 / 3
# Values repeat less in a sample than in the file: 0.7 of 4,096 are about 5,000 values.
_DISTINCT_SHARE_OF_SAMPLE_MAX = 0.7
_COMPRESSED_SAMPLE_BYTES = 65_536
_COMPRESSED_SHARE_MAX = 0.9
_COMPRESSED_SHARE_OF_INDICES_MAX = 0.8
_SMALL_DICTIONARY_BYTES = 4_096
# Parquet stores longer runs of equal indices as one.
_RUN_INDICES = 16
_NEIGHBOURS = 256
# Each value has the length of its prefix, and decoding copies the prefix.
_SHARED_BYTES_MIN = 2
_PREFIX_BYTES_MAX = 32


def choose_layout(
    first_rows: pa.Table, key_names: Sequence[str], codec: str, page_rows: int
) -> tuple[ColumnLayout, ...]:
    """Returns the layouts of all columns by Parquet path, in file order.

    `first_rows` is the file's first row group, in key order. `codec` is used where it pays in
    pages of `page_rows`.
    """
    repeating = set(dictionary_columns(first_rows))
    neighbours = _middle(first_rows)
    return tuple(
        ColumnLayout(
            path, Encoding.DICTIONARY, _index_codec(neighbours.column(field.name), codec, page_rows)
        )
        if path in repeating
        else _choose(neighbours.column(field.name), path, field.name in key_names, codec, page_rows)
        for field in first_rows.schema
        for path in _paths(field)
    )


def dictionary_columns(first_rows: pa.Table) -> list[str]:
    """Returns the Parquet paths of columns whose values occur three or more times on average.

    `first_rows` is the file's first row group, which is sampled at a stride because adjacent rows
    of a sorted file are similar. Values inside lists and maps always have a dictionary.
    """
    stride = max(1, first_rows.num_rows // _SAMPLE_ROWS)
    positions = np.arange(0, first_rows.num_rows, stride)
    share_max = _DISTINCT_SHARE_MAX if stride == 1 else _DISTINCT_SHARE_OF_SAMPLE_MAX
    return [
        path
        for field in first_rows.schema
        if pa.types.is_nested(field.type)
        or _repeats(take_plain(first_rows.column(field.name), positions), share_max)
        for path in _paths(field)
    ]


def _paths(field: pa.Field) -> list[str]:
    if pa.types.is_map(field.type):
        return [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
    if pa.types.is_list(field.type):
        return [f"{field.name}.list.{field.type.value_field.name}"]
    return [field.name]


def _repeats(values: pa.Array, share_max: float) -> bool:
    try:
        distinct = pc.count_distinct(values, mode="only_valid").as_py()
    except pa.ArrowNotImplementedError:
        return True
    return bool(distinct <= share_max * (len(values) - values.null_count))


def _middle(rows: pa.Table) -> pa.Table:
    start = max(0, (rows.num_rows - _SAMPLE_ROWS) // 2)
    return rows.slice(start, _SAMPLE_ROWS)


def _index_codec(sample: pa.ChunkedArray, codec: str, page_rows: int) -> str:
    """Returns the codec of a column with a dictionary. Its dictionary has the same codec."""
    if pa.types.is_nested(sample.type):
        return codec
    encoded = as_plain(sample).drop_null().combine_chunks().dictionary_encode()
    if encoded.dictionary.nbytes > _SMALL_DICTIONARY_BYTES:
        return codec
    indices = encoded.indices.to_numpy()[:page_rows]
    if np.count_nonzero(np.diff(indices)) * _RUN_INDICES <= len(indices):
        return UNCOMPRESSED
    positions = np.arange(max(len(encoded.dictionary) - 1, 1).bit_length())
    packed = np.packbits((indices[:, None] >> positions & 1).astype(np.uint8), bitorder="little")
    share = _compressed_share(memoryview(packed.tobytes()), codec)
    return codec if share <= _COMPRESSED_SHARE_OF_INDICES_MAX else UNCOMPRESSED


def _choose(
    sample: pa.ChunkedArray, path: str, is_key: bool, codec: str, page_rows: int
) -> ColumnLayout:
    values = as_plain(sample).drop_null().combine_chunks()
    content = _content(values)
    page_bytes = len(content) * page_rows // max(len(values), 1)
    compressed = _compressed_share(content[: max(page_bytes, 1)], codec)
    suited_codec = codec if compressed <= _COMPRESSED_SHARE_MAX else UNCOMPRESSED
    if _is_text(values.type):
        is_prefixed = is_key and _shared_bytes(values) >= _SHARED_BYTES_MIN
        encoding = Encoding.DELTA_BYTE_ARRAY if is_prefixed else Encoding.DELTA_LENGTH_BYTE_ARRAY
        return ColumnLayout(path, encoding, suited_codec)
    if _is_whole(values.type):
        numbers = np.frombuffer(content, f"i{values.type.byte_width}")
        share_max = min(compressed, _COMPRESSED_SHARE_MAX)
        if _difference_bytes(numbers) <= share_max * len(content):
            return ColumnLayout(path, Encoding.DELTA_BINARY_PACKED, UNCOMPRESSED)
    return ColumnLayout(path, Encoding.PLAIN, suited_codec)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _content(values: pa.Array) -> memoryview:
    """Returns the bytes of values without nulls, one after the other, without lengths."""
    if not len(values):
        return memoryview(b"")
    content = memoryview(values.buffers()[-1])
    if pa.types.is_boolean(values.type):
        return content
    if _is_text(values.type):
        ends = np.frombuffer(values.buffers()[1], np.int32)
        return content[ends[values.offset] : ends[values.offset + len(values)]]
    width = values.type.byte_width
    return content[values.offset * width : (values.offset + len(values)) * width]


def _compressed_share(content: memoryview, codec: str) -> float:
    """Returns the size of compressed bytes relative to the bytes."""
    part = content[:_COMPRESSED_SAMPLE_BYTES]
    if codec in _UNCOMPRESSED_NAMES or not len(part):
        return 1.0
    arrow_codec = "lz4_raw" if codec == "lz4" else codec
    return float(pa.compress(part, arrow_codec).size / len(part))


def _shared_bytes(values: pa.Array) -> float:
    """Returns the mean number of first bytes that neighbours share, of up to 32 bytes each."""
    texts = values.slice(0, _NEIGHBOURS).cast(pa.binary()).to_pylist()
    if len(texts) < 2:
        return 0.0
    starts = np.array(texts, f"S{_PREFIX_BYTES_MAX}").view(np.uint8).reshape(len(texts), -1)
    is_same = starts[1:] == starts[:-1]
    # Shorter texts are padded with zeros.
    lengths = np.array([len(text) for text in texts])
    shared = np.logical_and.accumulate(is_same, axis=1).sum(axis=1)
    return float(np.minimum(shared, np.minimum(lengths[1:], lengths[:-1])).mean())


_BLOCK_VALUES = 128
_MINIBLOCK_VALUES = 32
_BLOCK_HEADER_BYTES = 12


def _difference_bytes(numbers: npt.NDArray[np.signedinteger[Any]]) -> float:
    """Returns the approximate size of DELTA_BINARY_PACKED."""
    differences = np.diff(numbers.astype(np.int64))
    blocks = len(differences) // _BLOCK_VALUES
    if not blocks:
        return float("inf")
    by_block = differences[: blocks * _BLOCK_VALUES].reshape(blocks, _BLOCK_VALUES)
    # Differences wrap around, so the distance to the least one is unsigned.
    above = (by_block - by_block.min(axis=1, keepdims=True)).view(np.uint64)
    largest = above.reshape(-1, _MINIBLOCK_VALUES).max(axis=1)
    bits = np.ceil(np.log2(largest.astype(np.float64) + 1)).sum()
    size = bits * _MINIBLOCK_VALUES / 8 + blocks * _BLOCK_HEADER_BYTES
    return float(size * len(numbers) / (blocks * _BLOCK_VALUES))
