"""How long old versions stay readable, and how long followers keep changes."""

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.query.changes.plan import plan_step
from sleeper.statestore.transactions.collection import CollectFiles
from sleeper.statestore.transactions.holds import CreateFollower
from sleeper.statestore.version import PointInTime
from tests.tables.data_table import DataTable

HOUR_MINUTES = 60


def replace_files(table: DataTable) -> None:
    """Two ingests and a compaction, which leaves two files for collection."""
    table.ingest(range(5))
    table.ingest(range(5))
    table.compact(full=True)


def test_versions_within_the_retention_stay_readable(table: DataTable) -> None:
    table.set(sleeper__table__history__retention="2h")
    table.ingest(range(5))
    version, read_ms, rows = table.number(), table.clock(), table.rows()
    table.clock.pass_minutes(1)
    replace_files(table)
    for _ in range(11):
        table.clock.pass_minutes(10)
        assert table.collect().files == 0
        with table.store.reading(PointInTime(read_ms, "then")) as state:
            assert state.version == version
        assert table.rows(version) == rows
    table.clock.pass_minutes(10)
    assert table.collect().files == 3
    with pytest.raises(InvalidRequestError, match="no longer readable"):
        table.rows(version)


def test_the_report_of_a_collection_names_the_retention(table: DataTable) -> None:
    table.set(sleeper__table__history__retention="2h")
    replace_files(table)
    table.clock.pass_minutes(HOUR_MINUTES)
    report = table.collect()
    blocker = "sleeper.table.history.retention, which retains version 0"
    assert (report.files, report.blocker) == (0, blocker)


def test_without_a_retention_only_the_delay_keeps_files(table: DataTable) -> None:
    replace_files(table)
    table.clock.pass_minutes(HOUR_MINUTES)
    assert table.collect().files == 2


def test_a_follower_is_passed_after_its_retention_and_is_told(table: DataTable) -> None:
    table.set(sleeper__table__follower__retention="2h")
    start = table.number()
    table.store.commit_or_raise(CreateFollower("copy", start))
    replace_files(table)
    table.clock.pass_minutes(2 * HOUR_MINUTES - 1)
    report = table.collect()
    assert (report.files, report.blocker) == (0, f"follower copy at version {start}")
    table.clock.pass_minutes(2)
    assert table.collect().files == 2
    (follower,) = table.store.followers()
    assert follower.position == start
    # The two ingests, and not the compaction.
    assert (follower.lag, follower.lost, follower.is_passed) == (2, 2, True)
    with (
        table.store.reading() as state,
        pytest.raises(InvalidRequestError, match="no longer complete"),
    ):
        plan_step(state, start)


def test_a_follower_that_reads_in_time_is_never_passed(table: DataTable) -> None:
    table.set(sleeper__table__follower__retention="2h")
    table.store.commit_or_raise(CreateFollower("copy", table.number()))
    for _ in range(3):
        replace_files(table)
        table.clock.pass_minutes(HOUR_MINUTES)
        table.store.advance_follower("copy", table.number())
        table.collect()
        table.clock.pass_minutes(HOUR_MINUTES)
    assert [f.lost for f in table.store.followers()] == [0]


def test_a_follower_that_is_not_passed_is_still_kept(table: DataTable) -> None:
    """Another collector may have other settings: the entry names whom it passes."""
    table.store.commit_or_raise(CreateFollower("copy", table.number()))
    replace_files(table)
    with table.store.reading() as state:
        (first, *_) = state.collection.unreferenced(2**60, 10)
    (refused,) = table.store.commit(CollectFiles((first.path,), first.unreferenced))
    assert "follower copy is at version" in refused.reason
    (cursor_key,) = [f.cursor_key for f in table.store.followers()]
    passing = CollectFiles((first.path,), first.unreferenced, passed=(cursor_key,))
    assert table.store.commit_or_raise(passing) is not None
