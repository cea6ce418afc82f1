"""A log restored from a backup, with copies and snapshots that are ahead of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sleeper.statestore.database import Database
from tests.tables.state_table import StateTable


@pytest.fixture
def table(tmp_path: Path) -> StateTable:
    """Its log is elsewhere, as on AWS."""
    data_table = StateTable(tmp_path, "remote").initialise()
    data_table.ingest("kept")
    return data_table


def restore(table: StateTable, lose: Callable[[], object]) -> None:
    """Restores the log to the state before the commits of `lose`."""
    log = Database(table.folder / "log.db")
    with log.reading() as connection:
        (head,) = connection.execute("SELECT head FROM log_head").fetchone()
    lose()
    with log.writing() as connection:
        connection.execute("DELETE FROM log_entries WHERE last > ?", (head,))
        connection.execute("UPDATE log_head SET head = ?", (head,))
    log.close()


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_a_copy_ahead_of_the_log_is_rebuilt(table: StateTable, with_snapshot: bool) -> None:
    if with_snapshot:
        table.store.save_snapshot()
    restore(table, lambda: (table.ingest("lost"), table.ingest("lost too")))
    assert table.leaf_paths("root") == ["kept"]
    assert table.ingest("new").number == 3
    assert table.leaf_paths("root") == ["kept", "new"]


def test_a_writer_ahead_of_the_log_commits_on_the_restored_state(table: StateTable) -> None:
    restore(table, lambda: table.ingest("lost"))
    assert table.ingest("new").number == 3
    assert table.leaf_paths("root") == ["kept", "new"]


def test_a_copy_of_another_history_than_the_log_is_rebuilt(table: StateTable) -> None:
    """The log has another entry with the copy's number."""
    restore(table, lambda: table.ingest("lost"))
    other = table.another_store()
    for path in ("new", "newer"):
        other.commit(table.ingest_job(path))
    assert table.leaf_paths("root") == ["kept", "new", "newer"]


def test_snapshots_ahead_of_the_log_are_neither_opened_nor_counted(table: StateTable) -> None:
    def lose() -> None:
        for path in ("lost", "lost too"):
            table.ingest(path)
            table.store.save_snapshot()

    restore(table, lose)
    other = table.another_store()
    with other.reading() as state:
        assert state.number == 2
    assert other.newest_snapshot() is None
    assert other.trim() == 0
    other.save_snapshot()
    assert [s.number for s in other.snapshots()] == [2]
