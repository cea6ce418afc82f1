"""The rules of export queues hold for the product, and find planted bugs."""

from typing import Any

import pytest

from simulation.checks.export_queues import check_queues
from simulation.checks.violation import Violation
from simulation.model.journal import Deletion
from simulation.systems.receiver import NAME_OPTION, RECEIVERS, Received, RecordingExporter
from sleeper.deletion.keys import delete_rows
from sleeper.export_queue.control import pause_queue
from sleeper.export_queue.parsing import NewQueue
from sleeper.export_queue.queue_worker import drain_now
from sleeper.export_queue.service import create_queue
from sleeper.export_queue.store import Position
from sleeper.partitions.region import whole_region
from tests.simulation.systems.conftest import SCHEMA, SystemDriver


def _create(driver: SystemDriver, **options: Any) -> None:
    create_queue(
        driver.instance,
        NewQueue(
            "queue",
            "rows",
            on="ingest",
            keys="key",
            values=["name"],
            exporter=RecordingExporter,
            options={NAME_OPTION: "queue"},
            buckets=2,
            **options,
        ),
    )


def test_the_rules_hold_while_a_queue_lags_and_when_it_is_drained(driver: SystemDriver) -> None:
    driver.ingest()
    _create(driver, existing_rows=True)
    check_queues(driver.look())
    for _ in range(3):
        driver.ingest()
        check_queues(driver.look())
        drain_now(driver.instance, "queue")
        check_queues(driver.look())
    pause_queue(driver.instance, "queue")
    driver.ingest()
    drain_now(driver.instance, "queue")
    check_queues(driver.look())
    assert RECEIVERS.find("queue").exports


def test_deleted_keys_are_exported(driver: SystemDriver) -> None:
    _create(driver)
    driver.ingest()
    drain_now(driver.instance, "queue")
    region = whole_region(SCHEMA)
    deletion = Deletion(id="d", table_id=driver.table.id, regions=[[(None, None)]])
    driver.journal.deletions["d"] = deletion
    delete_rows(driver.instance, "rows", [region], "d")
    drain_now(driver.instance, "queue")
    check_queues(driver.look())
    assert None in RECEIVERS.find("queue").exports.values()


def test_items_that_are_settled_before_their_export_are_found(
    driver: SystemDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(driver)
    driver.ingest()
    monkeypatch.setattr(
        "simulation.systems.receiver.Receiver.take", lambda _self, _bucket, _exports: None
    )
    drain_now(driver.instance, "queue")
    with pytest.raises(Violation, match="no export is lost"):
        check_queues(driver.look())


def test_a_position_that_moves_before_its_items_is_found(driver: SystemDriver) -> None:
    _create(driver)
    driver.ingest()
    store = driver.instance.systems.get("export_queue")
    generation = next(each.generation for each in store.list())
    with driver.instance.table("rows").state.reading() as state:
        store.add("queue", generation, [], Position(state.number))
    with pytest.raises(Violation, match="no export is lost"):
        check_queues(driver.look())


def test_an_export_of_a_row_that_was_never_written_is_found(driver: SystemDriver) -> None:
    _create(driver)
    driver.ingest()
    drain_now(driver.instance, "queue")
    RECEIVERS.find("queue").take(0, [Received((123456,), ("a",), 3)])
    with pytest.raises(Violation, match="only committed changes"):
        check_queues(driver.look())


def test_an_old_value_is_found(driver: SystemDriver) -> None:
    _create(driver)
    driver.ingest()
    drain_now(driver.instance, "queue")
    receiver = RECEIVERS.find("queue")
    (key, sequence), _ = next(iter(receiver.exports.items()))
    receiver.exports[key, sequence] = ("not its value",)
    with pytest.raises(Violation, match="the newest export"):
        check_queues(driver.look())


def test_a_batch_out_of_order_is_found(driver: SystemDriver) -> None:
    _create(driver)
    RECEIVERS.find("queue").take(0, [Received((1,), ("a",), 4), Received((1,), ("b",), 3)])
    with pytest.raises(Violation, match="in order"):
        check_queues(driver.look())
