"""Stores without a copy, which read keys when they are asked for and keep some."""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adjunct import AdjunctStore
from sleeper.adjunct.engines.cache import CacheEngine
from sleeper.adjunct.engines.engine import DeletedRange, Writes
from sleeper.adjunct.inputs.table import TableInput
from sleeper.adjunct.open_store import OpenStore
from sleeper.errors import InvalidRequestError, StateMovedOnError, UnavailableError

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}],
}
BYTES = 65_536


class Source:
    """A mapping of keys to values at each state. `asked` has the keys of each read."""

    def __init__(self) -> None:
        self.values: dict[bytes, dict[bytes, bytes]] = {}
        self.asked: list[list[bytes]] = []
        self.during: list[Any] = []

    def read(self, keys: Sequence[bytes], state: bytes) -> list[bytes | None]:
        self.asked.append(list(keys))
        values = [self.values[state].get(key) for key in keys]
        for each in self.during:
            each()
        self.during = []
        return values


@pytest.fixture
def source() -> Source:
    made = Source()
    made.values = {b"1": {b"a": b"1", b"b": b"1"}, b"2": {b"a": b"2", b"c": b"2"}}
    return made


def at_first(source: Source, bytes_max: int = BYTES) -> CacheEngine:
    engine = CacheEngine(bytes_max, source.read)
    assert engine.get(b"a") is None
    assert engine.load([], b"1") == 0
    return engine


def to_second(engine: CacheEngine) -> None:
    engine.apply([Writes([b"a", b"c"], [b"2", b"2"], [DeletedRange(b"b", b"c")])], b"2")


def test_keys_are_read_once_also_those_without_value(source: Source) -> None:
    engine = at_first(source)
    assert engine.get_many([b"a", b"x", b"a"]) == [b"1", None, b"1"]
    assert engine.get_many([b"x", b"b", b"a"]) == [None, b"1", b"1"]
    assert engine.get(b"x") is None
    assert source.asked == [[b"a", b"x"], [b"b"]]


def test_changes_reach_the_keys_in_memory(source: Source) -> None:
    engine = at_first(source)
    engine.get_many([b"a", b"b", b"c"])
    to_second(engine)
    assert engine.get_many([b"a", b"b", b"c"]) == [b"2", None, b"2"]
    assert len(source.asked) == 1


def test_a_change_during_a_read_makes_no_stale_key(source: Source) -> None:
    engine = at_first(source)
    engine.get(b"a")
    source.during = [lambda: to_second(engine)]
    # All values of one call are of one state.
    assert engine.get_many([b"a", b"b", b"c"]) == [b"1", b"1", None]
    assert engine.get_many([b"a", b"b", b"c"]) == [b"2", None, b"2"]
    assert source.asked == [[b"a"], [b"b", b"c"], [b"b", b"c"]]


def test_the_keys_that_were_not_used_make_room(source: Source) -> None:
    source.values[b"1"] = {bytes([number]): b"v" * 700 for number in range(100)}
    engine = at_first(source, 3_100)  # three keys
    for key in (b"\1", b"\2", b"\3", b"\1", b"\4"):
        engine.get(key)
    source.asked.clear()
    assert engine.get_many([b"\1", b"\2", b"\3", b"\4"]) == [b"v" * 700] * 4
    assert source.asked == [[b"\2"]]
    source.values[b"1"][b"large"] = b"v" * 4_000
    assert engine.get(b"large") == b"v" * 4_000
    assert engine.size() <= 3_100


@pytest.mark.parametrize("value_bytes", [0, 10, 1_000])
def test_the_memory_is_bounded(source: Source, value_bytes: int) -> None:
    value = b"" if value_bytes else None
    bytes_max = 2 * 1024**2
    engine = CacheEngine(
        bytes_max, lambda keys, _: [None if value is None else bytes(value_bytes) for _ in keys]
    )
    engine.load([], b"1")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(15_000):
            engine.get(number.to_bytes(9, "big"))
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert bytes_max * 0.3 < used <= bytes_max
    assert bytes_max * 0.9 < engine.size() <= bytes_max


def add(table: sleeper.Table, rows: dict[int, str]) -> None:
    table.ingest(pa.table({"id": list(rows), "name": list(rows.values())}))


@pytest.fixture
def people(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("people", SCHEMA, {"sleeper.table.rows": "latest"})
    add(table, {1: "Ann", 2: "Bob"})
    return table


def opened(instance: sleeper.Instance, **options: Any) -> AdjunctStore:
    options = {"cache_bytes": BYTES, "refresh_seconds": None, **options}
    return AdjunctStore.open("people", "table:people", instance=instance, **options)


def test_a_store_is_the_table_at_one_transaction(
    instance: sleeper.Instance, people: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    find = TableInput.find

    def count(self: TableInput, *arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        return find(self, *arguments)

    monkeypatch.setattr(TableInput, "find", count)
    with opened(instance) as store:
        assert store.status().bootstrapped
        assert store.get_many([1, 3, 1]) == [{"name": "Ann"}, None, {"name": "Ann"}]
        number = people.version
        add(people, {1: "Amy", 3: "Cid"})
        people.delete(keys=[[2]])
        assert store.get_many([1, 2, 3]) == [{"name": "Ann"}, {"name": "Bob"}, None]
        assert store.status().offset["number"] == str(number)
        assert reads == 2
        assert store.refresh() == 3
        assert store.get_many([1, 2, 3]) == [{"name": "Amy"}, None, {"name": "Cid"}]
        assert store.status().offset["number"] == str(people.version)
        assert reads == 2
        assert 0 < store.status().bytes <= BYTES
        people.add_field("age", "LongType", default=7)
        store.refresh()
        assert store.get(1) == {"name": "Amy", "age": 7}
        assert reads == 3


def test_what_needs_a_copy_is_refused(
    instance: sleeper.Instance, people: sleeper.Table, tmp_path: Path
) -> None:
    del people
    with opened(instance) as store:
        for scan in (store.all, store.range):
            with pytest.raises(InvalidRequestError, match="has no copy of its input"):
                list(scan())
    for problem, options in {
        "has a partition and a cache": {"partition": "0/2"},
        "has an extractor and a cache": {"extractor": "a"},
        "has a time to live and a cache": {"ttl": "1h"},
        "cache of 10 bytes": {"cache_bytes": 10},
    }.items():
        with pytest.raises(InvalidRequestError, match=problem):
            opened(instance, **options)
    (tmp_path / "a.csv").write_text("id\n1\n")
    with pytest.raises(InvalidRequestError, match="is read as a whole"):
        AdjunctStore.open("files", f"files:{tmp_path / 'a.csv'}", cache_bytes=BYTES)


def test_a_transaction_that_is_not_kept_needs_a_refresh(
    instance: sleeper.Instance, people: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired(self: TableInput, *_: Any) -> Any:
        raise StateMovedOnError("version 1 was collected")

    with opened(instance) as store:
        assert store.get(1) == {"name": "Ann"}
        with monkeypatch.context() as patched:
            patched.setattr(TableInput, "find", expired)
            assert store.get(1) == {"name": "Ann"}
            with pytest.raises(UnavailableError, match="cannot be read any more: version 1 was"):
                store.get(2)
        add(people, {2: "Ben"})
        store.refresh()
        assert store.get(2) == {"name": "Ben"}


def test_another_table_of_the_name_is_read_after_a_refresh_only(
    instance: sleeper.Instance, people: sleeper.Table
) -> None:
    with opened(instance) as store:
        assert store.get(1) == {"name": "Ann"}
        instance.delete_table("people")
        add(instance.create_table("people", SCHEMA), {1: "New", 2: "New"})
        assert isinstance(store._store, OpenStore)
        store._store.updater.feed.lag()  # which looks the table up again
        assert store.get(1) == {"name": "Ann"}
        with pytest.raises(UnavailableError, match="deleted and created again"):
            store.get(2)
        store.refresh()
        assert store.get_many([1, 2]) == [{"name": "New"}] * 2
