"""Export queues in Python."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError, UserCodeError
from sleeper.export_queue import failures as failures_module
from sleeper.export_queue import queue_drain, timed_exporter
from sleeper.export_queue.capture import capture_exports
from sleeper.export_queue.exporter import ExportBatch
from sleeper.export_queue.queue_worker import drain_now
from sleeper.export_queue.store import open_export_store

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}


class Receiver:
    """An exporter of this module, which shows what its objects were given."""

    keys: ClassVar[list[str]] = []

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def export(self, batch: ExportBatch) -> None:
        self.keys.extend(f"{self.options['name']} {each.key}" for each in batch)


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("counts", SCHEMA)
    table.ingest(pa.table({"k": ["a", "b"], "n": [1, 2]}))
    return table


def test_exports_of_transactions_wait_and_are_exported(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    queue = instance.create_export_queue(
        "out", "counts", on="transaction", keys="k", values=["old:LongType", "new:LongType"]
    )
    queue.pause()
    with table.transaction() as transaction:
        transaction.export("out", "a", (1, 2))
        transaction.export("out", "b", None)
    assert queue.drain().exports == 0
    rows = [row for each in queue.peek() for row in each.rows.to_pylist()]
    number = transaction.number
    assert sorted(rows, key=lambda row: row["k"]) == [
        {"sequence": number, "__gone": False, "k": "a", "old": 1, "new": 2},
        {"sequence": number, "__gone": True, "k": "b", "old": None, "new": None},
    ]
    (status,) = instance.export_queues()
    assert (status.name, status.pending, status.lag) == ("out", 2, 0)
    with pytest.raises(InvalidRequestError, match="'out' is not empty: 2 exports pending"):
        queue.delete()
    assert queue.resume() == 0
    assert instance.export_queue("out").drain().exports == 2
    assert (queue.status().pending, queue.redrive()) == (0, 0)
    queue.delete()
    with pytest.raises(NotFoundError, match="'out' does not exist"):
        instance.export_queue("out")
    with pytest.raises(NotFoundError, match="'out' does not exist"):
        queue.status()


def test_keys_of_times_and_decimals_are_exported(instance: sleeper.Instance) -> None:
    keys = [
        {"name": "at", "type": "TimestampType"},
        {"name": "fare", "type": {"DecimalType": {"precision": 9, "scale": 2}}},
    ]
    values = [{"name": "v", "type": "LongType"}]
    rides = instance.create_table("rides", {"rowKeyFields": keys, "valueFields": values})
    stored = [*values, {"name": "sequence", "type": "LongType"}]
    copy = instance.create_table("copy", {"rowKeyFields": keys, "valueFields": stored})
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC)
    rows = [{"at": noon, "fare": Decimal(n), "v": n} for n in range(4)]
    queue = instance.create_export_queue(
        "out", "rides", on="ingest", keys=["at", "fare"], values="v", exporter="table:copy"
    )
    attached = instance.create_export_queue(
        "own", "rides", on="transaction", keys=["at", "fare"], values="v"
    )
    attached.pause()
    rides.ingest(pa.Table.from_pylist(rows, rides.arrow_schema))
    assert queue.drain().exports == 4
    rides.delete(keys=[(noon, Decimal(2))])
    assert queue.drain().exports == 1
    assert copy.query().to_arrow()["v"].to_pylist() == [0, 1, 3]
    with rides.transaction() as transaction:
        transaction.export("own", (noon, "1.5"), 7)
        transaction.export("own", ("2013-01-01T12:00:00Z", Decimal("1.50")), 8)
    attached.drain()
    (row,) = [row for each in attached.peek() for row in each.rows.to_pylist()]
    assert (row["at"], row["fare"], row["v"]) == (noon, Decimal("1.50"), 8)


def test_existing_rows_are_exported_on_request(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    new = instance.create_export_queue("new", "counts", on="ingest", keys="k", values="n")
    every = instance.create_export_queue(
        "every", "counts", on="ingest", keys="k", values="n", existing_rows=True
    )
    table.ingest(pa.table({"k": ["c"], "n": [3]}))
    assert (new.drain().exports, every.drain().exports) == (1, 3)


def test_a_queue_of_a_deleted_and_created_name_is_a_new_one(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    for _ in range(2):
        queue = instance.create_export_queue("out", "counts", on="ingest", keys="k", values="n")
        table.ingest(pa.table({"k": ["c"], "n": [3]}))
        with pytest.raises(ConflictError, match="'out' already exists"):
            instance.create_export_queue("out", "counts", on="ingest", keys="k", values="n")
        queue.delete(discard=True)
    assert instance.export_queues() == []


def test_a_queue_that_lost_its_storage_continues_at_its_cursor(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    queue = instance.create_export_queue("out", "counts", on="ingest", keys="k", values="n")
    table.ingest(pa.table({"k": ["c"], "n": [3]}))
    assert queue.drain().exports == 1
    open_export_store(instance._ports).remove("out")
    table.ingest(pa.table({"k": ["d"], "n": [4]}))
    queue = instance.create_export_queue("out", "counts", on="ingest", keys="k", values="n")
    assert queue.drain().exports == 1


def test_a_drain_tells_how_many_exports_have_left(
    instance: sleeper.Instance, table: sleeper.Table
) -> None:
    instance.create_export_queue("out", "counts", on="ingest", keys="k", values="n", buckets=7)
    table.ingest(pa.table({"k": [f"k{n}" for n in range(50)], "n": range(50)}))
    counts: list[int] = []
    report = drain_now(instance._ports, "out", on_exports=counts.append)
    assert report.exports == 50
    assert counts[-1] == 50
    assert counts == sorted(counts)


class Unavailable:
    """An exporter whose receiver is unavailable in the first calls."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def export(self, batch: ExportBatch) -> None:
        del batch
        self.failures -= 1
        if self.failures >= 0:
            raise ConnectionRefusedError("connection refused")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("seconds", "failures", "first_seconds", "pending"),
    [(600, 2, 0.01, 0), (0, 1, 60, 3), (None, 1, 60, 3)],
)
def test_a_drain_repeats_calls_of_an_unavailable_receiver_within_its_time(
    instance: sleeper.Instance,
    table: sleeper.Table,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float | None,
    failures: int,
    first_seconds: float,
    pending: int,
) -> None:
    queue = instance.create_export_queue("out", "counts", "ingest", "k", "n", buckets=1)
    table.ingest(pa.table({"k": ["a", "b", "c"], "n": range(3)}))
    capture_exports(instance._ports, "out")
    exporter = Unavailable(failures)
    monkeypatch.setattr(timed_exporter, "open_exporter", lambda *_: exporter)
    monkeypatch.setattr(failures_module, "_FIRST_SECONDS", first_seconds)
    monkeypatch.setattr(queue_drain, "_LIST_SECONDS", 0.01)
    report = queue.drain(seconds)
    assert queue.status().pending == pending
    assert report.failed == min(failures, report.calls)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"buckets": 7.5}, r"buckets 7\.5 is not an integer \(expected 1 to 100,000\)"),
        ({"tries": "3"}, "tries '3' is not an integer"),
        ({"options": {"insecure": True}}, r"insecure.* is True \(expected text\)"),
        ({"exporter": None}, r"exporter.* is None \(expected text\)"),
    ],
)
def test_values_of_other_types_are_refused_before_they_are_stored(
    instance: sleeper.Instance, table: sleeper.Table, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"export queue 'out'.*{problem}"):
        instance.create_export_queue("out", table.name, "ingest", "k", **settings)
    assert instance.export_queues() == []


@pytest.mark.parametrize("exporter", [Receiver, f"python:{__name__}:Receiver"])
def test_a_class_that_workers_can_import_is_an_exporter(
    instance: sleeper.Instance,
    table: sleeper.Table,
    exporter: str | type[Receiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Receiver, "keys", [])
    queue = instance.create_export_queue(
        "out", "counts", "ingest", "k", "n", exporter, options={"name": "mine"}
    )
    table.ingest(pa.table({"k": ["c", "d"], "n": [1, 2]}))
    assert queue.drain().exports == 2
    assert sorted(Receiver.keys) == ["mine c", "mine d"]
    assert queue.status().exporter == f"python:{__name__}:Receiver"


@pytest.mark.parametrize(
    ("exporter", "error", "reason"),
    [
        (Receiver({}), InvalidRequestError, "exporter is Receiver .*expected its class"),
        ("python:__main__:Mine", InvalidRequestError, "'__main__:Mine' .* is in the main module"),
        ("python:no.such:Mine", UserCodeError, "cannot be imported: ModuleNotFoundError"),
        (f"python:{__name__}:Mine", UserCodeError, "cannot be imported: AttributeError"),
    ],
)
@pytest.mark.usefixtures("table")
def test_an_exporter_that_workers_cannot_make_is_refused(
    instance: sleeper.Instance, exporter: Any, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        instance.create_export_queue("out", "counts", "ingest", "k", "n", exporter)
    assert instance.export_queues() == []
