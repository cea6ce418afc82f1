"""Commits to several tables by one thread, whose appends wait for each other."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sleeper.errors import UnavailableError
from sleeper.statestore.database import Database
from sleeper.statestore.joint_commit import commit_jointly
from sleeper.statestore.log import LogEntry
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.transaction import Outcome, Status, Transaction
from sleeper.statestore.turns import Turns
from tests.tables.memory_holds import MemoryHolds
from tests.tables.state_table import FaultyLog, StateTable


class Tables:
    """Three tables with logs apart from their states, and the order of their appends."""

    def __init__(self, folder: Path) -> None:
        self.turns = Turns()
        self.all = [self.make(folder / name) for name in "abc"]

    def make(self, folder: Path) -> StateTable:
        folder.mkdir()
        table = StateTable(folder, "remote")
        database = Database(folder / "state.db", durable=False, turns=self.turns)
        table.store = StateStore(database, table.log, MemoryHolds(), table.clock)
        table.initialise()
        # This commit finds that no other process appends.
        table.ingest("first")
        return table

    def commit(self, *transactions: Transaction) -> list[list[Outcome] | UnavailableError | None]:
        stores = (table.store for table in self.all)
        return commit_jointly([(s, [t]) for s, t in zip(stores, transactions, strict=True)])


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def jobs(tables: Tables) -> list[Transaction]:
    return [table.ingest_job("second") for table in tables.all]


def applied(number: int) -> list[Outcome]:
    return [Outcome(Status.APPLIED, number)]


def paths(tables: Tables) -> list[list[str]]:
    return [table.leaf_paths("root") for table in tables.all]


def test_all_tables_are_folded_before_an_append_is_awaited(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def record(log: FaultyLog) -> Callable[[LogEntry], Callable[[], None]]:
        def start(entry: LogEntry) -> Callable[[], None]:
            events.append("start")
            return lambda: (events.append("wait"), log.append(entry))[1]

        return start

    for table in tables.all:
        monkeypatch.setattr(table.log, "start_append", record(table.log))
    reads = [table.log.reads for table in tables.all]
    assert tables.commit(*jobs(tables)) == [applied(3)] * 3
    assert events == ["start"] * 3 + ["wait"] * 3
    assert [table.log.reads for table in tables.all] == reads
    assert paths(tables) == [["first", "second"]] * 3
    assert [len(table.log.read(0)) for table in tables.all] == [3] * 3


def test_a_table_with_an_append_of_another_writer_is_left_out(tables: Tables) -> None:
    table = tables.all[1]
    other = table.another_store()

    def append() -> None:
        other.commit_or_raise(table.ingest_job("other"))

    table.log.before_next_append = append
    transactions = jobs(tables)
    assert tables.commit(*transactions) == [applied(3), None, applied(3)]
    assert paths(tables) == [["first", "second"], ["first", "other"], ["first", "second"]]
    # It reads the log now, and is alone again afterwards.
    assert table.store.commit(transactions[1]) == applied(4)
    table.ingest("third")
    assert tables.commit(*(t.ingest_job("last") for t in tables.all))[1] == applied(6)


def test_a_transaction_that_is_not_valid_is_left_out_and_changes_nothing(tables: Tables) -> None:
    unknown = tables.all[0].ingest_job("a", partition="none")  # type: ignore[arg-type]
    transactions = [unknown, *jobs(tables)[1:]]
    assert tables.commit(*transactions) == [None, applied(3), applied(3)]
    assert tables.all[0].number() == 2
    (outcome,) = tables.all[0].store.commit(unknown)
    assert outcome.refused


def test_an_append_with_a_lost_response_is_already_done_when_it_is_repeated(
    tables: Tables,
) -> None:
    tables.all[2].log.lose_next_response = True
    transactions = jobs(tables)
    *others, last = tables.commit(*transactions)
    assert others == [applied(3)] * 2
    assert isinstance(last, UnavailableError)
    (outcome,) = tables.all[2].store.commit(transactions[2])
    assert (outcome.status, outcome.number) == (Status.ALREADY_DONE, 3)
    assert paths(tables) == [["first", "second"]] * 3


class KilledError(BaseException):
    """The thread is interrupted."""


@pytest.mark.parametrize("killed", ["start_append", "append"])
def test_an_interrupted_commit_rolls_back_tables_and_frees_them(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    def kill(entry: LogEntry) -> None:
        raise KilledError

    transactions = jobs(tables)
    with monkeypatch.context() as patch:
        patch.setattr(tables.all[1].log, killed, kill)
        with pytest.raises(KilledError):
            tables.commit(*transactions)
    # Only an append that was awaited is committed.
    numbers = [3 if killed == "append" else 2, 2, 2]
    assert [table.number() for table in tables.all] == numbers
    found: list[Outcome] = []

    def commit() -> None:
        for table, transaction in zip(tables.all, transactions, strict=True):
            found.extend(table.store.commit(transaction))

    thread = threading.Thread(target=commit)
    thread.start()
    thread.join(30)
    assert [outcome.number for outcome in found] == [3] * 3
    assert paths(tables) == [["first", "second"]] * 3


def test_a_table_to_which_another_thread_commits_is_left_out(tables: Tables) -> None:
    table, transactions = tables.all[0], jobs(tables)
    results: list[Sequence[object]] = []

    def commit() -> None:
        thread = threading.Thread(target=lambda: results.append(tables.commit(*transactions)))
        thread.start()
        thread.join(30)

    table.log.before_next_append = commit
    table.ingest("other")
    assert results == [[None, applied(3), applied(3)]]
    assert table.leaf_paths("root") == ["first", "other"]
