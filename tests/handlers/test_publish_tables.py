"""Tables are published after commits, and by the schedule what an event missed."""

from dataclasses import replace

import pytest

from sleeper.admin.tables import delete_table
from sleeper.iceberg.locations import metadata_of
from sleeper.iceberg.metadata import current_number
from sleeper.instance import Instance
from sleeper.workers import lambda_function
from tests.handlers import functions
from tests.handlers.conftest import Lambda, add_rows, commits, make_table, metrics_in

NOTHING = {"published": 0, "problems": 0}
ONE = {"published": 1, "problems": 0}


def is_published(instance: Instance, name: str = "t") -> bool:
    table = instance.table(name)
    return current_number(metadata_of(table).read()[1]) == table.state.newest_number()


def test_commits_are_published_once(aws: Lambda) -> None:
    ref = make_table(aws.instance, "t", iceberg_publish_seconds="60")
    other = make_table(aws.instance, "other")
    for keys in ((1, 2), (3,)):
        add_rows(aws.instance, "t", *keys)
        assert aws.call(functions.publish_tables, commits(ref, other)) == ONE
        assert is_published(aws.instance)
        assert aws.call(functions.publish_tables, commits(ref)) == NOTHING
    assert not is_published(aws.instance, "other")
    delete_table(aws.instance, "t")
    assert aws.call(functions.publish_tables, commits(ref)) == NOTHING


def test_the_schedule_publishes_what_events_missed_and_counts_what_is_late(
    aws: Lambda, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = make_table(aws.instance, "t", iceberg_publish_seconds="3600")
    add_rows(aws.instance, "t", 1)
    assert aws.call(functions.publish_tables) == ONE
    add_rows(aws.instance, "t", 2)
    # Its time comes after the next run of the schedule.
    assert aws.call(functions.publish_tables, commits(ref)) == NOTHING
    assert metrics_in(capsys.readouterr().out) == []
    make_table(aws.instance, "unmerged", iceberg_publish_seconds="60", rows="latest")
    for _ in range(2):
        add_rows(aws.instance, "unmerged", 1)
    later_ms = aws.instance.clock() + 3_700_000
    later = replace(aws.instance, clock=lambda: later_ms)
    monkeypatch.setattr(lambda_function, "_opened", lambda _: later)
    assert aws.call(functions.publish_tables) == {"published": 1, "problems": 1}
    assert is_published(aws.instance)
    (metric,) = metrics_in(capsys.readouterr().out)
    assert (metric["PublicationsLate"], metric["kind"]) == ([1.0], "iceberg")
