"""The query tracker of an instance of an earlier release."""

from pathlib import Path

from sleeper.jobs.query_tracker import QueryPin
from sleeper.local.database import InstanceDatabase
from sleeper.local.query_tracker import LocalQueryTracker


def test_queries_of_an_earlier_release_end_and_start_over(tmp_path: Path) -> None:
    database = InstanceDatabase(tmp_path / "instance.db")
    tracker = LocalQueryTracker(database)
    tracker.begin("q", QueryPin("print", "0123abcd", 7, 1000))
    tracker.plan("q", ["a"])
    with database.write() as transaction:
        for column in ("run", "messages"):
            transaction.execute(f"ALTER TABLE queries DROP COLUMN {column}")
    newer = LocalQueryTracker(database)
    assert newer.start("q", "a")
    assert newer.finish("q", "a", 3) is not None
    assert newer.begin("q", QueryPin("print", "0123abcd", 8, 2000, "m2")) is not None
    assert not newer.start("q", "a")
