from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.properties.table import CompressionCodec
from sleeper.properties.value_kind import (
    FLAG,
    STRING_LIST,
    TAGS,
    ValueKind,
    byte_count,
    choice,
    class_name,
    whole_number,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (byte_count(), "1G", 1024**3),
        (byte_count(), "512m", 512 * 1024**2),
        (byte_count(), "131072", 131072),
        (FLAG, "True", True),
        (STRING_LIST, "a, b,,c", ("a", "b", "c")),
        (TAGS, "k1,v1,k2,", (("k1", "v1"), ("k2", ""))),
        (choice(CompressionCodec), "ZSTD", CompressionCodec.ZSTD),
        (class_name("x"), "sleeper.compaction.strategy.impl.SizeRatio", "SizeRatio"),
        (class_name("x"), "Mine_2", "Mine_2"),
    ],
)
def test_parses(kind: ValueKind[Any], text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (whole_number(1, 10), "0"),
        (whole_number(1, 10), "11"),
        (whole_number(), "1.5"),
        (whole_number(), "1_000"),
        (whole_number(), "٣"),
        (byte_count(1024), "1023"),
        (byte_count(), "1GB"),
        (byte_count(), "9E"),
        (byte_count(), "-1"),
        (FLAG, "yes"),
        (TAGS, "k1,v1,k2"),
        (TAGS, ",v1"),
        (choice(CompressionCodec), "lzma"),
        (class_name("x"), "os:system"),
        (class_name("x"), "com.example."),
        (class_name("x"), "../mine"),
    ],
)
def test_refuses(kind: ValueKind[Any], text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        kind.parse(text)


@given(st.integers(1, 2**62))
def test_byte_counts_format_to_what_parses_back(count: int) -> None:
    kind = byte_count()
    assert kind.parse(kind.format(count)) == count
