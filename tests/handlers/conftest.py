"""An instance in a folder, and Lambda's part: it polls queues, calls handlers, deletes messages."""

import copy
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.jobs.queue import Message, QueueName
from sleeper.local.instance import create_local_instance
from sleeper.opening import open_instance
from sleeper.tables import TableRef
from sleeper.workers import lambda_function

if TYPE_CHECKING:
    from tests.handlers.live_gateway import Gateway

EVENTS = Path(__file__).parent / "events"
SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}]}'
)
STREAM = json.loads((EVENTS / "dynamodb-stream.json").read_text())
SCHEDULED = json.loads((EVENTS / "schedule.json").read_text())


# What Lambda tells a function of itself.
CONTEXT = SimpleNamespace(
    function_name="sleeper-test-function",
    memory_limit_in_mb=128,
    invoked_function_arn="arn:aws:lambda:eu-west-2:123456789012:function:sleeper-test",
    aws_request_id="52fdfc07-2182-154f-163f-5f0f9a621d72",
)


def context_with(remaining_seconds: Callable[[], float]) -> SimpleNamespace:
    """Returns a Lambda context with this remaining time."""
    return SimpleNamespace(
        **vars(CONTEXT), get_remaining_time_in_millis=lambda: int(1000 * remaining_seconds())
    )


def batch_of(messages: Sequence[Message]) -> dict[str, Any]:
    """The event of these messages."""
    is_fifo = any(message.group for message in messages)
    event = json.loads((EVENTS / ("sqs-fifo.json" if is_fifo else "sqs.json")).read_text())
    (record,) = event["Records"]
    event["Records"] = []
    for message in messages:
        item = copy.deepcopy(record)
        item |= {"messageId": message.message_id, "body": message.body}
        item["receiptHandle"] = message.receipt
        item["attributes"]["ApproximateReceiveCount"] = str(message.receives)
        item["attributes"]["SentTimestamp"] = str(message.sent_ms)
        if is_fifo:
            item["attributes"]["MessageGroupId"] = message.group
        event["Records"].append(item)
    return event


def messages_of(*bodies: str, groups: Sequence[str] | None = None) -> list[Message]:
    """Returns just received messages, each in a group of its own by default."""
    selection = groups or bodies
    return [
        Message(f"m{i}", body, f"receipt {i}", 1, 0, group)
        for i, (body, group) in enumerate(zip(bodies, selection, strict=True))
    ]


def failed(answer: dict[str, Any]) -> list[str]:
    """Returns the ids of the messages that the handler reports as failed."""
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]]


def metrics_in(output: str) -> list[dict[str, Any]]:
    """The metrics that a handler wrote, each as CloudWatch reads it."""
    return [json.loads(line) for line in output.splitlines() if '"_aws"' in line]


def commits(*tables: TableRef) -> dict[str, Any]:
    """Returns the event of an entry in the log of each table."""
    event = copy.deepcopy(STREAM)
    (record,) = event["Records"]
    event["Records"] = []
    for ref in tables:
        record["dynamodb"]["Keys"]["tableId"]["S"] = ref.id
        event["Records"].append(copy.deepcopy(record))
    return event


@dataclass
class Lambda:
    """Calls handlers as Lambda does."""

    instance: Instance

    def call(
        self,
        handler: Callable[..., Any],
        event: dict[str, Any] | None = None,
        context: SimpleNamespace = CONTEXT,
    ) -> Any:
        return handler(event if event is not None else copy.deepcopy(SCHEDULED), context)

    def take(self, name: QueueName, handler: Callable[..., Any]) -> int:
        """Calls the handler until the queue is empty; returns the number of completed messages."""
        queue, result = self.instance.jobs.queue(name), 0
        while messages := queue.receive(10):
            results = set(failed(self.call(handler, batch_of(messages))))
            for message in messages:
                if message.message_id in results:
                    queue.release(message.receipt, 60)
                else:
                    queue.delete(message.receipt)
                    result += 1
        return result


@contextmanager
def known_to_functions(where: str) -> Iterator[Instance]:
    """Opens the instance and directs functions to it until the context ends."""
    with (
        patch.dict(os.environ, SLEEPER_INSTANCE=where),
        closing(open_instance(where)) as opened_instance,
    ):
        yield opened_instance
    if lambda_function._opened.cache_info().currsize:
        lambda_function._opened(where).close()
        lambda_function._opened.cache_clear()


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    folder = tmp_path / "instance"
    create_local_instance(folder, "test", {"sleeper.engine.threads": "1"})
    with known_to_functions(str(folder)) as opened_instance:
        yield opened_instance
        # What a test put in the place of a function's instance.
        monkeypatch.undo()


@pytest.fixture
def aws(instance: Instance) -> Lambda:
    return Lambda(instance)


@pytest.fixture
def gateway(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> "Gateway":
    """A gateway over an instance with tables to query."""
    from tests.handlers.live_gateway import Gateway, make_tables

    make_tables(instance)
    made = Gateway(instance)
    monkeypatch.setattr(lambda_function, "_opened", lambda _where: made.aws.instance)
    return made


def make_table(instance: Instance, name: str, **settings: str) -> TableRef:
    """Properties by name, without their prefix and with underscores for dots."""
    selection = {f"sleeper.table.{k.replace('_', '.')}": v for k, v in settings.items()}
    return create_table(instance, name, SCHEMA, selection)


def add_rows(instance: Instance, name: str, *keys: int) -> None:
    """One file of these keys."""
    rows = pa.table({"k": list(keys), "v": [f"v{key}" for key in keys]})
    ingest_rows(instance, name, rows.to_batches())


def write_parquet(path: Path, keys: Sequence[int]) -> Path:
    pq.write_table(pa.table({"k": list(keys), "v": [f"v{key}" for key in keys]}), path)
    return path
