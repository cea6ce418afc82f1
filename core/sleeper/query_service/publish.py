"""Publishes the rows of a subquery to its destination (docs/formats.md, "Query results")."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sleeper.errors import InvalidRequestError
from sleeper.jobs.connection import SendFrame
from sleeper.jobs.queue import ResultsQueue
from sleeper.properties.table import CompressionCodec
from sleeper.query.messages.destination import DestinationKind
from sleeper.query.messages.leaf import LeafQueryMessage
from sleeper.query.messages.query import QueryMessage
from sleeper.query.rows.json_text import JsonPage, json_pages
from sleeper.query.rows.output import write_parquet
from sleeper.query_service.frames import Location, results_folder, results_path
from sleeper.schema.json import schema_to_json
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot

FRAME_BYTES_MAX = 120 * 1024
# What a message of rows has beside its rows and its schema.
_MESSAGE_BYTES = 2048
_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class Publishing:
    """What publishing takes.

    `results_root` is of a bucket and `results_queue` of a URL, None the instance's own.
    """

    results_root: Callable[[str | None], DataRoot]
    results_queue: Callable[[str | None], ResultsQueue]
    send_frame: SendFrame
    batch_rows: int


def publish_rows(
    leaf: LeafQueryMessage,
    schema: Schema,
    columns: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    by: Publishing,
) -> int:
    """Brings the rows to the destination; how many there were.

    `schema` is the table's, `columns` those of the batches. A second run replaces the file
    of the first; a queue's messages come again, with the same numbers. Memory is bounded.
    """
    match leaf.query.results.kind:
        case DestinationKind.S3:
            return _to_file(leaf, columns, batches, by)
        case DestinationKind.SQS:
            return _to_queue(leaf, _narrowed(schema, columns), batches, by)
        case DestinationKind.WEBSOCKET:
            return _to_connection(leaf, batches, by)
    return sum(batch.num_rows for batch in batches)


def locations_of(
    message: QueryMessage, by: Publishing, sub_query_id: str | None = None
) -> tuple[Location, ...]:
    """Where a client finds the rows of a subquery; None is all subqueries."""
    results = message.results
    if results.kind is not DestinationKind.S3:
        return ()
    path = results_folder(message.query_id)
    if sub_query_id is not None:
        path = results_path(message.query_id, sub_query_id)
    return ({"type": "s3", "location": by.results_root(results.bucket).url_of(path)},)


def _to_file(
    leaf: LeafQueryMessage, columns: pa.Schema, batches: Iterable[pa.RecordBatch], by: Publishing
) -> int:
    query = leaf.query
    codec = query.results.codec or CompressionCodec.ZSTD
    name = "none" if codec is CompressionCodec.UNCOMPRESSED else codec.value
    path = results_path(query.query_id, leaf.sub_query_id)
    with by.results_root(query.results.bucket).replacing(path) as sink:
        return write_parquet(columns, batches, sink, name)


def _to_queue(
    leaf: LeafQueryMessage, schema: Schema, batches: Iterable[pa.RecordBatch], by: Publishing
) -> int:
    """The last message says how many messages and rows there were; there is always one."""
    queue = by.results_queue(leaf.query.results.queue_url)
    told = json.loads(schema_to_json(schema))
    room = queue.message_bytes_max - _MESSAGE_BYTES - len(json.dumps(told).encode())
    if room < _MESSAGE_BYTES:
        raise InvalidRequestError(
            f"results queue: messages of {queue.message_bytes_max:,} bytes have no room for rows "
            "beside the table's schema"
        )
    pages = json_pages(batches, room, leaf.query.results.batch_size or by.batch_rows)
    bodies: list[str] = []
    sequence = rows = 0
    for page, is_last in _with_last(pages):
        sequence, rows = sequence + 1, rows + page.rows
        frame = {
            "queryId": leaf.query.query_id,
            "subQueryId": leaf.sub_query_id,
            "sequence": sequence,
            "schema": told,
            **({"messages": sequence, "rowCount": rows} if is_last else {}),
        }
        bodies.append(with_rows(frame, page.text))
        if is_last or len(bodies) == _AT_ONCE:
            queue.send_all(bodies)
            bodies.clear()
    return rows


def _to_connection(
    leaf: LeafQueryMessage, batches: Iterable[pa.RecordBatch], by: Publishing
) -> int:
    connection = leaf.query.results.connection
    assert connection is not None
    frame = {"message": "rows", "queryId": leaf.query.frame_id}
    room = FRAME_BYTES_MAX - len(with_rows(frame, "").encode())
    rows = 0
    for page in json_pages(batches, room, leaf.query.results.batch_size):
        by.send_frame(connection, with_rows(frame, page.text))
        rows += page.rows
    return rows


def with_rows(members: Mapping[str, object], rows: str) -> str:
    """A JSON object with a last member of rows, which are JSON already."""
    return f'{json.dumps(members, separators=(",", ":"))[:-1]},"rows":{rows}}}'


def _with_last(pages: Iterator[JsonPage]) -> Iterator[tuple[JsonPage, bool]]:
    """Each page and whether it is the last; one without rows if there is none."""
    before = next(pages, JsonPage("[]", 0))
    for page in pages:
        yield before, False
        before = page
    yield before, True


def _narrowed(schema: Schema, columns: pa.Schema) -> Schema:
    """The schema of the rows: keys, and the value fields that were asked for."""
    values = tuple(f for f in schema.values if f.name in columns.names)
    return Schema(schema.row_keys, schema.sort_keys, values)
