"""A fake API Gateway for queries over a WebSocket, and tables to query."""

import copy
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sleeper.admin.tables import create_table
from sleeper.instance import Instance
from sleeper.jobs.query_tracker import Connection
from sleeper.jobs.queue import QueueName
from tests.handlers import functions
from tests.handlers.conftest import EVENTS, SCHEMA, Lambda, add_rows, batch_of, failed
from tests.live_clients import Frame
from tests.ports import with_ports

KEYS = 40
EVENT = json.loads((EVENTS / "websocket.json").read_text())
ALL: list[dict[str, Any]] = [{"k": {"min": None, "max": None}}]


class Gateway:
    """Calls the function for each message, and keeps the frames that are sent back."""

    def __init__(self, instance: Instance) -> None:
        self.aws = Lambda(with_ports(instance, queries={"send_frame": self._send}))
        self.frames: dict[str, list[Frame]] = {}
        self._connections = (f"connection-{number}" for number in itertools.count())

    def _send(self, connection: Connection, frame: str) -> None:
        assert len(frame) <= 128 * 1024
        self.frames.setdefault(connection.id, []).append(json.loads(frame))

    def connect(self) -> str:
        return next(self._connections)

    def send(self, connection: str, body: str) -> None:
        event = copy.deepcopy(EVENT)
        event["requestContext"] |= {"eventType": "MESSAGE", "connectionId": connection}
        event["body"] = body
        assert self.aws.call(functions.handle_websocket, event) == {"statusCode": 200}

    def work(self) -> None:
        """Plans every query, then runs all of its leaves at the same time."""
        self.aws.take(QueueName.QUERY, functions.plan_query)
        queue = self.aws.instance.jobs.queue(QueueName.LEAF_QUERY)
        with ThreadPoolExecutor(4) as pool:
            while messages := queue.receive(10):
                events = [batch_of([message]) for message in messages]
                answers = pool.map(lambda e: self.aws.call(functions.run_leaf_query, e), events)
                assert [failed(answer) for answer in answers] == [[] for _ in messages]
                for message in messages:
                    queue.delete(message.receipt)

    def ask(self, query_id: str = "q", **members: Any) -> list[Frame]:
        """Returns the frames of one query on a new connection."""
        connection = self.connect()
        self.send(connection, body(query_id, **members))
        self.work()
        return self.frames[connection]


def make_tables(instance: Instance) -> None:
    """Creates `t` with forty keys over four leaves, and `empty` without rows."""
    create_table(instance, "t", SCHEMA, split_points=[10, 20, 30])
    create_table(instance, "empty", SCHEMA)
    add_rows(instance, "t", *range(KEYS))


def body(query_id: str | None, **members: Any) -> str:
    raw = {"type": "Query", "queryId": query_id, "tableName": "t", "regions": ALL, **members}
    return json.dumps(raw)


def keys(low: int, high: int) -> list[dict[str, Any]]:
    return [{"k": {"min": low, "max": high}}]
