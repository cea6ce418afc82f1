import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sleeper.local.state_store import open_state_store
from sleeper.partitions.partition import tree_from_split_points
from sleeper.schema.model import schema_to_json
from sleeper.statestore import open_states
from sleeper.statestore.database import IDLE_READERS_MAX
from sleeper.statestore.open_states import OpenStates, open_states_max
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.holds import CreateFollower
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.write_lock import WriteLock
from sleeper.tables import TableId
from tests.tables.state_table import SCHEMA


def ids(count: int) -> list[TableId]:
    return [TableId(f"{i:08x}") for i in range(count)]


def open_paths(folder: Path) -> list[str]:
    """Returns the files below the folder that this process has open, with repetitions."""
    paths = [file.path for file in psutil.Process().open_files()]
    return [path for path in paths if path.startswith(str(folder))]


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenStates]:
    monkeypatch.setattr(open_states, "_STATES_MAX", 3)

    def identify(table_id: TableId) -> int | None:
        path = tmp_path / table_id / "state.db"
        return path.stat().st_ino if path.exists() else None

    opened = OpenStates(
        lambda table_id: open_state_store(tmp_path / table_id / "state.db"), identify
    )
    yield opened
    opened.close()
    assert open_paths(tmp_path) == []


def initialise(store: StateStore) -> None:
    tree = tuple(tree_from_split_points(SCHEMA, ()))
    store.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tree))


def number(store: StateStore) -> int:
    with store.reading() as state:
        return state.number


def test_the_least_recently_used_states_are_closed(states: OpenStates, tmp_path: Path) -> None:
    a, b, c, d = ids(4)
    for table_id in (a, b, c):
        initialise(states.get(table_id))
    assert number(states.get(a)) == 1
    initialise(states.get(d))
    assert states.table_ids() == [c, a, d]
    assert open_paths(tmp_path / b) == []
    assert number(states.get(b)) == 1


def test_open_files_stay_the_same_however_many_tables_are_written(
    states: OpenStates, tmp_path: Path
) -> None:
    counts = []
    for table_id in ids(12):
        initialise(states.get(table_id))
        counts.append(len(open_paths(tmp_path)))
    assert set(counts[3:]) == {counts[2]}


def test_a_state_in_use_stays_open(states: OpenStates, tmp_path: Path) -> None:
    a, b, *others = ids(6)
    used = states.get(a)
    initialise(used)
    initialise(states.get(b))
    with states.get(b).reading() as state:
        for table_id in others:
            initialise(states.get(table_id))
        assert states.get(a) is used
        assert open_paths(tmp_path / a)
        assert state.number == 1
        assert not states.close_unused(b)
    assert states.close_unused(b)


def test_a_commit_in_progress_keeps_its_state_open(states: OpenStates, tmp_path: Path) -> None:
    a, *others = ids(6)
    initialise(states.get(a))
    lock = WriteLock(tmp_path / a / "state.db.lock")
    lock.acquire()
    started = threading.Event()

    def commit() -> None:
        store = states.get(a)
        started.set()
        store.commit_or_raise(CreateFollower("follower", 1))

    thread = threading.Thread(target=commit)
    thread.start()
    started.wait()
    for table_id in others:
        initialise(states.get(table_id))
    assert not states.close_unused(a)
    lock.release()
    lock.close()
    thread.join()
    assert number(states.get(a)) == 2
    assert states.close_unused(a)


def test_idle_states_are_closed_when_another_is_used(
    states: OpenStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = ids(3)
    for table_id in (a, b):
        initialise(states.get(table_id))
    monkeypatch.setattr(open_states, "_IDLE_SECONDS", 0.0)
    initialise(states.get(c))
    assert states.table_ids() == [c]


def test_a_state_whose_file_was_replaced_is_opened_again(
    states: OpenStates, tmp_path: Path
) -> None:
    (a,) = ids(1)
    first = states.get(a)
    assert states.get(a) is first
    (tmp_path / a).rename(tmp_path / "deleted")
    (tmp_path / a).mkdir()
    open_state_store(tmp_path / a / "state.db").close()
    assert states.get(a) is not first


def test_readers_at_once_leave_few_connections_open(states: OpenStates, tmp_path: Path) -> None:
    (a,) = ids(1)
    initialise(states.get(a))
    store = states.get(a)
    readings = [store.reading() for _ in range(20)]
    assert {reading.__enter__().number for reading in readings} == {1}
    for reading in readings:
        reading.__exit__(None, None, None)
    # SQLite keeps the descriptors of the database itself for later connections.
    logs = [path for path in open_paths(tmp_path) if path.endswith("-wal")]
    assert len(logs) == 1 + IDLE_READERS_MAX


@pytest.mark.parametrize(("limit", "states_max"), [(64, 2), (1024, 34), (1 << 20, 100)])
def test_the_number_of_open_states_depends_on_the_descriptors(
    monkeypatch: pytest.MonkeyPatch, limit: int, states_max: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert open_states_max() == states_max
