"""The lag of followers, and the transactions that it counts."""

from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.export_queue.transactions import CreateExportQueue, follower_of
from sleeper.partitions.region import Range, Region
from sleeper.statestore import fold
from sleeper.statestore.reading.followers import Follower
from sleeper.statestore.transactions.codec import KINDS, kinds_of
from sleeper.statestore.transactions.collection import RaiseHorizon
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.holds import CreateFollower, CreateHold
from sleeper.statestore.transactions.transaction import Subject
from tests.tables.state_table import ROOT, StateTable, data_file


@pytest.fixture
def table(tmp_path: Path) -> StateTable:
    return StateTable(tmp_path, "remote").initialise()


def compact(table: StateTable, *paths: str) -> None:
    """Compacts files in two transactions, which change no rows."""
    output = data_file(f"{'-'.join(paths)}-merged")
    table.assign(output.path, *paths)
    table.commit(CommitCompaction(output.path, ROOT, paths, output, table.clock.now_ms))


def find(table: StateTable, name: str = "feed") -> Follower:
    return next(each for each in table.store.followers() if each.name == name)


def test_every_kind_of_transaction_says_what_it_changes() -> None:
    silent = [kind for kind, each in KINDS.items() if "subject" not in vars(each)]
    assert silent == [], "declare `subject`, as of `Subject`"
    assert kinds_of(Subject.ROWS) == {
        "add_files",
        "delete_rows",
        "publish_snapshot",
        "reinitialise_table",
        "restore_version",
        "undo_job",
    }
    assert kinds_of(Subject.TABLE) == {
        "accept_time",
        "change_processing",
        "change_schema",
        "expire_snapshots",
        "export_rows",
        "initialise_table",
    }


def test_the_lag_counts_the_transactions_that_change_rows(table: StateTable) -> None:
    table.commit(CreateFollower("feed", 1))
    assert (find(table).position, find(table).lag) == (1, 0)
    table.ingest("a")
    table.ingest("b")
    compact(table, "a", "b")
    table.commit(CreateHold("old", "a query of an older version", 4, table.clock.now_ms + 1000))
    table.split(ROOT, 5, "left", "right")
    assert find(table).lag == 2
    table.store.advance_follower("feed", 4)
    assert find(table).lag == 0
    table.commit(DeleteRows((Region((Range(3, 4),)),)))
    assert find(table).lag == 1
    assert find(table).position == 4


def test_a_follower_before_compactions_only_is_up_to_date_and_can_be_passed(
    table: StateTable,
) -> None:
    table.ingest("a")
    table.commit(CreateFollower("feed", 2))
    compact(table, "a")
    (cursor_key,) = [each.cursor_key for each in table.store.followers()]
    table.store.commit_or_raise(RaiseHorizon(5, passed=(cursor_key,)))
    follower = find(table)
    assert (follower.lag, follower.lost, follower.is_passed) == (0, 0, True)
    with table.store.reading() as state:
        state.check_changes_after(2)
        with pytest.raises(InvalidRequestError, match="no longer complete"):
            state.check_changes_after(1)


def test_transactions_that_are_not_recorded_any_more_count(
    table: StateTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "HISTORY_KEPT_MIN", 2)
    table.commit(CreateFollower("feed", 1))
    for name in "abcdef":
        table.ingest(name)
    (cursor_key,) = [each.cursor_key for each in table.store.followers()]
    table.store.commit_or_raise(RaiseHorizon(6, passed=(cursor_key,)))
    with table.store.reading() as state:
        entries = state.history.newest(100, shows_all=True).entries
    assert [entry.number for entry in entries] == [9, 8, 7, 6]
    # Of 2 to 5, all count, although 2 created the follower: 2 to 6 are lost, 7 and 8 are not.
    assert (find(table).lag, find(table).lost) == (7, 4 + 1)


def test_lag_needs_no_read_of_the_log(table: StateTable) -> None:
    table.commit(CreateFollower("feed", 1))
    for name in "abc":
        table.ingest(name)
    for _ in range(2):
        table.store.save_snapshot()
        table.ingest(f"after-{_}")
    table.store.advance_follower("feed", 4)
    table.store.trim()
    other = table.another_store()
    other.newest_number()
    reads = table.log.reads
    assert find(table).lag == 3
    assert table.log.reads == reads
    assert [each.lag for each in other.followers()] == [3]


@pytest.mark.parametrize(("source", "lag"), [("ingest", 2), ("compaction", 1), ("transaction", 0)])
def test_queues_on_others_than_rows_count_what_they_export(
    table: StateTable, source: str, lag: int
) -> None:
    table.commit(CreateExportQueue("out", source, "{}"))
    table.ingest("a")
    table.ingest("b")
    compact(table, "a", "b")
    assert find(table, follower_of("out")).lag == lag
