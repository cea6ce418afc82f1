"""Operations of programs that use the HTTP API of an instance.

Each client has a server of its own, which keeps what a server remembers between requests. An error
status is an allowed outcome if the API declares it.
"""

import json
from collections import Counter

import pyarrow as pa

from simulation.model.journal import Read
from simulation.model.values import batch_rows
from simulation.workload.client import Client, CreatedTable, answered
from simulation.workload.ingests import make_ingest, to_arrow
from simulation.workload.reads import likely_keys, newest_number, random_version
from simulation.workload.registry import always, operation
from simulation.workload.text_files import write_json_lines
from simulation.workload.web import Response, WebServer
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    UnavailableError,
)

_ARROW = "application/vnd.apache.arrow.stream"
_JSON_LINES = "application/x-ndjson"
_REPORTS = ("tables", "queues", "ingest-jobs", "compaction-jobs", "tasks", "dead-letters")
_PARTS = ("", "/history", "/partitions", "/files", "/followers")
_ERRORS: dict[int, type[SleeperError]] = {
    400: InvalidRequestError,
    404: NotFoundError,
    409: ConflictError,
    413: InvalidRequestError,
    503: UnavailableError,
}


def _server(client: Client) -> WebServer:
    if client.server is None:
        client.server = WebServer(client.instance)
    return client.server


def _checked(response: Response) -> bytes:
    """Returns the body, or raises the error that the status stands for."""
    if response.status == 200:
        return response.body
    error = DataError if response.is_data_error else _ERRORS.get(response.status)
    if error is None:
        raise AssertionError(f"unexpected response {response.reason}")
    raise error(response.reason)


def _rows(content: bytes) -> Counter[tuple[object, ...]]:
    if not content:
        return Counter()
    return Counter(row for batch in pa.ipc.open_stream(content) for row in batch_rows(batch))


@operation(2)
def query_by_http(client: Client) -> None:
    """Reads a version of a table, as a stream."""
    table = client.choose_table()
    version = random_version(client, table)
    body = {"asOf": version}
    path = f"/tables/{table.name}/query"
    rows = _rows(_checked(_server(client).post_json(path, body, _ARROW)))
    _record(client, table, "query of a version by HTTP", version, rows)


@operation(1)
def sql_by_http(client: Client) -> None:
    """Reads a version of a table by a statement."""
    table = client.choose_table()
    version = random_version(client, table)
    names = [each.name for each in client.schema(table).fields]
    columns = ", ".join(f'"{name}"' for name in names)
    body = {"statement": f'SELECT {columns} FROM "{table.name}"', "asOf": version}
    content = _checked(_server(client).post_json("/sql", body, _ARROW))
    read = Read(
        table_id=table.id,
        what="statement by HTTP",
        first=version,
        last=version,
        rows=_rows(content),
        columns=tuple(names),
    )
    client.journal.reads.append(read)


def _with_plain_keys(client: Client) -> list[CreatedTable]:
    """Returns tables whose keys are text or numbers in JSON, and whose rows do not age."""
    return [
        each
        for each in client.catalogue.active()
        if each.definition.age_ms is None and each.definition.has_plain_keys
    ]


def _has_plain_keys(client: Client) -> bool:
    return bool(_with_plain_keys(client))


@operation(2, _has_plain_keys)
def look_up_by_http(client: Client) -> None:
    """Reads the newest rows of a few keys."""
    table = client.random.choice(_with_plain_keys(client))
    schema, first = client.schema(table), newest_number(client, table)
    keys = likely_keys(client, table, schema)
    body = {"keys": [list(key) for key in keys]}
    path = f"/tables/{table.name}/query"
    rows = _rows(_checked(_server(client).post_json(path, body, _ARROW)))
    client.journal.reads.append(
        Read(
            table_id=table.id,
            what="lookup by HTTP",
            first=first,
            last=newest_number(client, table),
            rows=rows,
            keys=frozenset(keys),
            is_of_now=True,
        )
    )


def _record(
    client: Client,
    table: CreatedTable,
    what: str,
    version: int,
    rows: Counter[tuple[object, ...]],
) -> None:
    read = Read(table_id=table.id, what=what, first=version, last=version, rows=rows)
    client.journal.reads.append(read)


def _with_writes(client: Client) -> list[CreatedTable]:
    return [
        each for each in client.catalogue.active() if not each.is_snapshot and not each.is_latest
    ]


def _has_writes(client: Client) -> bool:
    return bool(_with_writes(client))


@operation(3, _has_writes)
def add_rows_by_http(client: Client) -> None:
    """Adds rows under a key, sometimes twice."""
    table = client.random.choice(_with_writes(client))
    ingest, schema = make_ingest(client, table)
    ingest.kinds = ("write_request",)
    body = write_json_lines(to_arrow(ingest.rows, schema), schema)
    headers = {"content-type": _JSON_LINES, "idempotency-key": ingest.id}
    path = f"/tables/{table.name}/rows"
    for _ in range(client.random.choice((1, 1, 2))):
        with answered(ingest):
            written = json.loads(_checked(_server(client).request("POST", path, body, headers)))
            ingest.acknowledge(written["number"])


@operation(2, always)
def read_status_by_http(client: Client) -> None:
    """Reads the health, a report, and a part of the description of a table."""
    server, random = _server(client), client.random
    health = server.request("GET", "/health")
    _checked(health)
    _checked(server.request("GET", f"/status?report={random.choice(_REPORTS)}&limit=20"))
    for table in client.catalogue.active()[:1]:
        _checked(server.request("GET", f"/tables/{table.name}{random.choice(_PARTS)}"))
