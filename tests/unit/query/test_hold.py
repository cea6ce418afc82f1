"""Holds that cannot be written, that others renew, and that end with the process."""

import json
import logging
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import UnavailableError
from sleeper.jobs.queue import QueueName
from sleeper.local.holds import LocalHolds
from sleeper.query.hold import VersionHold
from sleeper.query.request import Query
from sleeper.query.run import run_query
from sleeper.query_service import run as subqueries
from sleeper.query_service.run import run_leaf_query_message
from sleeper.query_service.service import plan_query_message
from sleeper.statestore.holds import Hold
from tests.tables.data_table import DataTable, make_engine
from tests.tables.opened import KEY_AND_VALUE
from tests.unit.conftest import MakeTable

pytestmark = pytest.mark.usefixtures("holds_of_reads")


@contextmanager
def full_disk() -> Iterator[None]:
    error = UnavailableError("holds.db: database or disk is full")
    with patch.object(LocalHolds, "put", side_effect=error):
        yield


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def holds(instance: sleeper.Instance) -> list[Hold]:
    return list(instance._ports.table("rows").state.holds.all())


@pytest.mark.parametrize("split_points", [[], [100]], ids=["one leaf", "two leaves"])
def test_a_read_goes_on_without_a_hold_that_cannot_be_written_and_says_so_once(
    make_table: MakeTable,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    split_points: list[int],
) -> None:
    table: DataTable = make_table(split_points=split_points)
    table.ingest(range(20_000))
    with (
        full_disk(),
        caplog.at_level(logging.WARNING, "sleeper"),
        run_query(Query(), table.query_table, make_engine(tmp_path)) as rows,
    ):
        assert rows.read_all().num_rows == 20_000
    (record,) = caplog.records
    assert "reading version 2 without a hold" in record.message
    assert "disk is full" in record.message


@pytest.mark.slow
def test_a_hold_that_could_not_be_written_is_created_later(table: DataTable) -> None:
    hold = VersionHold(table.store, 1, 1, table.clock, "tests")
    with full_disk():
        hold.acquire()
        assert not table.holds()
    wait_until(lambda: bool(table.holds()))
    hold.release()
    assert not table.holds()


def test_a_hold_whose_write_has_no_answer_is_released(table: DataTable) -> None:
    put = LocalHolds.put

    def put_without_answer(holds: LocalHolds, hold: Hold) -> None:
        put(holds, hold)
        raise UnavailableError("the answer is lost")

    hold = VersionHold(table.store, 1, 3600, table.clock, "tests")
    with patch.object(LocalHolds, "put", put_without_answer):
        hold.acquire()
    assert len(table.holds()) == 1
    hold.release()
    assert not table.holds()


def test_a_fork_releases_no_hold_and_has_a_floor_of_its_own(table: DataTable) -> None:
    floor = table.store.floor
    held, under_floor = (VersionHold(table.store, 1, 60, table.clock, "tests") for _ in range(2))
    held.acquire()
    with patch.object(VersionHold, "under_floor_seconds", 60.0):
        under_floor.acquire()
    assert (sum(floor._readers.values()), len(table.holds())) == (1, 2)

    def release() -> None:
        assert not floor._readers
        assert floor._renewal is None
        floor._readers[1] += 1  # a read of the fork
        held.release()
        under_floor.release()
        assert floor._readers[1] == 1

    child = multiprocessing.get_context("fork").Process(target=release)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert len(table.holds()) == 2
    held.release()
    under_floor.release()
    floor.end(table.store.holds)
    assert not table.holds()


def test_a_hold_is_released_where_no_thread_can_start(
    table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = VersionHold(table.store, 1, 3600, table.clock, "tests")
    hold.acquire()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    hold.release_in_background()
    assert not table.holds()


@pytest.mark.slow
def test_a_subquery_renews_the_hold_of_its_query_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sleeper.create_instance(tmp_path / "i", {"sleeper.query.hold.seconds": "1"}) as instance:
        table = instance.create_table("rows", KEY_AND_VALUE, split_points=[1])
        table.ingest(pa.table({"key": [0, 1], "value": ["a", "b"]}))
        body = json.dumps({"type": "Query", "queryId": "q", "tableName": "rows", "regions": [{}]})
        ports = instance._ports
        ports.jobs.queue(QueueName.QUERY).send(body)
        (message,) = ports.jobs.queue(QueueName.QUERY).receive()
        plan_query_message(ports, message)
        first, _ = ports.jobs.queue(QueueName.LEAF_QUERY).receive(2)
        publish = subqueries.publish_rows

        def publish_late(*arguments: Any) -> int:
            (before,) = holds(instance)
            wait_until(lambda: holds(instance)[0].expiry_ms > before.expiry_ms)
            return publish(*arguments)

        monkeypatch.setattr(subqueries, "publish_rows", publish_late)
        assert run_leaf_query_message(ports, first) == 1
