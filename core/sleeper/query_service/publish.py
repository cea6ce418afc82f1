"""Publishes the rows of a subquery to its destination (docs/formats.md, "Query results")."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.jobs.query_tracker import SendFrame
from sleeper.jobs.queue import ResultsQueue
from sleeper.properties.table import CompressionCodec
from sleeper.query.messages.destination import DestinationKind
from sleeper.query.messages.leaf import LeafQueryMessage
from sleeper.query.messages.query import QueryMessage
from sleeper.query.rows.json_pages import JsonPage, json_pages
from sleeper.query.rows.output import write_client_parquet
from sleeper.query_service.frames import Location, results_folder, results_path
from sleeper.schema.model import Schema, schema_to_json
from sleeper.storage.location import DataRoot

FRAME_BYTES_MAX = 120 * 1024
# The largest size of a message of rows without its rows and schema.
_MESSAGE_BYTES = 2048
_MESSAGES_PER_SEND = 10


@dataclass(frozen=True, slots=True)
class Publisher:
    """The ports for publishing rows.

    `results_root` opens a bucket and `results_queue` a URL; None opens the instance's own.
    `is_newest` returns whether a run is the newest of its query's id.
    """

    results_root: Callable[[str | None], DataRoot]
    results_queue: Callable[[str | None], ResultsQueue]
    send_frame: SendFrame
    batch_rows: int
    is_newest: Callable[[str, str], bool]


def publish_rows(
    leaf: LeafQueryMessage,
    schema: Schema,
    columns: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    publisher: Publisher,
) -> int:
    """Sends the rows to their destination, and returns their number.

    `schema` is the table's, `columns` those of the batches. A second run replaces the file of
    the first, or sends a queue's messages again with the same numbers. Memory is bounded.
    """
    match leaf.query.results.kind:
        case DestinationKind.S3:
            return _to_file(leaf, columns, batches, publisher)
        case DestinationKind.SQS:
            return _to_queue(leaf, _result_schema(schema, columns), batches, publisher)
        case DestinationKind.WEBSOCKET:
            return _to_connection(leaf, batches, publisher)
    return sum(batch.num_rows for batch in batches)


def result_locations(
    message: QueryMessage, publisher: Publisher, sub_query_id: str | None = None
) -> tuple[Location, ...]:
    """Returns the places of a subquery's rows; None is all subqueries."""
    results = message.results
    if results.kind is not DestinationKind.S3:
        return ()
    path = results_folder(message.query_id)
    if sub_query_id is not None:
        path = results_path(message.query_id, sub_query_id)
    return ({"type": "s3", "location": publisher.results_root(results.bucket).url_of(path)},)


def _to_file(
    leaf: LeafQueryMessage,
    columns: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    publisher: Publisher,
) -> int:
    query = leaf.query
    codec = query.results.codec or CompressionCodec.ZSTD
    name = "none" if codec is CompressionCodec.UNCOMPRESSED else codec.value
    path = results_path(query.query_id, leaf.sub_query_id)
    with publisher.results_root(query.results.bucket).replacing(path) as sink:
        rows = write_client_parquet(columns, batches, sink, name)
        if not publisher.is_newest(query.query_id, leaf.run):
            # A client would read the file as part of the newer query.
            raise StateMovedOnError(f"query {query.query_id!r} was started over by a newer message")
    return rows


def _to_queue(
    leaf: LeafQueryMessage, schema: Schema, batches: Iterable[pa.RecordBatch], publisher: Publisher
) -> int:
    """Sends at least one message; the last has the numbers of messages and of rows."""
    queue = publisher.results_queue(leaf.query.results.queue_url)
    raw_schema = json.loads(schema_to_json(schema))
    room = queue.message_bytes_max - _MESSAGE_BYTES - len(json.dumps(raw_schema).encode())
    if room < _MESSAGE_BYTES:
        raise InvalidRequestError(
            f"results queue: messages of {queue.message_bytes_max:,} bytes are too small for rows "
            "and the table's schema"
        )
    pages = json_pages(batches, room, leaf.query.results.batch_size or publisher.batch_rows)
    bodies: list[str] = []
    sequence = rows = 0
    for page, is_last in _with_last(pages):
        sequence, rows = sequence + 1, rows + page.rows
        frame = {
            "queryId": leaf.query.query_id,
            "subQueryId": leaf.sub_query_id,
            "sequence": sequence,
            "schema": raw_schema,
            **({"messages": sequence, "rowCount": rows} if is_last else {}),
        }
        bodies.append(join_rows(frame, page.text))
        if is_last or len(bodies) == _MESSAGES_PER_SEND:
            queue.send_all(bodies)
            bodies.clear()
    return rows


def _to_connection(
    leaf: LeafQueryMessage, batches: Iterable[pa.RecordBatch], publisher: Publisher
) -> int:
    connection = leaf.query.results.connection
    assert connection is not None
    frame = {"message": "rows", "queryId": leaf.query.frame_id}
    room = FRAME_BYTES_MAX - len(join_rows(frame, "").encode())
    rows = 0
    for page in json_pages(batches, room, leaf.query.results.batch_size):
        publisher.send_frame(connection, join_rows(frame, page.text))
        rows += page.rows
    return rows


def join_rows(members: Mapping[str, object], rows: str) -> str:
    """Returns a JSON object whose last member is the rows, which are JSON text."""
    return f'{json.dumps(members, separators=(",", ":"))[:-1]},"rows":{rows}}}'


def _with_last(pages: Iterator[JsonPage]) -> Iterator[tuple[JsonPage, bool]]:
    """Yields each page and whether it is the last; an empty page if there is none."""
    before = next(pages, JsonPage("[]", 0))
    for page in pages:
        yield before, False
        before = page
    yield before, True


def _result_schema(schema: Schema, columns: pa.Schema) -> Schema:
    """Returns the schema of the rows: keys, and the requested value fields."""
    values = tuple(f for f in schema.values if f.name in columns.names)
    return Schema(schema.row_keys, schema.sort_keys, values)
