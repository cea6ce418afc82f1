"""Stores that follow random logs equal loads of them."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sleeper.adjunct.definition import EngineType
from sleeper.errors import UnavailableError
from tests.examples import examples
from tests.fake_log import FakeLog, unavailable
from tests.unit.adjunct.log_stores import LogStore

KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
VALUES = st.one_of(st.none(), st.integers(0, 9))
KINDS = st.sampled_from(list(EngineType))


class _Streams(RuleBasedStateMachine):
    """A log, and a store that may be closed and opened again."""

    is_bounded = False

    def __init__(self) -> None:
        super().__init__()
        self.log = FakeLog(3)
        self.folder = tempfile.TemporaryDirectory()
        self.kind = EngineType.ROCKSDB
        self.store: LogStore | None = None
        self.open()

    def open(self) -> None:
        path = Path(self.folder.name)
        self.store = LogStore(path, self.log, is_bounded=self.is_bounded, kind=self.kind)

    @rule(key=KEYS, value=VALUES, times=st.integers(1, 3))
    def send(self, key: str, value: int | None, times: int) -> None:
        for _ in range(times):  # a producer may deliver a message again
            self.log.send(key, value)

    @rule()
    def fail(self) -> None:
        self.log.failures.append(unavailable())

    @rule(kind=KINDS)
    def reopen(self, kind: EngineType) -> None:
        self.close()
        self.kind = kind
        self.open()

    @rule()
    def rebuild(self) -> None:
        assert self.store is not None
        self.store.feed.rebuild()

    def try_update(self) -> dict[Any, Any] | None:
        """Returns the content of the store after an update, None if that failed."""
        assert self.store is not None
        try:
            self.store.feed.update()
        except UnavailableError:
            return None
        return {} if self.store.store.current is None else self.store.content()

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None

    def teardown(self) -> None:
        self.close()
        self.folder.cleanup()


class Changes(_Streams):
    """A log of changes: the store has the newest value of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.is_trimmed = False

    @rule()
    def update(self) -> None:
        content = self.try_update()
        if content is None:
            return
        expected = self.log.fold()
        if not self.is_trimmed:
            assert content == expected
        # A store may have what the log has forgotten, as far as it was read before.
        assert content.items() >= expected.items()

    @precondition(lambda self: not self.is_trimmed)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.is_trimmed = True
        for name, each in self.log.partitions.items():
            self.log.trim(name, data.draw(st.integers(0, len(each.messages))))


class Datasets(_Streams):
    """A log of datasets: the store has the newest that is complete, or one before it."""

    is_bounded = True

    def __init__(self) -> None:
        super().__init__()
        self.building: dict[str, int] = {}
        self.count = 0
        self.complete: dict[Any, Any] = {}

    @rule(key=KEYS, value=VALUES, times=st.integers(1, 3))
    def send(self, key: str, value: int | None, times: int) -> None:
        super().send(key, value, times)
        self.building.pop(key, None)
        if value is not None:
            self.building[key] = value

    @rule(order=st.permutations(["0", "1", "2"]), updates=st.booleans())
    def end(self, order: list[str], updates: bool) -> None:
        self.count += 1
        before = self.complete
        for number, partition in enumerate(order):
            self.log.end(f"v{self.count}", partition)
            if updates and number < 2:
                content = self.try_update()
                assert content is None or content == before
        self.complete, self.building = self.building, {}

    @rule()
    def update(self) -> None:
        content = self.try_update()
        assert content is None or content == self.complete

    @rule(partition=st.sampled_from(["0", "1", "2"]))
    def repeat_marker(self, partition: str) -> None:
        if self.count and self.try_update() is not None:
            self.log.end(f"v{self.count}", partition)

    @invariant()
    def serves_one_dataset(self) -> None:
        if self.store is not None and self.store.store.current is not None:
            dataset = self.store.state.dataset
            assert dataset is not None
            assert int(dataset[1:]) <= self.count


SETTINGS = settings(max_examples=examples(15), stateful_step_count=20, deadline=None)
TestChanges = Changes.TestCase
TestChanges.settings = SETTINGS
TestDatasets = Datasets.TestCase
TestDatasets.settings = SETTINGS
