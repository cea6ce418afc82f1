"""The log's time: it never goes back, and an implausible jump forward is refused."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sleeper.errors import UnavailableError
from sleeper.statestore.transactions.table_definition import AcceptTime
from tests.clock import DAY_MS, START_MS
from tests.tables.state_table import StateTable


def test_a_commit_far_ahead_of_the_log_is_refused_with_instructions(
    table: StateTable,
) -> None:
    table.commit(table.ingest_job("a", job_id="job"))
    table.clock.now_ms += 30 * DAY_MS + 1
    with pytest.raises(UnavailableError, match=r"30 days ahead.*sleeper table accept-time"):
        table.commit(table.ingest_job("b"))
    table.clock.now_ms = START_MS + 1
    assert table.ingest("c").number == 3
    with table.store.reading() as state:
        assert state.time_ms == START_MS + 1
        assert state.jobs.applied("job").number == 2


def test_an_operator_accepts_the_time_of_a_long_idle_table(
    table: StateTable,
) -> None:
    table.clock.now_ms += 400 * DAY_MS
    table.commit(AcceptTime(table.clock.now_ms))
    assert not table.ingest("a").refused
    with table.store.reading() as state:
        assert state.time_ms == START_MS + 400 * DAY_MS


def test_an_accepted_time_does_not_accept_a_clock_further_ahead(
    table: StateTable,
) -> None:
    table.clock.now_ms += 400 * DAY_MS
    acceptances = AcceptTime(START_MS + 100 * DAY_MS)
    with pytest.raises(UnavailableError, match="ahead"):
        table.commit(acceptances)


def test_an_idle_copy_checks_jumps_against_the_log(
    table: StateTable,
) -> None:
    table.ingest("a")
    table.ingest("b")
    other = table.another_store()
    for _ in range(3):
        table.clock.now_ms += 20 * DAY_MS
        other.commit(table.ingest_job(f"other-{table.clock.now_ms}"))
    assert not table.ingest("c").refused


def test_a_clock_behind_the_log_is_reported_once(
    table: StateTable, caplog: pytest.LogCaptureFixture
) -> None:
    table.clock.now_ms += 20 * DAY_MS
    table.ingest("a")
    table.clock.now_ms -= 10 * DAY_MS
    with caplog.at_level(logging.WARNING):
        table.ingest("b")
        table.ingest("c")
    (warning,) = caplog.messages
    assert "log time is 10 days ahead of this machine's clock" in warning


def test_a_state_without_a_bar_column_is_upgraded(tmp_path: Path) -> None:
    table = StateTable(tmp_path, "embedded").initialise()
    table.ingest("a")
    table.store.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        for column in ("run_bar", "write_id"):
            connection.execute(f"ALTER TABLE position DROP COLUMN {column}")
        connection.execute("ALTER TABLE log_entries DROP COLUMN previous")
        connection.execute("PRAGMA user_version = 2")
        connection.commit()
    reopened = StateTable(tmp_path, "embedded")
    with reopened.store.reading() as state:
        assert state.run_bar_ms == 0
    assert reopened.leaf_paths("root") == ["a"]
    assert not reopened.ingest("b").refused
