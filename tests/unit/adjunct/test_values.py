"""Values of adjunct stores as bytes."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.definition import Layout, StoredField
from sleeper.datafiles.arrow import arrow_type
from sleeper.schema.model import DecimalType, FieldType, ListType, MapType, PrimitiveType

_KEY = (StoredField("id", PrimitiveType.LONG),)
_TIMES = st.datetimes(
    datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(datetime.UTC)
)
_ELEMENTS: dict[FieldType, st.SearchStrategy[Any]] = {
    PrimitiveType.INT: st.integers(-(2**31), 2**31 - 1),
    PrimitiveType.LONG: st.integers(-(2**63), 2**63 - 1),
    PrimitiveType.STRING: st.text(max_size=40),
    PrimitiveType.BYTE_ARRAY: st.binary(max_size=40),
    PrimitiveType.BOOLEAN: st.booleans(),
    PrimitiveType.FLOAT: st.floats(width=32, allow_nan=False),
    PrimitiveType.DOUBLE: st.floats(allow_nan=False),
    PrimitiveType.TIMESTAMP: _TIMES,
    PrimitiveType.DATE: st.dates(),
    DecimalType(10, 3): st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n) / 1000),
}
_VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    **_ELEMENTS,
    **{
        ListType(kind): st.lists(each, max_size=3)  # type: ignore[arg-type]
        for kind, each in _ELEMENTS.items()
    },
    **{
        MapType(PrimitiveType.STRING, kind): st.dictionaries(st.text(max_size=3), each, max_size=3)  # type: ignore[arg-type]
        for kind, each in _ELEMENTS.items()
    },
    MapType(PrimitiveType.LONG, PrimitiveType.DATE): st.dictionaries(
        st.integers(0, 9), st.dates(), max_size=3
    ),
    MapType(PrimitiveType.DATE, PrimitiveType.BOOLEAN): st.dictionaries(
        st.dates(), st.booleans(), max_size=3
    ),
}


@st.composite
def rows_of_types(draw: st.DrawFn) -> tuple[list[FieldType], list[list[Any]]]:
    types = draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | _VALUES[each] for each in types)).map(list)
    return types, draw(st.lists(row, min_size=1, max_size=6))


@given(rows_of_types())
def test_values_of_every_type_return(found: tuple[list[FieldType], list[list[Any]]]) -> None:
    types, rows = found
    fields = tuple(StoredField(f"v{place}", each) for place, each in enumerate(types))
    codec = ValueCodec(Layout(_KEY, fields))
    columns = [
        pa.array([_to_arrow(row[place]) for row in rows], arrow_type(each))
        for place, each in enumerate(types)
    ]
    names = [each.name for each in fields]
    for skipped in (0, 1):
        encoded = codec.encode_rows([each.slice(skipped) for each in columns], len(rows) - skipped)
        expected = [dict(zip(names, row, strict=True)) for row in rows[skipped:]]
        assert [codec.decode(each) for each in encoded] == expected
        assert codec.decode_many([None, *encoded, None]) == [None, *expected, None]


def test_a_table_of_keys_only_has_empty_values() -> None:
    codec = ValueCodec(Layout(_KEY, ()))
    encoded = codec.encode_rows([], 2)
    assert codec.decode(encoded[1]) == {}
    assert codec.decode_many(encoded) == [{}, {}]


def test_many_fields_have_a_value_each() -> None:
    fields = tuple(StoredField(f"v{place}", PrimitiveType.LONG) for place in range(300))
    codec = ValueCodec(Layout(_KEY, fields))
    encoded = codec.encode_rows([pa.array([place], pa.int64()) for place in range(300)], 1)
    assert codec.decode(encoded[0]) == {f"v{place}": place for place in range(300)}


def test_a_document_is_any_value() -> None:
    codec = ValueCodec(Layout(_KEY, None))
    values = [{"a": [1, None, {"b": 2.5}]}, "text", 7, b"bytes", [1]]
    encoded = [codec.encode_document(each) for each in values]
    assert [codec.decode(each) for each in encoded] == values
    assert codec.decode_many([None, *encoded]) == [None, *values]


def test_a_field_may_have_any_name() -> None:
    names = ["", "'", '"', "\\", "{0}", "class", "a\nb", "value_0", "é"]
    codec = ValueCodec(Layout(_KEY, tuple(StoredField(n, PrimitiveType.DATE) for n in names)))
    encoded = codec.encode_rows([pa.array([place], pa.date32()) for place in range(9)], 1)
    start = datetime.date(1970, 1, 1)
    expected = {n: start + datetime.timedelta(days=place) for place, n in enumerate(names)}
    assert codec.decode(encoded[0]) == expected
    assert codec.decode_many(encoded) == [expected]


def _to_arrow(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value
