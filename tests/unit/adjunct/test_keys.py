"""Keys of adjunct stores as bytes."""

from collections.abc import Callable
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sleeper.adjunct.contents.keys import KeyCodec
from sleeper.adjunct.definition import Layout, StoredField
from sleeper.adjunct.engines.engine import KEYS_END
from sleeper.datafiles.arrow import arrow_type
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import DecimalType, FieldType, PrimitiveType

_BYTES = st.lists(st.sampled_from([0, 1, 97, 254, 255]), max_size=4).map(bytes)
_TEXT = st.text(st.sampled_from("\0\1a\x7fé\uffff\U0001f600"), max_size=4) | st.text(max_size=4)
_VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    PrimitiveType.INT: st.integers(-(2**31), 2**31 - 1),
    PrimitiveType.LONG: st.integers(-(2**63), 2**63 - 1),
    PrimitiveType.STRING: _TEXT,
    PrimitiveType.BYTE_ARRAY: _BYTES,
    PrimitiveType.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    PrimitiveType.DATE: st.dates(),
    PrimitiveType.BOOLEAN: st.booleans(),
    DecimalType(9, 2): st.decimals(-(10**7) + 1, 10**7 - 1, places=2),
    DecimalType(18, 0): st.decimals(-(10**18) + 1, 10**18 - 1, places=0),
}


def make_codec(*types: FieldType) -> KeyCodec:
    fields = tuple(StoredField(f"k{place}", each) for place, each in enumerate(types))
    return KeyCodec("accounts", Layout(fields, None))


@st.composite
def typed_keys(draw: st.DrawFn) -> tuple[list[FieldType], list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=3))
    key = st.tuples(*(_VALUES[each] for each in types))
    return types, draw(st.lists(key, min_size=1, max_size=8))


def comparable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.encode() if isinstance(each, str) else each for each in key)


@given(typed_keys())
def test_the_bytes_have_the_order_of_the_keys(
    found: tuple[list[FieldType], list[tuple[Any, ...]]],
) -> None:
    types, keys = found
    codec = make_codec(*types)
    given_keys = [key[0] if len(key) == 1 else key for key in keys]
    encoded = [codec.encode(key) for key in given_keys]
    assert [codec.decode(each) for each in encoded] == given_keys
    by_key = [codec.encode(k[0] if len(k) == 1 else k) for k in sorted(keys, key=comparable)]
    assert sorted(encoded) == by_key
    assert all(b"" < each < KEYS_END for each in encoded)


@given(typed_keys())
def test_columns_have_the_bytes_of_single_keys(
    found: tuple[list[FieldType], list[tuple[Any, ...]]],
) -> None:
    types, keys = found
    codec = make_codec(*types)
    columns = [
        pa.array([key[place] for key in keys], arrow_type(each)) for place, each in enumerate(types)
    ]
    expected = [codec.encode(key[0] if len(key) == 1 else key) for key in keys]
    assert codec.encode_rows(columns) == expected
    assert codec.encode_rows([each.slice(1) for each in columns]) == expected[1:]


@given(typed_keys())
def test_many_keys_have_the_bytes_of_single_keys(
    found: tuple[list[FieldType], list[tuple[Any, ...]]],
) -> None:
    types, keys = found
    codec = make_codec(*types)
    given_keys = [key[0] if len(key) == 1 else key for key in keys]
    assert codec.encode_many(given_keys) == [codec.encode(key) for key in given_keys]


_ANY_KEY = st.sampled_from(
    [7, True, 2**63, -(2**63), -(2**63) - 1, 2**64, "7", "\ud800", b"7", 7.0, None, (7,), (7, "7")]
)


@example(PrimitiveType.LONG, [7, True])
@example(PrimitiveType.STRING, ["7", "\ud800"])
@given(st.sampled_from(list(_VALUES)), st.lists(_ANY_KEY, max_size=3))
def test_many_keys_are_refused_like_single_keys(kind: FieldType, keys: list[Any]) -> None:
    codec = make_codec(kind)

    def outcome(encode: Callable[[], list[bytes]]) -> list[bytes] | str:
        try:
            return encode()
        except InvalidRequestError as error:
            return str(error)

    expected = outcome(lambda: [codec.encode(key) for key in keys])
    assert outcome(lambda: codec.encode_many(keys)) == expected


@given(typed_keys())
def test_a_bound_of_the_first_fields_precedes_all_keys_with_them(
    found: tuple[list[FieldType], list[tuple[Any, ...]]],
) -> None:
    types, keys = found
    codec = make_codec(*types)
    for key in keys:
        for count in range(1, len(types)):
            bound = codec.encode_bound(key[:count])
            for other in keys:
                is_below = comparable(other[:count]) < comparable(key[:count])
                assert (codec.encode(other) < bound) == is_below


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("7", "store 'accounts': field 'k0' is LongType: str '7' does not fit"),
        (True, "store 'accounts': field 'k0' is LongType: bool True does not fit"),
        (2**63, "store 'accounts': field 'k0': 9223372036854775808 does not fit LongType"),
        ((1, 2), r"store 'accounts': key \(1, 2\) \(expected a value of k0\)"),
        (None, "store 'accounts': field 'k0' is LongType: NoneType None does not fit"),
    ],
)
def test_a_key_of_another_type_is_refused(key: Any, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        make_codec(PrimitiveType.LONG).encode(key)


def test_a_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="is not Unicode text"):
        make_codec(PrimitiveType.STRING).encode("\ud800")


def test_a_key_of_several_fields_is_a_tuple() -> None:
    codec = make_codec(PrimitiveType.LONG, PrimitiveType.STRING)
    for key in (5, (5,), (5, "a", "b"), ()):
        with pytest.raises(InvalidRequestError, match="expected a tuple of 2 values: k0, k1"):
            codec.encode(key)
    with pytest.raises(InvalidRequestError, match="expected a tuple of 2 values: k0, k1"):
        codec.encode_bound(())


def test_times_of_far_years_are_numbers() -> None:
    codec = make_codec(PrimitiveType.TIMESTAMP)
    assert codec.decode(codec.encode(2**63 - 1)) == 2**63 - 1
    assert codec.encode("1970-01-01T00:00:00.000001Z") == codec.encode(1)
