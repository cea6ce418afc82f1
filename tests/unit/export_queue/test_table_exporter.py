"""The exporter to another table: which tables fit, replaced rows, and cycles of queues."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.api import Instance
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.definition import (
    EXPORT_QUEUES,
    ExportQueue,
    ExportSource,
)
from sleeper.export_queue.exporter import RefusedExportsError
from sleeper.export_queue.exporters import check_exporter, open_exporter, table_replacement
from sleeper.export_queue.exporters.target_table import check_no_cycle
from sleeper.export_queue.parsing import NewQueue
from sleeper.export_queue.service import create_queue
from sleeper.export_queue.store import Position, open_export_store
from sleeper.export_queue.transactions import CreateExportQueue
from sleeper.instance import Instance as Ports
from sleeper.schema.model import ListType, PrimitiveType
from tests.export_batches import make_batch, make_queue

LONG, STRING = PrimitiveType.LONG, PrimitiveType.STRING
SEQUENCE = {"name": "sequence", "type": "LongType"}
AMOUNT = {"name": "amount", "type": "LongType"}
LATEST = {"sleeper.table.rows": "latest", "sleeper.table.latest.by": "sequence"}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    properties = {"sleeper.engine.threads": "1"}
    with sleeper.create_instance(tmp_path / "instance", properties) as opened:
        yield opened


@pytest.fixture
def ports(instance: Instance) -> Ports:
    return instance._ports


def queue_of(**settings: Any) -> ExportQueue:
    settings.setdefault("values", {"amount": LONG})
    return make_queue("table:counts", **settings)


def schema(keys: list[Any], values: list[Any], sort_keys: list[Any] | None = None) -> Any:
    def fields(given: list[Any]) -> list[Any]:
        return [
            {"name": each, "type": "StringType"} if isinstance(each, str) else each
            for each in given
        ]

    parts = {"rowKeyFields": fields(keys), "valueFields": fields(values)}
    return {**parts, "sortKeyFields": fields(sort_keys)} if sort_keys else parts


def send(ports: Ports, queue: ExportQueue, *exports: Any) -> None:
    open_exporter(ports, queue).export(make_batch(queue, exports))


def rows(instance: Instance, table: str = "counts") -> list[dict[str, Any]]:
    return instance.table(table).query().to_arrow().to_pylist()


def test_a_missing_table_is_created_and_shows_the_newest_sequence(
    instance: Instance, ports: Ports
) -> None:
    queue = queue_of(keys={"word": STRING, "day": LONG})
    check_exporter(ports, queue)
    check_exporter(ports, queue)
    created = instance.table("counts").schema
    assert [field.name for field in created.row_keys] == ["word", "day"]
    assert [(field.name, field.nullable) for field in created.values] == [
        ("amount", True),
        ("sequence", False),
    ]
    assert created.latest is not None
    assert created.latest.by == "sequence"


@pytest.mark.parametrize(
    ("fields", "properties", "problem"),
    [
        (schema(["name"], [AMOUNT]), {}, "has no value field 'sequence' of type LongType"),
        (
            schema(["name"], [AMOUNT, {"name": "sequence", "type": "IntType"}]),
            {},
            "has no value field 'sequence' of type LongType",
        ),
        (
            schema(["name"], [AMOUNT], [SEQUENCE]),
            {},
            "has no value field 'sequence' of type LongType",
        ),
        (
            schema(["name"], [{"name": "amonut", "type": "LongType"}, SEQUENCE]),
            {},
            "has no value field 'amount'; did you mean amonut",
        ),
        (
            schema(["other"], ["name", AMOUNT, SEQUENCE]),
            {},
            "key 'name' of the queue is not a row key or sort key of the table .its keys are other",
        ),
        (
            schema(["name"], [AMOUNT, SEQUENCE], ["day"]),
            {},
            "its key field 'day' is not a key of the queue .expected only name",
        ),
        (
            schema([{"name": "name", "type": "ByteArrayType"}], [AMOUNT, SEQUENCE]),
            {},
            "field 'name' has type ByteArrayType .expected StringType",
        ),
        (
            schema(["name"], [{"name": "amount", "type": "IntType"}, SEQUENCE]),
            {},
            "field 'amount' has type IntType .expected LongType",
        ),
        (
            schema(["name"], [AMOUNT, SEQUENCE, "more"]),
            {},
            "field 'more' is not a value of the queue .expected it to be nullable",
        ),
        (
            schema(["name"], [AMOUNT, SEQUENCE]),
            {"sleeper.table.type": "snapshot"},
            "is a snapshot table",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    instance: Instance, ports: Ports, fields: Any, properties: Any, problem: str
) -> None:
    instance.create_table("counts", fields, properties)
    with pytest.raises(InvalidRequestError, match=f"queue 'counts': table 'counts'.*{problem}"):
        check_exporter(ports, queue_of())


def test_options_and_names_that_are_not_valid_are_refused(ports: Ports) -> None:
    with pytest.raises(InvalidRequestError, match="exporter table: unknown option 'prefix'"):
        check_exporter(ports, queue_of(options={"prefix": "p"}))
    with pytest.raises(InvalidRequestError, match="exporter table: a password is given"):
        check_exporter(ports, queue_of(password="env:WORD"))
    for name in ("", "a/b"):
        with pytest.raises(InvalidRequestError, match="table name"):
            check_exporter(ports, make_queue(f"table:{name}"))


@pytest.mark.parametrize("properties", [LATEST, {"sleeper.table.rows": "latest"}, {}])
def test_keys_may_be_in_another_order_values_wider_and_other_fields_missing(
    instance: Instance, ports: Ports, properties: dict[str, str]
) -> None:
    more = {"name": "more", "type": "StringType", "nullable": True}
    instance.create_table("counts", schema(["b"], [more, SEQUENCE, AMOUNT], ["a"]), properties)
    queue = queue_of(keys={"a": STRING, "b": STRING}, values={"amount": PrimitiveType.INT})
    check_exporter(ports, queue)
    send(ports, queue, (("x", "y"), {"amount": 1}, 1), (("z", "y"), {"amount": 2}, 2))
    send(ports, queue, (("x", "y"), {"amount": 3}, 3), (("w", "y"), None, 3))
    send(ports, queue, (("z", "y"), None, 4))
    assert rows(instance) == [{"b": "y", "a": "x", "more": None, "sequence": 3, "amount": 3}]


def test_replacing_a_row_keeps_rows_of_other_sort_keys_and_values_of_all_types(
    instance: Instance, ports: Ports
) -> None:
    numbers = {"name": "numbers", "type": {"ListType": {"elementType": "LongType"}}}
    instance.create_table("counts", schema(["a"], [numbers, SEQUENCE], ["b"]))
    queue = queue_of(keys={"a": STRING, "b": STRING}, values={"numbers": ListType(LONG)})
    check_exporter(ports, queue)
    keys = [("x", "1"), ("x", "2"), ("y", "1")]
    send(ports, queue, *((key, {"numbers": [1, 2]}, 1) for key in keys))
    send(ports, queue, (("x", "1"), {"numbers": []}, 2))
    assert [(r["a"], r["b"], r["numbers"], r["sequence"]) for r in rows(instance)] == [
        ("x", "1", [], 2),
        ("x", "2", [1, 2], 1),
        ("y", "1", [1, 2], 1),
    ]


def test_the_rows_of_a_key_that_is_there_several_times_are_replaced_by_a_newer_one(
    instance: Instance, ports: Ports
) -> None:
    table = instance.create_table("counts", schema(["name"], [AMOUNT, SEQUENCE]))
    present = [{"name": "a", "amount": n, "sequence": n} for n in (3, 5, 4)]
    table.ingest(sleeper_rows(present))
    send(ports, queue_of(), ("a", {"amount": 0}, 5))
    assert sorted(row["sequence"] for row in rows(instance)) == [3, 4, 5]
    send(ports, queue_of(), ("a", {"amount": 6}, 6))
    assert rows(instance) == [{"name": "a", "amount": 6, "sequence": 6}]


def sleeper_rows(given: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(given)


@pytest.mark.parametrize("properties", [LATEST, {}])
def test_only_exports_with_nulls_that_the_table_does_not_have_are_refused(
    instance: Instance, ports: Ports, properties: dict[str, str]
) -> None:
    instance.create_table("counts", schema(["name"], [AMOUNT, SEQUENCE]), properties)
    exports = [("a", {"amount": 1}, 1), ("a", {"amount": None}, 2), ("b", None, 3)]
    with pytest.raises(RefusedExportsError) as raised:
        send(ports, queue_of(), *exports, ("c", {"amount": 4}, 4))
    assert raised.value.reasons == {
        1: "field 'amount' is null (expected a value: the table has no nulls)"
    }
    assert [row["name"] for row in rows(instance)] == ["a", "c"]


@pytest.mark.parametrize("properties", [LATEST, {}])
def test_a_repeated_batch_commits_once(
    instance: Instance, ports: Ports, properties: dict[str, str]
) -> None:
    table = instance.create_table("counts", schema(["name"], [AMOUNT, SEQUENCE]), properties)
    exports = [("a", {"amount": 1}, 1), ("b", {"amount": 2}, 2)]
    send(ports, queue_of(), *exports)
    version = table.version
    send(ports, queue_of(), *exports)
    assert table.version == version


def test_a_queue_of_the_same_name_that_was_created_later_exports_the_same_rows_again(
    instance: Instance, ports: Ports
) -> None:
    table = instance.create_table("counts", schema(["name"], [AMOUNT, SEQUENCE]), LATEST)
    store = open_export_store(ports)
    for generation in (5, 6):
        store.register("counts", "a-table")
        store.begin("counts", generation, Position(1))
        version = table.version
        send(ports, queue_of(), ("a", {"amount": 1}, 1))
        assert table.version > version
        store.remove("counts")


def test_exports_wait_while_the_table_is_missing_or_does_not_fit(
    instance: Instance, ports: Ports
) -> None:
    exports = [("a", {"amount": 1}, 1)]
    with pytest.raises(UnavailableError, match="exporter table:counts: "):
        send(ports, queue_of(), *exports)
    instance.create_table("counts", schema(["name"], [SEQUENCE]))
    with pytest.raises(UnavailableError, match="has no value field 'amount'"):
        send(ports, queue_of(), *exports)
    instance.delete_table("counts")
    check_exporter(ports, queue_of())
    send(ports, queue_of(), *exports)
    assert [row["name"] for row in rows(instance)] == ["a"]


def test_rows_that_another_writer_changes_meanwhile_are_read_again(
    instance: Instance, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = instance.create_table("counts", schema(["name"], [AMOUNT, SEQUENCE]))
    commit = table_replacement._commit
    faster = [{"name": "a", "amount": 7, "sequence": 7}]

    def commit_later(*arguments: Any) -> None:
        if faster:
            table.ingest(sleeper_rows([faster.pop()]))
        commit(*arguments)

    monkeypatch.setattr(table_replacement, "_commit", commit_later)
    send(ports, queue_of(), ("a", {"amount": 5}, 5), ("b", {"amount": 5}, 5))
    assert rows(instance) == [
        {"name": "a", "amount": 7, "sequence": 7},
        {"name": "b", "amount": 5, "sequence": 5},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("properties", [LATEST, {}])
def test_exporters_of_several_buckets_write_at_the_same_time(
    instance: Instance, ports: Ports, properties: dict[str, str]
) -> None:
    instance.create_table("counts", schema(["name"], [AMOUNT, SEQUENCE]), properties)
    problems: list[BaseException] = []

    def run(bucket: int) -> None:
        try:
            exporter = open_exporter(ports, queue_of())
            for n in range(10):
                export = (f"{bucket}", {"amount": n}, n)
                exporter.export(make_batch(queue_of(), [export], bucket))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(bucket,)) for bucket in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert rows(instance) == [
        {"name": f"{bucket}", "amount": 9, "sequence": 9} for bucket in range(4)
    ]


class Chain:
    """Tables with queues from one to another."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.ports = instance._ports
        for name in "abcd":
            instance.create_table(name, schema(["name"], [AMOUNT, SEQUENCE]), LATEST)

    def queue(self, source: str, target: str, on: ExportSource) -> ExportQueue:
        name = f"{source}-to-{target}"
        return replace(make_queue(f"table:{target}", name=name), source=on)

    def add(self, source: str, target: str, on: ExportSource = ExportSource.INGEST) -> None:
        table = self.ports.table(source)
        queue = self.queue(source, target, on)
        open_export_store(self.ports).register(queue.name, table.ref.id)
        created = CreateExportQueue(queue.name, queue.source.value, EXPORT_QUEUES.format(queue))
        generation = table.state.commit_or_raise(created)
        assert generation is not None
        open_export_store(self.ports).begin(queue.name, generation, Position(generation))

    def check(self, source: str, target: str, on: ExportSource = ExportSource.INGEST) -> None:
        check_no_cycle(self.ports, self.queue(source, target, on), self.ports.table(source).ref)


def test_a_queue_to_its_own_table_is_refused(instance: Instance) -> None:
    chain = Chain(instance)
    for source in ExportSource:
        with pytest.raises(InvalidRequestError, match="back to it: a -> a"):
            chain.check("a", "a", source)


def test_queues_that_lead_back_to_their_table_are_refused(instance: Instance) -> None:
    chain = Chain(instance)
    chain.add("a", "b")
    chain.add("b", "c")
    chain.add("b", "d")
    chain.check("c", "d")
    chain.check("d", "c")
    with pytest.raises(
        InvalidRequestError,
        match="'c-to-a' exports changes of table 'c' back to it: c -> a -> b -> c",
    ):
        chain.check("c", "a")


def test_exports_that_transactions_attach_lead_to_no_further_table(instance: Instance) -> None:
    chain = Chain(instance)
    chain.add("a", "b", ExportSource.TRANSACTION)
    chain.check("b", "a")


def test_the_creation_of_a_queue_refuses_a_cycle_before_it_creates_a_table(
    instance: Instance, ports: Ports
) -> None:
    instance.create_table("counts", schema(["name"], [AMOUNT, SEQUENCE]), LATEST)
    new = NewQueue("own", "counts", "ingest", "name", "amount", "table:counts")
    with pytest.raises(InvalidRequestError, match="back to it: counts -> counts"):
        create_queue(ports, new)
    assert open_export_store(ports).list() == []
