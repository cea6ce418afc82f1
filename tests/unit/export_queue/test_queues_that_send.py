"""Queues with exporters that send: changes of a table arrive, and refused exports become dead."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from tests.servers.http_receivers import LARGE_CHARACTERS, OpenSearch, Webhook, http_server

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "StringType"}],
    "valueFields": [{"name": "note", "type": "StringType", "nullable": True}],
}


@dataclass
class Sending:
    """A table with a queue, and the values that the receiver has by key."""

    table: sleeper.Table
    queue: sleeper.ExportQueue
    server: Any

    def arrived(self) -> dict[str, str | None]:
        if isinstance(self.server, OpenSearch):
            return {key: body["note"] for key, (_, body) in self.server.documents.items()}
        newest = {each["key"]: each["value"] for each in self.server.exports}
        return {key: value["note"] for key, value in newest.items() if value is not None}


@pytest.fixture(params=["webhook", "opensearch"])
def sending(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sending]:
    server = Webhook() if request.param == "webhook" else OpenSearch("notes")
    with ExitStack() as stack:
        url = stack.enter_context(http_server(server.respond)).url
        instance = stack.enter_context(sleeper.create_instance(tmp_path / "instance"))
        properties = {"sleeper.table.rows": "latest"}
        table = instance.create_table("notes", SCHEMA, properties)
        queue = instance.create_export_queue(
            "notes",
            "notes",
            "ingest",
            "id",
            "note",
            f"{request.param}:{url}/notes",
            buckets=3,
            tries=1,
        )
        yield Sending(table, queue, server)


def rows(notes: dict[str, str | None]) -> pa.Table:
    kinds = pa.schema([("id", pa.string()), ("note", pa.string())])
    return pa.table([[*notes], [*notes.values()]], schema=kinds)


def test_inserts_updates_and_deletes_arrive(sending: Sending) -> None:
    sending.table.ingest(rows({f"n{n}": "old" for n in range(50)}))
    sending.table.ingest(rows({"n1": "new", "n2": None}))
    sending.table.delete(keys=[("n3",)])

    report = sending.queue.drain()

    assert not report.problems
    expected: dict[str, str | None] = {f"n{n}": "old" for n in range(50) if n != 3}
    assert sending.arrived() == {**expected, "n1": "new", "n2": None}
    assert (sending.queue.status().lag, sending.queue.status().pending) == (0, 0)


def test_only_the_refused_export_becomes_a_dead_letter(sending: Sending) -> None:
    large = "x" * (LARGE_CHARACTERS + 1)
    sending.table.ingest(rows({"a": "1", "b": large, "c": "3", "d": "4"}))

    sending.queue.drain()

    assert sending.arrived() == {"a": "1", "c": "3", "d": "4"}
    assert (sending.queue.status().pending, sending.queue.status().dead) == (0, 1)
    (letter,) = sending.queue.peek(dead=True)
    assert letter.rows.column("id").to_pylist() == ["b"]
