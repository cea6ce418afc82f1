"""Receivers of exports that keep a state, as the suite of exporters sees them."""

import base64
import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from sleeper.admin.tables import rename
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import Exporter
from sleeper.export_queue.exporters import open_exporter
from sleeper.instance import Instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from tests.export_batches import make_queue
from tests.servers.http_receivers import OpenSearch, http_server
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer

Values = dict[str, Any]


class Receiver(Protocol):
    """A receiver with one queue. `stop` makes it refuse connections until `start`.

    `keeps_tombstones` is false if it takes an export that is older than the end of its key.
    """

    instance: Instance
    queue: ExportQueue
    keeps_tombstones: bool

    def rows(self) -> dict[str, Values]:
        """Returns the values and the sequence by key, read without the exporter."""

    def stop(self) -> None: ...

    def start(self) -> None: ...


def open_receiver(receiver: Receiver) -> Exporter:
    """Returns a new exporter, as another worker has."""
    return open_exporter(receiver.instance, receiver.queue)


@dataclass
class PostgresReceiver:
    """A table of a database of its own."""

    instance: Instance
    queue: ExportQueue
    database: Postgres
    administrator: Postgres
    keeps_tombstones: bool = True

    def rows(self) -> dict[str, Values]:
        if self.database.run("SELECT to_regclass('counts') IS NULL") == ["t"]:
            return {}
        lines = self.database.run(
            "SELECT json_build_object('name', name, 'word', word, 'amount', amount, "
            "'data', encode(data, 'hex'), 'sequence', sequence) FROM counts"
        )
        found = {}
        for row in map(json.loads, lines):
            data = row["data"]
            row["data"] = None if data is None else bytes.fromhex(data)
            found[row.pop("name")] = row
        return found

    def stop(self) -> None:
        name = self.database.name
        self.administrator.run(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        self.administrator.run(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )

    def start(self) -> None:
        self.administrator.run(f"ALTER DATABASE {self.database.name} ALLOW_CONNECTIONS true")


class OpenSearchReceiver:
    """An index of a server in this process."""

    keeps_tombstones = True

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._index = OpenSearch("counts")
        self._running = ExitStack()
        self._port = 0
        self.start()
        self.queue = make_queue(f"opensearch:http://127.0.0.1:{self._port}/counts")

    def rows(self) -> dict[str, Values]:
        found = {}
        for _, document in self._index.documents.values():
            row = dict(document)
            row["data"] = None if row["data"] is None else base64.b64decode(row["data"])
            found[row.pop("name")] = row
        return found

    def stop(self) -> None:
        self._running.close()

    def start(self) -> None:
        server = http_server(self._index.respond, self._port)
        self._port = self._running.enter_context(server).port


@dataclass
class TableReceiver:
    """A table of the instance. It is unavailable when it has another name."""

    instance: Instance
    queue: ExportQueue
    keeps_tombstones: bool

    def rows(self) -> dict[str, Values]:
        found = open_query(self.instance, "counts", Query()).read_all()
        rows = {row.pop("name"): row for row in found.to_pylist()}
        assert len(rows) == found.num_rows
        return rows

    def stop(self) -> None:
        rename(self.instance, "counts", "renamed")

    def start(self) -> None:
        rename(self.instance, "renamed", "counts")


@dataclass
class RedisReceiver:
    """A server of one test."""

    instance: Instance
    queue: ExportQueue
    server: RedisServer
    keeps_tombstones: bool = True

    def rows(self) -> dict[str, Values]:
        found = {}
        with self.server.client() as client:
            for name in client.scan_iter("counts:*"):
                stored: Values = client.hgetall(name)
                row: Values = dict.fromkeys(("word", "amount", "data")) | stored
                for number in ("amount", "sequence"):
                    row[number] = None if row[number] is None else int(row[number])
                row["data"] = None if row["data"] is None else base64.b64decode(row["data"])
                found[name.removeprefix("counts:")] = row
        return found

    def stop(self) -> None:
        self.server.stop()

    def start(self) -> None:
        self.server.start()
