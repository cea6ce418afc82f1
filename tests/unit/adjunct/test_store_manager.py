"""The manager of a stream job's stores, with a job that records what it reads."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct import pushed_store as pushed_store_module
from sleeper.adjunct.config import parse_config
from sleeper.adjunct.definition import DAY_SECONDS
from sleeper.adjunct.extraction import Envelope
from sleeper.adjunct.pushed_store import PushedStore
from sleeper.adjunct.store_manager import (
    AdjunctDataStoreManager,
    StoreGroup,
    StoreManager,
    StreamPartition,
    make_manager,
)
from sleeper.errors import InvalidRequestError, UnavailableError, UserCodeError
from tests.clock import FakeClock

INPUT = "kafka.accounts"
Values = dict[Any, Any]


def envelope(
    offset: int, key: Any = None, value: Any = None, partition: str = "0", stream: str = INPUT
) -> Envelope:
    return Envelope(stream, partition, str(offset), str(offset + 1), key, value)


def marker(offset: int, name: str, partition: str = "0") -> Envelope:
    return Envelope(INPUT, partition, str(offset), str(offset + 1), None, name, True)


@dataclass
class Job:
    """A job of one task. `read` are the offsets that it took of each partition, at each start.

    It saves its own offsets when it ends, and its container dies with `kill`.
    """

    folder: Path
    members: dict[str, str]
    partitions: Sequence[str] = ("0",)
    clock: FakeClock = field(default_factory=lambda: FakeClock(10**12))
    log: dict[str, list[Envelope]] = field(default_factory=dict)
    saved: dict[StreamPartition, str] = field(default_factory=dict)
    read: dict[str, list[int]] = field(default_factory=dict)
    delivered: list[Envelope] = field(default_factory=list)
    oldest: str = ""

    def send(self, *envelopes: Envelope) -> None:
        for each in envelopes:
            self.log.setdefault(each.partition, []).append(each)

    @contextmanager
    def task(self) -> Iterator[tuple[StoreManager, PushedStore]]:
        """Opens the task, and reads everything."""
        with self.opened() as (manager, store):
            self.run(manager)
            yield manager, store

    @contextmanager
    def opened(self) -> Iterator[tuple[StoreManager, PushedStore]]:
        names = {f"stores.a.adstore.{name}": value for name, value in self.members.items()}
        config = parse_config({"stores.a.adstore.input": INPUT, **names})
        own = [StreamPartition(INPUT, each, self.oldest) for each in self.partitions]
        with ExitStack() as stack:
            group = StoreGroup(config, self.folder, False, self.clock)
            stack.callback(group.close)
            container = StoreGroup(config, self.folder, True, self.clock)
            stack.callback(container.close)
            manager = make_manager("task", config, own, container, group, positions=self.saved)
            assert isinstance(manager, StoreManager)
            self.read.clear()
            yield manager, group.stores["a"]
            group.flush()

    def run(self, manager: StoreManager) -> None:
        """Reads each partition from where the manager wants it, and else from the saved offset."""
        for each in self.partitions:
            partition = StreamPartition(INPUT, each)
            start = int(manager.starts[partition] or 0)
            for message in self.log.get(each, ())[start:]:
                if int(message.offset) >= int(self.oldest or 0):
                    self.read.setdefault(each, []).append(int(message.offset))
                    if not manager.process(message):
                        self.delivered.append(message)
                    self.saved[partition] = message.next_offset


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path / "stores", {})
    made.send(envelope(0, "x", 1), envelope(1, "y", 2), envelope(2, "x", 3))
    return made


def content(store: PushedStore) -> Values:
    return dict(store.all())


ALL = {"x": 3, "y": 2}
FOUR = {**ALL, "z": 4}
AGAIN = [0, 1, 2, 3]


# The cells of the table of recovery: what is read again, and what the store has then.


@dataclass(frozen=True)
class Cell:
    """What a second start finds, and what it reads again of offsets 0 to 3."""

    found: str
    bootstrap: bool
    read: list[int]
    values: Values
    is_incomplete: bool
    type: str = "rocksdb"
    reset: bool = False


CELLS = {
    "no store, bootstrap": Cell("none", True, AGAIN, FOUR, False),
    "no store, no bootstrap": Cell("none", False, [3], {"z": 4}, True),
    "not valid, bootstrap": Cell("old", True, AGAIN, FOUR, False),
    "not valid, no bootstrap": Cell("old", False, [3], {"z": 4}, True),
    "valid, bootstrap": Cell("valid", True, [3], FOUR, False),
    "valid, no bootstrap": Cell("valid", False, [3], FOUR, False),
    "memory, bootstrap": Cell("valid", True, AGAIN, FOUR, False, "memory"),
    "memory, no bootstrap": Cell("valid", False, [3], {"z": 4}, True, "memory"),
    "memory, offsets reset": Cell("valid", False, AGAIN, FOUR, False, "memory", True),
    "no store, offsets reset": Cell("none", False, AGAIN, FOUR, False, reset=True),
}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_recovery(job: Job, cell: Cell) -> None:
    job.members = {
        "bootstrap": str(cell.bootstrap).lower(),
        "type": cell.type,
        "reset.offset": str(cell.reset).lower(),
    }
    with job.task() as (manager, store):
        assert job.read == {"0": [0, 1, 2]}
        assert manager.resets() == {StreamPartition(INPUT, "0")}
        assert content(store) == ALL
    job.send(envelope(3, "z", 4))
    if cell.found == "none":
        job.folder = job.folder / "other"
    elif cell.found == "old":
        job.clock.now_ms += (DAY_SECONDS + 1) * 1000
    with job.task() as (manager, store):
        assert job.read == {"0": cell.read}
        assert manager.resets() == ({StreamPartition(INPUT, "0")} if 0 in cell.read else set())
        assert content(store) == cell.values
        assert store.status().incomplete is cell.is_incomplete
    assert not job.delivered


def test_a_store_that_is_behind_the_job_is_read_from_its_own_offset(job: Job) -> None:
    with job.task():
        pass
    job.send(envelope(3, "z", 4))
    job.saved[StreamPartition(INPUT, "0")] = "4"
    with job.task() as (_, store):
        assert job.read == {"0": [3]}
        assert content(store) == {**ALL, "z": 4}


def test_a_store_that_is_up_to_date_does_not_grow_old(job: Job) -> None:
    for _ in range(5):
        job.clock.now_ms += DAY_SECONDS * 1000 // 2
        with job.task() as (manager, _store):
            pass
    assert not manager.resets()


def test_a_trimmed_input_is_read_from_its_oldest_envelope(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    with job.task():
        pass
    job.send(envelope(3, "z", 4), envelope(4, "x", 5))
    job.oldest = "4"
    with job.task() as (manager, store):
        assert manager.resets() == {StreamPartition(INPUT, "0")}
        assert content(store) == {"x": 5}
    assert "begins at offset 4, and the store is at 3" in caplog.text


def test_other_partitions_make_the_store_again(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.send(envelope(0, "p", 1, "1"))
    with job.task():
        pass
    job.partitions = ("0", "1")
    with job.task() as (_, store):
        assert content(store) == {**ALL, "p": 1}
    assert "it has no offset for partition 1" in caplog.text
    job.partitions = ("1",)
    with job.task() as (_, store):
        assert content(store) == {"p": 1}
    assert "data of partition 0, which is not the task's" in caplog.text


def test_redelivered_envelopes_change_nothing(job: Job) -> None:
    with job.task() as (manager, store):
        for each in job.log["0"]:
            assert manager.process(each)
            assert content(store) == ALL
        assert store.positions == {"0": "3"}


def test_a_null_key_is_ignored_and_a_null_value_deletes(job: Job) -> None:
    job.send(envelope(3, None, 9), envelope(4, "x", None), envelope(5, "nothing", None))
    with job.task() as (_, store):
        assert content(store) == {"y": 2}
        assert store.positions == {"0": "6"}
        assert store.get_many(["y", "x"]) == [2, None]


def test_other_envelopes_are_delivered(job: Job) -> None:
    with job.task() as (manager, store):
        assert not manager.process(envelope(0, "x", 9, stream="kafka.visits"))
        assert store.get("x") == 3


def test_a_position_is_saved_with_its_data(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a process died, the store has the data up to its offset and nothing after it."""
    job.members = {"bootstrap": "true"}
    with job.opened() as (manager, store):
        for each in job.log["0"][:2]:
            manager.process(each)
        # A process that dies syncs nothing and closes nothing in order.
        monkeypatch.setattr(PushedStore, "flush", lambda _: None)
    with job.task() as (_, store):
        assert job.read == {"0": [2]}
        assert content(store) == ALL


# Extractors


class Halves:
    """Ignores the key "odd", and fails for negative values."""

    def get_key(self, given: Envelope) -> Any:
        return given.key

    def get_value(self, given: Envelope) -> Any:
        if given.value < 0:
            raise ValueError("negative")
        return given.value / 2


def test_an_extractor_of_the_configuration(job: Job) -> None:
    job.members = {"key.value.extractor.factory": f"{__name__}:{Halves.__name__}"}
    job.send(envelope(3, "z", -1), envelope(4, "z", 2))
    with job.opened() as (manager, store):
        expected = "store 'a': extractor .*Halves' failed for .*, partition 0, offset 3: .*negative"
        for _ in range(2):
            with pytest.raises(UserCodeError, match=expected):
                job.run(manager)
            assert content(store) == {"x": 1.5, "y": 1.0}
            assert store.positions == {"0": "3"}


# Datasets


@pytest.fixture
def datasets(job: Job) -> Job:
    job.members = {"bounded": "true"}
    job.partitions = ("0", "1")
    job.log.clear()
    return job


def test_a_dataset_is_visible_when_each_partition_has_ended(datasets: Job) -> None:
    with datasets.opened() as (manager, store):
        for each in (envelope(0, "x", 1), envelope(0, "y", 2, "1"), marker(1, "one")):
            assert manager.process(each)
            with pytest.raises(UnavailableError, match="no complete version"):
                store.get("x")
        # The next dataset has begun, and belongs to the next version.
        manager.process(envelope(2, "x", 10))
        manager.process(marker(1, "one", "1"))
        assert content(store) == {"x": 1, "y": 2}
        assert store.status().version == "one"
        manager.process(envelope(2, "z", 30, "1"))
        manager.process(marker(3, "two", "1"))
        assert content(store) == {"x": 1, "y": 2}
        manager.process(marker(3, "two"))
        assert content(store) == {"x": 10, "z": 30}
        assert store.positions == {"0": "4", "1": "4"}
        assert store.status().version == "two"


def test_a_dataset_that_was_not_complete_is_read_again(datasets: Job) -> None:
    datasets.send(envelope(0, "x", 1), marker(1, "one"), marker(0, "one", "1"))
    with datasets.task():
        pass
    datasets.send(envelope(2, "x", 2), envelope(1, "y", 3, "1"), marker(2, "two", "1"))
    with datasets.task() as (_, store):
        assert datasets.read == {"0": [2], "1": [1, 2]}
        assert content(store) == {"x": 1}
    datasets.send(marker(3, "two"))
    with datasets.task() as (_, store):
        assert datasets.read == {"0": [2, 3], "1": [1, 2]}
        assert content(store) == {"x": 2, "y": 3}


def test_redelivered_envelopes_of_a_dataset_change_nothing(datasets: Job) -> None:
    sent = [envelope(0, "x", 1), envelope(1, "x", 2), marker(2, "one"), marker(0, "one", "1")]
    with datasets.opened() as (manager, store):
        for each in [*sent[:2], sent[0], *sent[2:]]:
            manager.process(each)
        assert content(store) == {"x": 2}
        for each in sent:
            manager.process(each)
        assert content(store) == {"x": 2}
        assert store.positions == {"0": "3", "1": "1"}


def test_envelopes_that_wait_for_a_marker_are_bounded(
    datasets: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushed_store_module, "_WAITING_MAX", 2)
    with datasets.opened() as (manager, store):
        manager.process(marker(0, "one"))
        manager.process(envelope(1, "x", 1))
        manager.process(envelope(2, "x", 2))
        with pytest.raises(UnavailableError, match="the marker of partition 1 first"):
            manager.process(envelope(3, "x", 3))
        manager.process(marker(0, "one", "1"))
        assert content(store) == {}
        manager.process(envelope(3, "x", 3))
        manager.process(marker(4, "two"))
        manager.process(marker(1, "two", "1"))
        assert content(store) == {"x": 3}


def test_a_marker_of_changes_is_refused(job: Job) -> None:
    with (
        job.task() as (manager, _),
        pytest.raises(InvalidRequestError, match=r"offset 3 .*stores\.a\.adstore\.bounded=true"),
    ):
        manager.process(marker(3, "one"))


# Containers and tasks


def test_one_task_fills_the_stores_of_the_container(tmp_path: Path) -> None:
    config = parse_config(
        {
            "stores.all.adstore.input": "kafka.rates",
            "stores.own.adstore.input": INPUT,
            "task.broadcast.inputs": "kafka.rates#0",
        }
    )
    rates = StreamPartition("kafka.rates", "0")
    with ExitStack() as stack:
        container = StoreGroup(config, tmp_path / "container", True)
        stack.callback(container.close)
        assert list(container.stores) == ["all"]
        managers = []
        tasks = []
        for place in range(2):
            task = StoreGroup(config, tmp_path / f"task-{place}", False)
            stack.callback(task.close)
            assert list(task.stores) == ["own"]
            tasks.append(task.stores["own"])
            own = StreamPartition(INPUT, str(place))
            managers.append(
                make_manager(f"task-{place}", config, [rates, own], container, task, place == 0)
            )
        sent = envelope(0, "EUR", 2, stream="kafka.rates")
        assert managers[1].process(sent)
        assert container.stores["all"].get("EUR") is None
        assert managers[0].process(sent)
        assert container.stores["all"].get("EUR") == 2
        assert managers[1].process(envelope(0, "x", 1, "1"))
        assert [each.get("x") for each in tasks] == [None, 1]
        assert isinstance(managers[1], StoreManager)
        assert managers[1].resets() == {StreamPartition(INPUT, "1")}


def test_two_stores_may_have_one_input(tmp_path: Path) -> None:
    config = parse_config(
        {
            "stores.a.adstore.input": INPUT,
            "stores.b.adstore.input": INPUT,
            "stores.b.adstore.key.value.extractor.factory": f"{__name__}:{Halves.__name__}",
        }
    )
    group = StoreGroup(config, tmp_path, False)
    own = [StreamPartition(INPUT, "0")]
    manager = make_manager("t", config, own, StoreGroup(config, tmp_path, True), group)
    assert manager.process(envelope(0, "x", 2))
    assert [each.get("x") for each in group.stores.values()] == [2, 1.0]
    group.close()


def test_an_unknown_input_is_refused_by_name(tmp_path: Path) -> None:
    config = parse_config({"stores.a.adstore.input": "kafka.acounts"})
    group = StoreGroup(config, tmp_path, False)
    with pytest.raises(
        InvalidRequestError,
        match=r"store 'a': unknown input 'kafka.acounts' of task 't' .*its streams: kafka.accounts",
    ):
        make_manager("t", config, [StreamPartition(INPUT, "0")], group, group)
    group.close()


def test_a_group_that_cannot_open_leaves_nothing_locked(tmp_path: Path) -> None:
    names = {"stores.a.adstore.input": INPUT, "stores.b.adstore.input": INPUT}
    wrong = {**names, "stores.b.adstore.partition": "0/2"}
    with pytest.raises(InvalidRequestError, match="store 'b': partition 0/2"):
        StoreGroup(parse_config(wrong), tmp_path, False)
    StoreGroup(parse_config(names), tmp_path, False).close()


class Own:
    """A factory of managers that keep nothing."""

    def get_manager(self, *arguments: Any, **_: Any) -> AdjunctDataStoreManager:
        assert arguments[0] == "t"
        return self

    def process(self, given: Envelope) -> bool:
        return False


def test_the_configuration_names_another_manager(tmp_path: Path) -> None:
    def make(factory: str) -> AdjunctDataStoreManager:
        config = parse_config({"stores.adstore.manager.factory": factory})
        group = StoreGroup(config, tmp_path, False)
        return make_manager("t", config, [], group, group)

    assert isinstance(make(f"{__name__}:Own"), Own)
    for wrong, problem in (
        (f"{__name__}:{Halves.__name__}", "no method get_manager"),
        ("x:y", "cannot be"),
    ):
        with pytest.raises(UserCodeError, match=problem):
            make(wrong)


def test_positions(job: Job) -> None:
    positions: Mapping[StreamPartition, str] = {StreamPartition(INPUT, "0"): "2"}
    job.members, job.saved = {"bootstrap": "false"}, dict(positions)
    with job.task() as (manager, store):
        assert manager.starts == positions
        assert content(store) == {"x": 3}
