"""Views of versions: all values as columns, shared by the processes of a machine."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.adjunct.columns import lookup as column_view
from sleeper.adjunct.columns.lookup import ColumnLookup, build_view, find_view, open_view
from sleeper.adjunct.contents.keys import KeyCodec
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.definition import Layout, StoreDefinition
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreReader, StoreVersion
from sleeper.errors import UnavailableError
from sleeper.schema.model import DecimalType, FieldType, PrimitiveType
from tests.clock import FakeClock
from tests.unit.adjunct.test_columns import INT, KEY, LONG, TEXT, VALUE, keys_of, people, stored

KEYS: dict[tuple[FieldType, ...], st.SearchStrategy[Any]] = {
    (LONG,): st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9),
    (INT,): st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9),
    (TEXT,): st.text(max_size=20),
    (PrimitiveType.BYTE_ARRAY,): st.binary(max_size=20),
    (PrimitiveType.TIMESTAMP,): st.datetimes(timezones=st.just(UTC)),
    (PrimitiveType.DATE, PrimitiveType.BOOLEAN): st.tuples(st.dates(), st.booleans()),
    (DecimalType(9, 2),): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n) / 100),
    (TEXT, INT): st.tuples(st.text("a\0", max_size=3), st.integers(-2, 2)),
}


@given(st.data())
def test_a_view_finds_what_the_engine_finds(data: st.DataObject) -> None:
    types = data.draw(st.sampled_from([*KEYS]))
    fields = stored([(f"k{place}", kind) for place, kind in enumerate(types)])
    rows = data.draw(st.dictionaries(KEYS[types], st.tuples(st.none() | st.text(), st.none())))
    version = people(rows, fields)
    asked = data.draw(st.lists(st.none() | KEYS[types] | st.sampled_from([*rows, None])))
    parts = [each if isinstance(each, tuple) else (each,) * len(types) for each in asked]
    lookup = ColumnLookup("people", version)
    columns = [
        pa.array([part[place] for part in parts], field.type)
        for place, field in enumerate(lookup.key_schema)
    ]
    view = build_view("people", version)
    expected = lookup.find(keys_of(*columns))
    places = view.find(columns)
    assert places.is_valid() == expected.is_present
    assert view.values.take(places) == expected.values


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(StoreDefinition("people", "table:people"), tmp_path, FakeClock(1_000))
    fill(made, 1, 1000)
    yield made
    made.close()


def fill(store: Store, number: int, count: int) -> None:
    layout = Layout(KEY, VALUE)
    codec = KeyCodec("people", layout)
    names = pa.array([f"name {number} of {key}" for key in range(count)])
    ages = pa.array(range(count), pa.int32())
    values = ValueCodec(layout).encode_rows([names, ages], count)
    state = replace(store.new_state(), layout=layout, dataset=str(number))
    store.build([Writes([codec.encode(key) for key in range(count)], values)], lambda: state)


def read(store: Store) -> StoreVersion:
    assert store.folder is not None
    reader = StoreReader(store.folder.path.parent, "people")
    return reader.serving


def names_of(version: StoreVersion, keys: range, **options: Any) -> list[Any]:
    lookup = ColumnLookup("people", version, ["name"], is_fixed=True, **options)
    return [
        name
        for start in range(keys.start, keys.stop, 50)
        for name in lookup.lookup(keys_of(pa.array(range(start, start + 50)))).column(0).to_pylist()
    ]


def test_after_many_lookups_a_view_is_built_once_for_all_readers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = read(store), read(store)
    assert names_of(first, range(100)) == [f"name 1 of {key}" for key in range(100)]
    assert find_view(second) is None  # few lookups
    expected = [f"name 1 of {key}" for key in range(1000)] + [None] * 50
    assert names_of(first, range(1050)) == expected
    assert find_view(second) is not None
    monkeypatch.setattr(StoreVersion, "get_contents", None)
    monkeypatch.setattr(column_view, "build_view", None)
    assert names_of(second, range(1050)) == expected


def test_a_version_that_may_change_or_is_large_has_no_view(store: Store) -> None:
    version = read(store)
    assert len(names_of(version, range(1000), view_bytes=100)) == 1000
    lookup = ColumnLookup("people", version)
    for start in range(0, 1000, 50):
        lookup.lookup(keys_of(pa.array(range(start, start + 50))))
    assert find_view(version) is None


def test_a_view_belongs_to_one_state_of_a_version(store: Store) -> None:
    before = read(store)
    open_view("people", before)
    # Changes of the same version.
    store.apply((), lambda: replace(before.state, positions={"number": "2"}))
    after = read(store)
    assert find_view(after) is None
    assert before.folder == after.folder
    open_view("people", after)
    assert find_view(after) is not None
    assert find_view(before) is None
    assert names_of(before, range(100)) == [f"name 1 of {key}" for key in range(100)]


def test_a_view_in_use_outlives_its_version(store: Store) -> None:
    version = read(store)
    folder = version.folder
    view = open_view("people", version)
    del version
    fill(store, 2, 1000)
    assert folder is not None
    assert not folder.exists()
    places = view.find([pa.array([7, 2000])])
    assert view.values.take(places).column("name").to_pylist() == ["name 1 of 7", None]
    assert names_of(read(store), range(50))[7] == "name 2 of 7"


def test_one_of_many_threads_builds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def build(store: str, version: StoreVersion) -> column_view.ColumnView:
        built.append(store)
        return build_view(store, version)

    monkeypatch.setattr(column_view, "build_view", build)
    version = read(store)
    threads = [threading.Thread(target=open_view, args=("people", version)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert built == ["people"]


def test_what_a_killed_process_left_is_no_view(store: Store) -> None:
    version = read(store)
    open_view("people", version)
    assert version.folder is not None
    (made,) = version.folder.glob("columns-*")
    made.rename(made.with_suffix(".new"))
    assert find_view(version) is None
    open_view("people", version)
    assert [each.name for each in version.folder.glob("columns-*")] == [made.name]


def test_a_full_disk_is_unavailable(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.save", fail)
    with pytest.raises(
        UnavailableError, match=r"store 'people': cannot write columns to .*No space"
    ):
        open_view("people", read(store))


def test_an_empty_store_has_a_view() -> None:
    view = build_view("people", people({}))
    assert view.find([pa.array([1, None])]).to_pylist() == [None, None]
    assert view.values.schema.names == ["name", "age"]
    by_text = build_view("people", people({}, stored([("id", TEXT)])))
    assert by_text.find([pa.array(["a"])]).to_pylist() == [None]
