"""Exporters to receivers that keep a state: the newest export of each key stays."""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.admin.tables import create_table
from sleeper.errors import UnavailableError
from sleeper.export_queue.control import queue_status
from sleeper.export_queue.exporter import Exporter
from sleeper.export_queue.exporters import check_exporter
from sleeper.instance import Instance
from sleeper.opening import create_instance, open_instance
from sleeper.schema.model import Field, PrimitiveType, Schema, schema_to_json
from tests.contracts.export_receivers import (
    OpenSearchReceiver,
    PostgresReceiver,
    Receiver,
    RedisReceiver,
    TableReceiver,
    open_receiver,
)
from tests.export_batches import Export, make_batch, make_queue
from tests.seeds import choose_seed
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer
from tests.system.export_runs import running, wait_until

pytestmark = pytest.mark.slow

LONG_MAX, LONG_MIN = 2**63 - 1, -(2**63)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    opened = open_instance(tmp_path / "instance")
    yield opened
    opened.close()


@pytest.fixture(params=["table", "appended_table", "postgres", "redis", "opensearch"])
def receiver(request: pytest.FixtureRequest) -> Receiver:
    found: Receiver = request.getfixturevalue(f"{request.param}_receiver")
    return found


@pytest.fixture
def postgres_receiver(
    instance: Instance,
    postgres_server: Postgres,
    postgres_database: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> PostgresReceiver:
    monkeypatch.setenv("RECEIVER_PASSWORD", postgres_database.password)
    queue = make_queue(f"{postgres_database.url}?table=counts", password="env:RECEIVER_PASSWORD")
    return PostgresReceiver(instance, queue, postgres_database, postgres_server)


@pytest.fixture
def redis_receiver(
    instance: Instance, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> RedisReceiver:
    monkeypatch.setenv("RECEIVER_PASSWORD", own_redis.password)
    queue = make_queue(own_redis.url, password="env:RECEIVER_PASSWORD")
    return RedisReceiver(instance, queue, own_redis)


@pytest.fixture
def opensearch_receiver(instance: Instance) -> Iterator[OpenSearchReceiver]:
    opened = OpenSearchReceiver(instance)
    yield opened
    opened.stop()


@pytest.fixture
def table_receiver(instance: Instance) -> TableReceiver:
    queue = make_queue("table:counts")
    check_exporter(instance, queue)
    return TableReceiver(instance, queue, keeps_tombstones=True)


@pytest.fixture
def appended_table_receiver(instance: Instance) -> TableReceiver:
    """Exports to a table that shows all rows."""
    queue = make_queue("table:counts")
    sequence = Field("sequence", PrimitiveType.LONG)
    schema = replace(queue.schema, values=(sequence, *queue.schema.values))
    create_table(instance, "counts", schema_to_json(schema))
    check_exporter(instance, queue)
    return TableReceiver(instance, queue, keeps_tombstones=False)


@pytest.fixture
def exporter(receiver: Receiver) -> Iterator[Exporter]:
    opened = open_receiver(receiver)
    yield opened
    opened.close()


def values(amount: int | None, word: str | None = None, data: bytes | None = None) -> Any:
    return {"word": word, "amount": amount, "data": data}


def row(sequence: int, amount: int | None, **others: Any) -> dict[str, Any]:
    return {**values(amount, **others), "sequence": sequence}


@pytest.fixture
def send(receiver: Receiver, exporter: Exporter) -> Callable[..., None]:
    """Sends a batch of exports."""
    return lambda *exports: exporter.export(make_batch(receiver.queue, exports))


Send = Callable[..., None]


def test_values_of_all_kinds_arrive_unchanged(receiver: Receiver, send: Send) -> None:
    exports: list[Export] = [
        (
            "größe, \"quoted\" 'single' \\ \n\t {curly} 漢字 😀",
            values(1, "ß\r\n'\"\\", b"\x00\xff"),
            7,
        ),
        (" leading and trailing ", values(LONG_MAX, "", b""), 8),
        ("least", values(LONG_MIN, " ", b"\n"), 9),
        ("", values(0, "null", b"null"), 10),
        ("none", values(None), 2**53 + 1),
    ]
    send(*exports)
    expected = {key: {**(value or {}), "sequence": number} for key, value, number in exports}
    assert receiver.rows() == expected


def test_the_last_export_of_a_key_in_a_batch_stays(receiver: Receiver, send: Send) -> None:
    send(("a", values(1), 1), ("a", values(3), 3), ("a", values(2), 2), ("b", values(9), 2))
    assert receiver.rows() == {"a": row(3, 3), "b": row(2, 9)}


def test_an_older_export_of_a_key_changes_nothing(receiver: Receiver, send: Send) -> None:
    send(("a", values(2), 2))
    send(("a", values(1), 1), ("b", values(1), 1))
    assert receiver.rows() == {"a": row(2, 2), "b": row(1, 1)}


def test_a_newer_export_replaces_all_values(receiver: Receiver, send: Send) -> None:
    send(("a", values(1, "word", b"data"), 1))
    send(("a", values(None), 2))
    assert receiver.rows() == {"a": row(2, None)}


def test_a_repeated_batch_changes_nothing(receiver: Receiver, send: Send) -> None:
    exports = [("a", values(1), 1), ("b", None, 2), ("c", values(3), 3)]
    send(*exports)
    before = receiver.rows()
    send(*exports)
    assert receiver.rows() == before == {"a": row(1, 1), "c": row(3, 3)}


def test_a_key_that_went_is_removed_and_may_come_back(receiver: Receiver, send: Send) -> None:
    send(("a", values(1), 1), ("b", values(1), 1))
    send(("a", None, 2))
    assert receiver.rows() == {"b": row(1, 1)}
    send(("a", values(3), 3))
    assert receiver.rows() == {"a": row(3, 3), "b": row(1, 1)}


def test_the_end_of_a_key_that_is_older_than_its_row_changes_nothing(
    receiver: Receiver, send: Send
) -> None:
    send(("a", values(5), 5))
    send(("a", None, 4))
    assert receiver.rows() == {"a": row(5, 5)}


def test_an_export_from_before_the_end_of_its_key_changes_nothing(
    receiver: Receiver, send: Send
) -> None:
    if not receiver.keeps_tombstones:
        pytest.skip("the receiver keeps no tombstones")
    send(("a", values(1), 1))
    send(("a", None, 3))
    send(("a", values(2), 2))
    assert receiver.rows() == {}


def test_an_export_from_before_the_end_of_an_unknown_key_changes_nothing(
    receiver: Receiver, send: Send
) -> None:
    if not receiver.keeps_tombstones:
        pytest.skip("the receiver keeps no tombstones")
    send(("a", None, 3))
    send(("a", values(2), 2))
    assert receiver.rows() == {}


def test_a_new_exporter_continues_where_another_one_ended(receiver: Receiver, send: Send) -> None:
    send(("a", values(1), 1), ("b", values(2), 2))
    again = open_receiver(receiver)
    again.export(make_batch(receiver.queue, [("a", values(0), 0), ("b", values(3), 3)]))
    again.close()
    assert receiver.rows() == {"a": row(1, 1), "b": row(3, 3)}


def test_a_receiver_that_is_unavailable_raises_unavailable_until_it_is_back(
    receiver: Receiver, send: Send
) -> None:
    send(("a", values(1), 1))
    receiver.stop()
    for _ in range(2):
        with pytest.raises(UnavailableError):
            send(("a", values(2), 2))
    receiver.start()
    send(("a", values(2), 2))
    assert receiver.rows() == {"a": row(2, 2)}


def test_an_exporter_may_be_closed_before_its_use_and_twice(receiver: Receiver) -> None:
    unused = open_receiver(receiver)
    unused.close()
    unused.close()


_PREFIXES = map(str, itertools.count())
_HISTORIES = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9)), min_size=1, max_size=12
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=_HISTORIES, data=st.data())
def test_the_newest_export_wins_in_every_order_of_batches(
    receiver: Receiver, exporter: Exporter, history: Any, data: st.DataObject
) -> None:
    prefix = next(_PREFIXES)
    exports = [
        (f"{prefix}/{key}", None if amount is None else values(amount), sequence)
        for sequence, (key, amount) in enumerate(history, 1)
        if amount is not None or receiver.keeps_tombstones
    ]
    # Some are sent twice, in any order and in batches of any size.
    repeated = data.draw(st.lists(st.sampled_from(exports), max_size=6)) if exports else []
    order = data.draw(st.permutations([*exports, *repeated]))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=len(order), max_size=len(order)))
    remaining = iter(order)
    for size in sizes:
        if batch := {export[2]: export for export in itertools.islice(remaining, size)}:
            exporter.export(make_batch(receiver.queue, batch.values()))
    newest = {key: (value, sequence) for key, value, sequence in exports}
    expected = {
        key: {**value, "sequence": sequence}
        for key, (value, sequence) in newest.items()
        if value is not None
    }
    assert {k: v for k, v in receiver.rows().items() if k.startswith(f"{prefix}/")} == expected


def test_changes_of_a_table_arrive_although_the_receiver_is_unavailable_and_the_worker_is_killed(
    receiver: Receiver,
) -> None:
    instance = sleeper.open_instance(receiver.instance.where)
    names = ("word", "amount", "data")
    fields = [replace(each, nullable=True) for each in receiver.queue.values]
    schema = Schema(receiver.queue.keys, values=tuple(fields))
    table = instance.create_table("source", schema, {"sleeper.table.rows": "latest"})
    settings = receiver.queue.exporter
    instance.create_export_queue(
        "counts", "source", "ingest", "name", names, settings.text, settings.password, buckets=5
    )
    chosen = random.Random(choose_seed())

    def change(amount: int) -> None:
        keys = chosen.sample("abcdefgh", 3)
        rows = [{"name": key, "amount": amount} for key in keys]
        table.ingest(pa.Table.from_pylist(rows, schema=table.arrow_schema))
        table.delete(keys=[[chosen.choice("abcdefgh")]])

    def is_equal() -> bool:
        rows = table.query().to_arrow().to_pylist()
        found = {key: row["amount"] for key, row in receiver.rows().items()}
        return found == {row["name"]: row["amount"] for row in rows}

    with running(receiver.instance) as run:
        for amount in range(12):
            change(amount)
            if amount == 3:
                wait_until(is_equal)
                receiver.stop()
            if amount == 8:
                wait_until(lambda: bool(queue_status(receiver.instance, "counts").failing))
                receiver.start()
            if amount == 10:
                run.kill_exporter()
        wait_until(is_equal)
        wait_until(lambda: queue_status(receiver.instance, "counts").pending == 0)
    assert is_equal()
    assert queue_status(receiver.instance, "counts").dead == 0
