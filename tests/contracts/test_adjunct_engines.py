"""What every engine of stores does: the same answers as a dict, before and after changes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.adjunct.engines.engine import KEYS_END, DeletedRange, Engine, Writes
from sleeper.adjunct.engines.expiring import with_expiry
from sleeper.adjunct.engines.memory import MemoryEngine
from sleeper.adjunct.engines.rocksdb import RocksDbEngine
from sleeper.errors import UnavailableError
from tests.clock import FakeClock
from tests.examples import examples

Open = Callable[[], Engine]
LOW = b"\x01"


@pytest.fixture(params=["rocksdb", "memory", "rocksdb with expiry", "memory with expiry"])
def open_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    opened: list[Engine] = []

    def open_new() -> Engine:
        folder = tmp_path / f"engine-{len(opened)}"
        kind, _, expires = request.param.partition(" with ")
        engine = RocksDbEngine(folder) if kind == "rocksdb" else MemoryEngine()
        opened.append(with_expiry(engine, 3_600_000 if expires else None, FakeClock()))
        return opened[-1]

    yield open_new
    for each in opened:
        each.close()


def key(number: int) -> bytes:
    return LOW + number.to_bytes(2, "big")


def content(engine: Engine) -> dict[bytes, bytes]:
    return dict(engine.scan(LOW, KEYS_END))


def loaded(open_engine: Open, count: int = 10) -> Engine:
    engine = open_engine()
    keys = [key(number) for number in range(count)]
    assert engine.load([Writes(keys, [b"v"] * count)], b"state") == count
    return engine


def test_a_new_engine_is_empty(open_engine: Open) -> None:
    engine = open_engine()
    assert engine.state() is None
    assert engine.get(key(1)) is None
    assert engine.get_many([key(1), key(2)]) == [None, None]
    assert content(engine) == {}


def test_a_load_is_found_with_its_state(open_engine: Open) -> None:
    engine = open_engine()
    parts = [Writes([key(1), key(2)], [b"a", b"b"]), Writes(), Writes([key(7)], [b""])]
    assert engine.load(parts, b"state") == 3
    assert engine.state() == b"state"
    assert content(engine) == {key(1): b"a", key(2): b"b", key(7): b""}
    assert engine.size() > 0


def test_an_empty_load(open_engine: Open) -> None:
    engine = open_engine()
    assert engine.load([], b"state") == 0
    assert engine.state() == b"state"
    assert content(engine) == {}


def test_a_load_pauses_for_other_threads(open_engine: Open) -> None:
    pauses: list[None] = []
    keys = [key(number) for number in range(3_000)]
    open_engine().load([Writes(keys, [b"v"] * 3_000)], b"", lambda: pauses.append(None))
    assert len(pauses) == 3


def test_a_scan_has_its_bounds(open_engine: Open) -> None:
    engine = loaded(open_engine)
    assert [each for each, _ in engine.scan(key(3), key(6))] == [key(3), key(4), key(5)]
    assert list(engine.scan(key(6), key(6))) == []


def test_many_keys_come_in_their_order(open_engine: Open) -> None:
    engine = loaded(open_engine)
    for keys in ([3, 1, 99], [3, 1, 99, 1] * 3_000):
        expected = [b"v" if number < 10 else None for number in keys]
        assert engine.get_many([key(number) for number in keys]) == expected


def test_a_change_that_fails_changes_nothing(open_engine: Open) -> None:
    engine = loaded(open_engine)
    before = content(engine)

    def parts() -> Iterator[Writes]:
        yield Writes([key(1)], [b"new"], [DeletedRange(key(2), key(5))])
        raise UnavailableError("the input does not respond")

    with pytest.raises(UnavailableError):
        engine.apply(parts(), b"next")
    assert content(engine) == before
    assert engine.state() == b"state"


def test_a_copy_has_changes_of_its_own(open_engine: Open, tmp_path: Path) -> None:
    engine = loaded(open_engine)
    engine.apply([Writes([key(1)], [b"own"])], b"second")
    copy = engine.fork(tmp_path / "copy" / "data")
    before = content(engine)
    assert content(copy) == before
    assert copy.state() == b"second"
    copy.apply([Writes([key(2)], [b"new"], [DeletedRange(key(5), None)])], b"third")
    engine.apply([Writes([key(3)], [None])], b"other")
    assert content(engine) == {k: v for k, v in before.items() if k != key(3)}
    assert len(content(copy)) == 5
    assert (engine.state(), copy.state()) == (b"other", b"third")
    copy.close()


def test_closing_twice(open_engine: Open) -> None:
    engine = loaded(open_engine)
    engine.sync()
    engine.catch_up()
    engine.close()
    engine.close()


numbers = st.integers(0, 30)
ranges = st.tuples(numbers, st.none() | numbers)
parts = st.tuples(
    st.lists(ranges, max_size=2), st.lists(st.tuples(numbers, st.none() | st.binary(max_size=2)))
)


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes=st.lists(st.lists(parts, max_size=3), max_size=5))
def test_changes_are_those_of_a_dict(open_engine: Open, changes: list[list[Any]]) -> None:
    engine = loaded(open_engine, 20)
    expected = content(engine)
    for place, batch in enumerate(changes):
        started = engine.scan(LOW, KEYS_END)
        before = dict(expected)
        writes = []
        for deleted, pairs in batch:
            bounds = [(key(low), None if high is None else key(high)) for low, high in deleted]
            bounds = [each for each in bounds if each[1] is None or each[0] < each[1]]
            for low, high in bounds:
                for found in list(expected):
                    if low <= found and (high is None or found < high):
                        del expected[found]
            for number, value in pairs:
                expected.pop(key(number), None)
                if value is not None:
                    expected[key(number)] = value
            keys, values = [key(n) for n, _ in pairs], [value for _, value in pairs]
            writes.append(Writes(keys, values, [DeletedRange(*each) for each in bounds]))
        first = next(started, None)
        engine.apply(writes, b"state-%d" % place)
        assert content(engine) == expected
        assert list(engine.scan(LOW, KEYS_END)) == sorted(expected.items())
        asked = [key(number) for number in range(31)]
        assert engine.get_many(asked) == [expected.get(each) for each in asked]
        assert [engine.get(each) for each in asked] == [expected.get(each) for each in asked]
        assert engine.state() == b"state-%d" % place
        if first is not None:
            assert dict([first, *started]) == before
