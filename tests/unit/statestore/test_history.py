"""The history of a table."""

from pathlib import Path

import pytest

from sleeper.statestore import fold
from sleeper.statestore.reading.history_queries import HistoryEntry
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.statestore.transactions.holds import CreateHold
from tests.tables.state_table import ROOT, StateTable, data_file


def entries(table: StateTable, limit: int = 10_000) -> list[HistoryEntry]:
    with table.store.reading() as state:
        return list(state.history.newest(limit, shows_all=True).entries)


def test_history_names_what_each_transaction_did(tmp_path: Path) -> None:
    table = StateTable(tmp_path, "embedded").initialise()
    start_ms = table.clock.now_ms
    table.commit(table.ingest_job("a", "b", job_id="load"))
    table.clock.now_ms += 1000
    table.assign("merge", "a", "b")
    output = data_file("c", rows=15)
    table.commit(CommitCompaction("merge", ROOT, ("a", "b"), output, table.clock.now_ms))
    later_ms = start_ms + 1000
    assert entries(table) == [
        HistoryEntry(4, later_ms, "commit_compaction", "merge", 1, 15, 100),
        HistoryEntry(3, later_ms, "assign_files", None, 2, None, None),
        HistoryEntry(2, start_ms, "add_files", "load", 2, 20, 200),
        HistoryEntry(1, start_ms, "initialise_table", None, None, None, None),
    ]
    words = ["compaction", "create compaction jobs", "ingest", "create table"]
    assert [entry.operation for entry in entries(table)] == words
    assert [entry.number for entry in entries(table, 2)] == [4, 3]


def test_upkeep_is_hidden_unless_all_is_asked_for(tmp_path: Path) -> None:
    table = StateTable(tmp_path, "embedded").initialise()
    for number in range(3):
        table.ingest(f"file-{number}")
        table.commit(CreateHold(f"h{number}", "test", 1, table.clock.now_ms + 1000))
    table.split(ROOT, 5, "left", "right")
    with table.store.reading() as state:
        newest, everything = state.history.newest(2), state.history.newest(2, shows_all=True)
    # A page is full as long as there are transactions like these.
    assert [entry.number for entry in newest.entries] == [6, 4]
    assert (newest.recorded, newest.hidden) == (4, 4)
    assert [entry.number for entry in everything.entries] == [8, 7]
    assert (everything.recorded, everything.hidden) == (8, 0)


def test_repeated_and_refused_transactions_are_not_in_the_history(tmp_path: Path) -> None:
    table = StateTable(tmp_path, "embedded").initialise()
    job = table.ingest_job("a", job_id="load")
    table.commit(job)
    before = entries(table)
    table.commit(job)
    table.commit(table.ingest_job("b", job_id="load"))
    assert entries(table) == before


def test_old_history_is_pruned_below_the_horizon_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "HISTORY_KEPT_MIN", 5)
    monkeypatch.setattr(fold, "_PRUNED_PER_ENTRY", 3)
    table = StateTable(tmp_path, "remote").initialise()
    for number in range(20):
        table.ingest(f"file-{number}")
    assert [entry.number for entry in entries(table)] == list(range(21, 0, -1))
    kept = []
    with table.store._database.writing() as connection:
        connection.execute("UPDATE position SET horizon = 19")
    for number in range(6):
        table.commit(CreateHold(f"h{number}", "test", 21, table.clock.now_ms + 1000))
        kept.append(entries(table)[-1].number)
    # At least three transactions per entry, up to the horizon or the newest five.
    assert kept == [4, 7, 10, 13, 16, 19]
    assert len(entries(table)) == 9
    table.commit(CreateHold("h6", "test", 21, table.clock.now_ms + 1000))
    assert entries(table)[-1].number == 19


def test_every_process_folds_the_same_history(tmp_path: Path) -> None:
    table = StateTable(tmp_path, "remote").initialise()
    for name in ("a", "b"):
        table.commit(table.ingest_job(name, job_id=name))
    other = table.another_store()
    with other.reading() as state:
        assert list(state.history.newest(10, shows_all=True).entries) == entries(table)
