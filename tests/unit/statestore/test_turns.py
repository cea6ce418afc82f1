"""Threads that write to databases with the same turns."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sleeper.local.state_store import SqliteTransactionLog
from sleeper.partitions.partition import tree_from_split_points
from sleeper.schema.model import schema_to_json
from sleeper.statestore.database import Database
from sleeper.statestore.log import LogEntry
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.turns import Turns
from tests.tables.memory_holds import MemoryHolds
from tests.tables.state_table import SCHEMA

TABLES = 3
SECONDS_MAX = 30


class MeetingLog(SqliteTransactionLog):
    """Logs whose requests of one kind are answered when all tables have made one."""

    def __init__(self, path: Path, request: str, meeting: threading.Barrier) -> None:
        super().__init__(Database(path))
        self._request = request
        self._meeting = meeting

    def read(self, after: int, limit: int = 100) -> Sequence[LogEntry]:
        self._meet("read")
        return super().read(after, limit)

    def append(self, entry: LogEntry) -> None:
        self._meet("append")
        super().append(entry)

    def _meet(self, request: str) -> None:
        if request == self._request:
            self._request = ""
            self._meeting.wait(SECONDS_MAX)


def test_threads_take_turns_to_write(tmp_path: Path) -> None:
    turns, inside = Turns(), 0

    def write(number: int) -> None:
        nonlocal inside
        database = Database(tmp_path / f"{number}.db", turns=turns)
        with database.writing():
            inside += 1
            time.sleep(0.01)
            assert inside == 1
            inside -= 1
        database.close()

    with ThreadPoolExecutor(TABLES) as threads:
        list(threads.map(write, range(TABLES)))


@pytest.mark.parametrize("request_kind", ["read", "append"])
def test_a_thread_that_waits_for_the_log_gives_its_turn_to_others(
    tmp_path: Path, request_kind: str
) -> None:
    turns, meeting = Turns(), threading.Barrier(TABLES)
    tree = tuple(tree_from_split_points(SCHEMA, []))

    def commit(number: int) -> int | None:
        database = Database(tmp_path / f"{number}.db", durable=False, turns=turns)
        log = MeetingLog(tmp_path / f"{number}.log", request_kind, meeting)
        store = StateStore(database, log, MemoryHolds())
        try:
            return store.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tree))
        finally:
            store.close()

    with ThreadPoolExecutor(TABLES) as threads:
        assert list(threads.map(commit, range(TABLES))) == [1] * TABLES


def test_a_failed_wait_keeps_the_turn(tmp_path: Path) -> None:
    turns = Turns()
    database = Database(tmp_path / "state.db", turns=turns)
    with database.writing() as connection:
        connection.execute("CREATE TABLE words (word TEXT)")
        with pytest.raises(ConnectionError), database.paused():
            raise ConnectionError
        connection.execute("INSERT INTO words VALUES ('one')")
    assert database.read_rows("SELECT word FROM words") == [("one",)]
    with turns.turn():
        pass
    database.close()
