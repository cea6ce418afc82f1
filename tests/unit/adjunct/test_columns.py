"""Lookups of columns equal lookups of single keys."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.adjunct.columns.lookup import ColumnLookup
from sleeper.adjunct.columns.values import ValueColumns
from sleeper.adjunct.contents.keys import encode_key_columns
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.definition import Layout, StoredField, StoreState
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.engines.memory import MemoryEngine
from sleeper.adjunct.versions.version import StoreVersion
from sleeper.datafiles.arrow import arrow_type
from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.schema.model import DecimalType, FieldType, PrimitiveType
from tests.unit.adjunct.test_values import rows_of_types

LONG, TEXT, INT = PrimitiveType.LONG, PrimitiveType.STRING, PrimitiveType.INT
KEY = (StoredField("id", LONG),)
VALUE = (StoredField("name", TEXT), StoredField("age", INT))
PEOPLE = {1: ("Ann", 30), 2: (None, 40), 3: ("Cid", None), 5: ("", 0)}


def stored(kinds: Sequence[tuple[str, FieldType]]) -> tuple[StoredField, ...]:
    return tuple(StoredField(*each) for each in kinds)


def version(layout: Layout | None, keys: Sequence[bytes], values: Sequence[bytes]) -> StoreVersion:
    engine = MemoryEngine()
    engine.apply((Writes(keys, values),), b"")
    return StoreVersion(
        "people", engine, replace(StoreState("table:people", None, None), layout=layout)
    )


def people(
    rows: Mapping[Any, tuple[Any, ...]] = PEOPLE,
    keys: tuple[StoredField, ...] = KEY,
    values: tuple[StoredField, ...] = VALUE,
) -> StoreVersion:
    layout = Layout(keys, values)
    parts = [key if isinstance(key, tuple) else (key,) for key in rows]
    key_columns = [
        pa.array([each[place] for each in parts], arrow_type(field.type))
        for place, field in enumerate(keys)
    ]
    columns = [
        pa.array([row[place] for row in rows.values()], arrow_type(field.type))
        for place, field in enumerate(values)
    ]
    encoded = encode_key_columns(key_columns, layout.key_types()).to_pylist()
    return version(layout, encoded, ValueCodec(layout).encode_rows(columns, len(rows)))


def keys_of(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), [f"c{n}" for n in range(len(columns))])


@given(st.lists(st.none() | st.integers(0, 6), max_size=30))
def test_a_column_is_looked_up_as_its_keys_are(keys: list[int | None]) -> None:
    found = ColumnLookup("people", people()).find(keys_of(pa.array(keys, pa.int64())))
    rows = [PEOPLE.get(key) if key is not None else None for key in keys]
    assert found.is_present.to_pylist() == [row is not None for row in rows]
    assert found.values.column("name").to_pylist() == [row and row[0] for row in rows]
    assert found.values.column("age").to_pylist() == [row[1] if row else None for row in rows]
    assert found.values.schema == pa.schema([("name", pa.string()), ("age", pa.int32())])


@given(rows_of_types(), st.data())
def test_values_of_every_type_become_columns(
    made: tuple[list[FieldType], list[list[Any]]], data: st.DataObject
) -> None:
    types, rows = made
    fields = stored([(f"v{place}", kind) for place, kind in enumerate(types)])
    columns = [
        pa.array([_to_arrow(row[place]) for row in rows], arrow_type(kind))
        for place, kind in enumerate(types)
    ]
    layout = Layout(KEY, fields)
    encoded = pa.array(ValueCodec(layout).encode_rows(columns, len(rows)), pa.large_binary())
    wanted = data.draw(st.lists(st.sampled_from(range(len(types))), unique=True))
    start = data.draw(st.integers(0, len(rows)))
    decoded = ValueColumns("s", layout, [f"v{place}" for place in wanted])
    found = decoded.decode(encoded.slice(start))
    assert [*found.columns] == [columns[place].slice(start) for place in wanted]


@given(
    st.dictionaries(
        st.tuples(st.text("a\0", max_size=3), st.integers(0, 2)), st.integers(), max_size=8
    ),
    st.lists(st.tuples(st.none() | st.text("a\0", max_size=3), st.none() | st.integers(0, 2))),
)
def test_keys_of_several_fields(
    rows: dict[tuple[str | None, int | None], int], keys: list[tuple[str | None, int | None]]
) -> None:
    kept = {key: number % 1000 for key, number in rows.items()}
    stored_rows = {key: (number,) for key, number in kept.items()}
    looked_up = ColumnLookup(
        "people", people(stored_rows, stored([("a", TEXT), ("b", LONG)]), stored([("n", LONG)]))
    )
    columns = [
        pa.array([k[0] for k in keys], pa.string()),
        pa.array([k[1] for k in keys], pa.int64()),
    ]
    found = looked_up.lookup(keys_of(*columns)).column(0).to_pylist()
    assert found == [kept.get(key) for key in keys]


def test_types_of_the_same_kind_are_cast() -> None:
    by_text = people({"a": (1,)}, stored([("id", TEXT)]), stored([("n", LONG)]))
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        found = ColumnLookup("s", by_text).lookup(keys_of(pa.array(["a", None, "b"]).cast(kind)))
        assert found.column(0).to_pylist() == [1, None, None]
    ints = keys_of(pa.array([1, 9], pa.int32()))
    assert ColumnLookup("s", people()).lookup(ints).column(0).to_pylist() == ["Ann", None]
    nothing = keys_of(pa.nulls(2))
    assert ColumnLookup("s", people()).lookup(nothing).column(0).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (
            [pa.array(["1"])],
            "store 'people': keys in column 'c0' are of type string "
            r"\(expected int64, for key field 'id'\)",
        ),
        ([pa.array([1.0])], "of type double"),
        ([pa.array([1]), pa.array([1])], r"2 columns of keys \(expected 1: id\)"),
        ([pa.array([2**63], pa.uint64())], "column 'c0': .* for key field 'id'"),
    ],
)
def test_keys_of_another_type_are_refused(columns: list[pa.Array], error: str) -> None:
    with pytest.raises(InvalidRequestError, match=error):
        ColumnLookup("people", people()).lookup(keys_of(*columns))


def test_only_some_fields_are_returned() -> None:
    keys = keys_of(pa.array([3, 1]))
    looked_up = ColumnLookup("people", people(), ["age"])
    assert looked_up.lookup(keys).to_pylist() == [{"age": None}, {"age": 30}]
    nothing = ColumnLookup("people", people(), []).find(keys_of(pa.array([3, 4])))
    assert nothing.is_present.to_pylist() == [True, False]
    with pytest.raises(
        InvalidRequestError, match=r"no value field 'agee' .expected one of: name, age"
    ):
        ColumnLookup("people", people(), ["agee"])


def test_documents_have_the_members_of_a_schema() -> None:
    layout = Layout(KEY, None)
    keys = encode_key_columns([pa.array([1, 2])], layout.key_types()).to_pylist()
    documents = [{"name": "Ann", "tags": ["x"]}, {"age": 3}]
    made = version(layout, keys, [ValueCodec.encode_document(each) for each in documents])
    fields = pa.schema([("name", pa.string()), ("tags", pa.list_(pa.string()))])
    found = ColumnLookup("people", made, fields).lookup(keys_of(pa.array([2, 1, 3])))
    assert found.to_pylist() == [
        {"name": None, "tags": None},
        {"name": "Ann", "tags": ["x"]},
        {"name": None, "tags": None},
    ]
    with pytest.raises(InvalidRequestError, match=r"documents as values .expected an Arrow schema"):
        ColumnLookup("people", made)
    with pytest.raises(DataError, match="store 'people': a value cannot be read"):
        ColumnLookup("people", made, pa.schema([("name", pa.int64())])).lookup(
            keys_of(pa.array([1]))
        )


def test_a_store_without_data_has_no_fields_yet() -> None:
    with pytest.raises(UnavailableError, match="store 'people' has no data yet"):
        ColumnLookup("people", version(None, (), ()))


def test_a_damaged_value_is_reported() -> None:
    layout = Layout(
        KEY, stored([("n", LONG), ("day", PrimitiveType.DATE), ("d", DecimalType(9, 2))])
    )
    day = datetime.date(2026, 1, 2)
    columns = [pa.array([7]), pa.array([day]), pa.array(["1.5"]).cast(pa.decimal128(9, 2))]
    (content,) = ValueCodec(layout).encode_rows(columns, 1)
    for damaged in (b"", content[:3] + b"\xc3" + content[4:], content[:5], content[:-1] + b"x"):
        with pytest.raises(DataError, match="store 's': a value cannot be read"):
            ValueColumns("s", layout).decode(pa.array([damaged], pa.large_binary()))


def test_text_that_is_not_utf_8_is_reported() -> None:
    layout = Layout(KEY, stored([("name", TEXT)]))
    (content,) = ValueCodec(layout).encode_rows([pa.array(["Ann"])], 1)
    damaged = pa.array([content[:-1] + b"\xff"], pa.large_binary())
    with pytest.raises(DataError, match="store 's': a value cannot be read"):
        ValueColumns("s", layout).decode(damaged)


def test_a_slice_of_values_is_decoded() -> None:
    layout = Layout(KEY, stored([("name", TEXT), ("n", LONG)]))
    columns = [pa.array(["Ann", "Bob", None]), pa.array([1, 2, 3])]
    encoded = pa.array(ValueCodec(layout).encode_rows(columns, 3), pa.large_binary())
    found = ValueColumns("s", layout).decode(encoded.slice(1, 2))
    assert found.to_pylist() == [{"name": "Bob", "n": 2}, {"name": None, "n": 3}]


def _to_arrow(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value
