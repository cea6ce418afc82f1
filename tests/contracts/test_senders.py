"""The behaviour of exporters that send messages: webhook, OpenSearch, SQS and Kafka."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sleeper.aws.external_queue import SqsExternalQueue
from sleeper.errors import UnavailableError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import Exporter, RefusedExportsError
from sleeper.export_queue.exporters import kafka as kafka_exporter
from sleeper.export_queue.exporters import opensearch, webhook
from sleeper.export_queue.exporters.sqs import SqsExporter
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueSettings
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.schema.model import PrimitiveType
from tests.contracts.simulated_services import simulated_queues
from tests.contracts.sqs_queues import moto_server
from tests.export_batches import make_batch, make_queue
from tests.servers.failing_proxy import failing_proxy
from tests.servers.http_receivers import LARGE_CHARACTERS, OpenSearch, Webhook, http_server
from tests.servers.kafka import kafka
from tests.servers.ministack import Ministack
from tests.servers.sqs import make_queue as make_sqs_queue

Arrived = tuple[Any, dict[str, Any] | None, int]


@dataclass
class Receiver:
    """A receiver and an exporter of it. `arrived` returns all exports, those of a key in order.

    `stopped` is a context in which the receiver does not answer.
    """

    queue: ExportQueue
    exporter: Exporter
    arrived: Callable[[], list[Arrived]]
    stopped: Callable[[], contextlib.AbstractContextManager[None]]
    keeps_messages: bool = True


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "opened")
    with contextlib.closing(open_local_instance(tmp_path / "opened")) as instance:
        yield instance


@pytest.fixture(
    params=[
        "webhook",
        "opensearch",
        pytest.param("kafka", marks=pytest.mark.slow),
        "sqs-moto",
        "fifo-moto",
        "sqs-simulated",
        "fifo-simulated",
        pytest.param("sqs-ministack", marks=pytest.mark.slow),
        pytest.param("fifo-ministack", marks=pytest.mark.slow),
    ]
)
def receiver(
    request: pytest.FixtureRequest, opened: Instance, tmp_path: Path
) -> Iterator[Receiver]:
    kind, _, server = request.param.partition("-")
    if kind == "webhook":
        started = _webhook(opened)
    elif kind == "opensearch":
        started = _opensearch(opened)
    elif kind == "kafka":
        started = _kafka(opened, tmp_path)
    elif server == "moto":
        started = _moto(is_fifo=kind == "fifo")
    elif server == "simulated":
        started = _simulated(is_fifo=kind == "fifo")
    else:
        emulator = request.getfixturevalue("ministack_server")
        started = _ministack(emulator, is_fifo=kind == "fifo")
    with started as made:
        yield made
        made.exporter.close()


@pytest.fixture
def stoppable(receiver: Receiver) -> Receiver:
    """A receiver that can stop, which those in this process cannot."""
    if isinstance(receiver.stopped, _NeverStopped):
        pytest.skip("a service in this process does not stop")
    return receiver


def test_each_export_of_a_batch_arrives_once_in_order_of_its_key(receiver: Receiver) -> None:
    exports = [(f"k{n // 3:02}", {"word": f"v{n}", "amount": n}, n) for n in range(75)]

    receiver.exporter.export(make_batch(receiver.queue, exports))

    arrived = receiver.arrived()
    assert len(arrived) == 75
    for key in {key for key, _, _ in exports}:
        expected = [(key, {"data": None, **v}, n) for k, v, n in exports if k == key]
        assert [each for each in arrived if each[0] == key] == expected


def test_values_arrive_as_their_json(receiver: Receiver) -> None:
    value = {"word": 'é"\\\n\x00\uffff😀', "amount": -(2**63), "data": b"\x00\xff"}

    receiver.exporter.export(make_batch(receiver.queue, [("é", {}, 3), ("Ω \t/", value, 2**40)]))

    assert receiver.arrived() == [
        ("é", {"word": None, "amount": None, "data": None}, 3),
        ("Ω \t/", {**value, "data": "AP8="}, 2**40),
    ]


def test_a_key_that_went_arrives_without_a_value(receiver: Receiver) -> None:
    batch = make_batch(receiver.queue, [("a", {"word": "x"}, 4), ("a", None, 5)])

    receiver.exporter.export(batch)

    assert receiver.arrived() == [
        ("a", {"word": "x", "amount": None, "data": None}, 4),
        ("a", None, 5),
    ]


def test_an_export_that_is_refused_leaves_the_others(receiver: Receiver) -> None:
    large = {"word": "x" * (LARGE_CHARACTERS + 1)}
    batch = make_batch(receiver.queue, [("a", {}, 1), ("b", large, 2), ("c", {}, 3)])

    with pytest.raises(RefusedExportsError) as raised:
        receiver.exporter.export(batch)

    assert list(raised.value.reasons) == [1]
    assert raised.value.reasons[1]
    assert [key for key, _, _ in receiver.arrived()] == ["a", "c"]


@pytest.mark.slow
def test_a_large_value_arrives(receiver: Receiver) -> None:
    value = {"word": "y" * 900_000}

    receiver.exporter.export(make_batch(receiver.queue, [("a", value, 1), ("b", value, 2)]))

    assert [value and len(value["word"]) for _, value, _ in receiver.arrived()] == [900_000] * 2


@pytest.mark.slow
def test_the_receiver_is_unavailable_and_gets_the_batch_later(stoppable: Receiver) -> None:
    batch = make_batch(stoppable.queue, [("a", {"word": "x"}, 1), ("b", None, 2)])
    with stoppable.stopped(), pytest.raises(UnavailableError):
        stoppable.exporter.export(batch)

    stoppable.exporter.export(batch)

    assert stoppable.arrived() == [
        ("a", {"word": "x", "amount": None, "data": None}, 1),
        ("b", None, 2),
    ]


@pytest.mark.slow
def test_an_exporter_that_has_sent_before_notices_that_the_receiver_went(
    stoppable: Receiver,
) -> None:
    stoppable.exporter.export(make_batch(stoppable.queue, [("a", None, 1)]))

    with stoppable.stopped(), pytest.raises(UnavailableError):
        stoppable.exporter.export(make_batch(stoppable.queue, [("a", None, 2)]))


@pytest.mark.slow
def test_a_repeated_batch_arrives_again_or_is_ignored(receiver: Receiver) -> None:
    batch = make_batch(receiver.queue, [("a", {"word": "x"}, 1), ("a", {"word": "y"}, 2)])

    receiver.exporter.export(batch)
    receiver.exporter.export(batch)

    sequences = [sequence for _, _, sequence in receiver.arrived()]
    assert sequences == ([1, 2] * 2 if receiver.keeps_messages else [1, 2])


def test_keys_of_several_fields_arrive_as_a_list(opened: Instance) -> None:
    kept = Webhook()
    keys = {"k": PrimitiveType.STRING, "n": PrimitiveType.LONG}
    with http_server(kept.respond) as server:
        queue = make_queue(f"webhook:{server.url}", keys=keys, values={})
        exporter = webhook.make(opened, queue)
        exporter.export(make_batch(queue, [(("a", 1), {}, 1)]))
        exporter.close()

    assert kept.exports == [
        {"queue": "counts", "bucket": 0, "key": ["a", 1], "value": {}, "sequence": 1}
    ]


class _NeverStopped:
    def __call__(self) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError


@contextlib.contextmanager
def _webhook(instance: Instance) -> Iterator[Receiver]:
    kept = Webhook()
    with _http(kept.respond) as (url, stopped):
        queue = make_queue(f"webhook:{url}/exports", timeout_seconds=2)
        yield Receiver(
            queue, webhook.make(instance, queue), lambda: _arrived(kept.exports), stopped
        )


@contextlib.contextmanager
def _opensearch(instance: Instance) -> Iterator[Receiver]:
    index = OpenSearch("counts")

    def arrived() -> list[Arrived]:
        return [
            (
                key,
                None if body is None else {name: body[name] for name in ("word", "amount", "data")},
                version,
            )
            for key, version, body in index.operations
        ]

    with _http(index.respond) as (url, stopped):
        queue = make_queue(f"opensearch:{url}/counts", timeout_seconds=2)
        exporter = opensearch.make(instance, queue)
        yield Receiver(queue, exporter, arrived, stopped, keeps_messages=False)


@contextlib.contextmanager
def _http(respond: Any) -> Iterator[tuple[str, Any]]:
    """Yields the URL of a server, and a context in which it is stopped."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(http_server(respond))

        @contextlib.contextmanager
        def stopped() -> Iterator[None]:
            stack.close()
            yield
            stack.enter_context(http_server(respond, server.port))

        yield server.url, stopped


@contextlib.contextmanager
def _kafka(instance: Instance, folder: Path) -> Iterator[Receiver]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(kafka(folder))
        topic = server.make_topic()
        queue = make_queue(f"kafka://{server.address}/{topic}", timeout_seconds=3)

        def arrived() -> list[Arrived]:
            found: list[Arrived] = []
            for each in server.messages(topic):
                assert each.headers["queue"] == b"counts"
                raw = json.loads(each.value or b'{"value": null}')
                value = raw["value"] if each.value else None
                assert value is None or raw["key"] == each.key.decode()
                found.append((each.key.decode(), value, int(each.headers["sequence"])))
            return sorted(found, key=lambda export: export[0])

        @contextlib.contextmanager
        def stopped() -> Iterator[None]:
            stack.close()
            yield
            # It keeps no topics.
            stack.enter_context(kafka(folder, server.port))
            server.make_topic()

        yield Receiver(queue, kafka_exporter.make(instance, queue), arrived, stopped)


@contextlib.contextmanager
def _moto(is_fifo: bool) -> Iterator[Receiver]:
    with moto_server() as server:
        pair = server.make("exports", QueueSettings(fifo=is_fifo))
        exporter = SqsExporter(SqsExternalQueue(server.client, pair.url))
        yield Receiver(
            make_queue(f"sqs:{pair.url}"),
            exporter,
            lambda: _sorted(server.bodies(pair.url)),
            _NeverStopped(),
            keeps_messages=not is_fifo,
        )


@contextlib.contextmanager
def _simulated(is_fifo: bool) -> Iterator[Receiver]:
    server = simulated_queues()
    pair = server.make("exports", QueueSettings(fifo=is_fifo))
    exporter = SqsExporter(SqsExternalQueue(server.client, pair.url))
    yield Receiver(
        make_queue(f"sqs:{pair.url}"),
        exporter,
        lambda: _sorted(server.bodies(pair.url)),
        _NeverStopped(),
        keeps_messages=not is_fifo,
    )


@contextlib.contextmanager
def _ministack(server: Ministack, is_fifo: bool) -> Iterator[Receiver]:
    pair = make_sqs_queue(
        server.client("sqs"), f"exports-{uuid.uuid4().hex[:8]}", QueueSettings(fifo=is_fifo)
    )
    with failing_proxy(server.url) as proxy:

        @contextlib.contextmanager
        def stopped() -> Iterator[None]:
            proxy.failures = 1000
            yield
            proxy.failures = 0

        exporter = SqsExporter(SqsExternalQueue(server.client("sqs", proxy.endpoint), pair.url))
        yield Receiver(
            make_queue(f"sqs:{pair.url}"),
            exporter,
            lambda: _sorted([body for _, body in server.messages(pair.url)]),
            stopped,
            keeps_messages=not is_fifo,
        )


def _sorted(bodies: list[str]) -> list[Arrived]:
    """Returns exports of a queue, whose order between keys does not matter."""
    return sorted(_arrived([json.loads(body) for body in bodies]), key=lambda each: each[0])


def _arrived(exports: list[dict[str, Any]]) -> list[Arrived]:
    assert all(each["queue"] == "counts" and each["bucket"] == 0 for each in exports)
    return [(each["key"], each["value"], each["sequence"]) for each in exports]
