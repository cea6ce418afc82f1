"""Responses with rows: their formats, and how they are streamed."""

import io
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import anyio
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from sleeper.datafiles.json_text import json_lines
from sleeper.datafiles.sources.budget import TooLargeError
from sleeper.query.lookups import SharedRows, Span
from sleeper.query.rows.batch_writers import BatchWriter, CsvWriter, open_arrow, open_parquet
from sleeper.serve.bodies import describe_problem, problem_response
from sleeper.serve.service import OpenRows, RowFetcher, RowStream, Service

logger = logging.getLogger(__name__)
_SLICE_ROWS = 4096
_PIECE_BYTES = 256 * 1024
# Time for the client to read the reason for which the response ends.
_GRACE_SECONDS = 2


@dataclass(frozen=True, slots=True)
class RowFormat:
    """A format of rows. `write` yields the bytes of a response.

    `encode_shared` returns the whole responses to lookups, each with its spans of shared rows.
    `has_errors` is true if an error can follow the rows of an incomplete response.
    """

    media_type: str
    write: Callable[[RowStream], Iterator[bytes]]
    encode_shared: Callable[[SharedRows, Sequence[Sequence[Span]]], list[bytes]]
    has_errors: bool = False


def write_json_lines(result: RowStream) -> Iterator[bytes]:
    """Yields a JSON object per line (docs/formats.md, "Rows in JSON")."""
    for batch in result:
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            rows = batch.slice(start, _SLICE_ROWS)
            lines = pa.ListArray.from_arrays([0, rows.num_rows], json_lines(rows))
            yield pc.binary_join(lines, "\n")[0].as_buffer().to_pybytes() + b"\n"


def _write_batches(
    open_writer: Callable[[pa.Schema, BinaryIO], AbstractContextManager[BatchWriter]],
    result: RowStream,
) -> Iterator[bytes]:
    """Yields the bytes of a writer. An incomplete stream or file of Arrow or Parquet has no end."""
    sink = io.BytesIO()

    def take() -> bytes:
        written = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return written

    with open_writer(result.schema, sink) as writer:
        yield take()
        for batch in result:
            writer.write_batch(batch)
            yield take()
    yield take()


def encode_json_lines(shared: SharedRows, spans: Sequence[Sequence[Span]]) -> list[bytes]:
    """Returns each response. Arrow encodes all rows at once, and joins the lines of each."""
    counts = [sum(stop - start for start, stop in each) for each in spans]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    positions = [np.arange(start, stop) for each in spans for start, stop in each]
    if not positions:
        return [b""] * len(spans)
    lines = json_lines(shared.select(shared.rows)).take(pa.array(np.concatenate(positions)))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), lines), "\n")
    return [body + b"\n" if body else b"" for body in joined.cast(pa.binary()).to_pylist()]


def _batch_format(
    media_type: str,
    open_writer: Callable[[pa.Schema, BinaryIO], AbstractContextManager[BatchWriter]],
) -> RowFormat:
    write = partial(_write_batches, open_writer)

    def encode_each(shared: SharedRows, spans: Sequence[Sequence[Span]]) -> list[bytes]:
        return [b"".join(write(shared.result(each))) for each in spans]

    return RowFormat(media_type, write, encode_each)


JSON_LINES = RowFormat("application/x-ndjson", write_json_lines, encode_json_lines, has_errors=True)
ARROW_STREAM = _batch_format("application/vnd.apache.arrow.stream", open_arrow)
CSV = _batch_format("text/csv", CsvWriter)
PARQUET = _batch_format("application/vnd.apache.parquet", open_parquet)
ROW_FORMATS = (JSON_LINES, ARROW_STREAM, CSV, PARQUET)
_ALIASES = {
    "*/*": JSON_LINES,
    "application/*": JSON_LINES,
    "application/jsonl": JSON_LINES,
    "application/json-lines": JSON_LINES,
}


def choose_format(accept: str | None) -> RowFormat:
    """Returns the format that an Accept header prefers. HTTPException 406 if it allows none."""
    if not accept:
        return JSON_LINES
    formats = {each.media_type: each for each in ROW_FORMATS} | _ALIASES
    for name, quality in sorted(map(_parse_quality, accept.split(",")), key=lambda each: -each[1]):
        if quality > 0 and name in formats:
            return formats[name]
    names = ", ".join(each.media_type for each in ROW_FORMATS)
    raise HTTPException(406, f"unknown format of rows: {accept[:200]} (expected {names})")


def _parse_quality(choice: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in choice.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return name, float(parameter.removeprefix("q="))
            except ValueError:
                return name, 0.0
    return name, 1.0


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """An ASGI application that answers one request with rows.

    An error before the first rows is a response with a status. A later error closes the
    connection without the end of the body, so that no client takes the rows for complete; JSON
    lines have the reason as their last line.
    """

    service: Service
    open_rows: OpenRows
    form: RowFormat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fetcher = RowFetcher(self.service, self.open_rows, self.form.write)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, receive, fetcher, tasks.cancel_scope)
            try:
                first, is_last = b"", False
                async with fetcher.slot():
                    first, is_last = await self._fetch_first(fetcher)
                    if not is_last:
                        await self._stream(first, fetcher, send)
                if is_last:
                    length = (b"content-length", str(len(first)).encode())
                    await send(self._start_message(length))
                    await send(_body_message(first, more=False))
            except Exception as error:
                await problem_response(error)(scope, receive, send)
            tasks.cancel_scope.cancel()

    async def _fetch_first(self, fetcher: RowFetcher[bytes]) -> tuple[bytes, bool]:
        bytes_max = self.service.limits.answer_bytes_max
        if bytes_max is None:
            return await _fetch_next(fetcher, _PIECE_BYTES)
        whole, is_last = await _fetch_next(fetcher, bytes_max + 1)
        if len(whole) > bytes_max:
            raise TooLargeError(
                f"the response is larger than {bytes_max:,} bytes: request fewer rows or columns, "
                "or send the query to the query queue"
            )
        return whole, is_last

    async def _stream(self, first: bytes, fetcher: RowFetcher[bytes], send: Send) -> None:
        await send(self._start_message())
        with anyio.move_on_after(self.service.limits.seconds_max + _GRACE_SECONDS) as time:
            try:
                piece, is_last = first, False
                while not is_last:
                    await self._send_in_time(piece, send)
                    piece, is_last = await _fetch_next(fetcher, _PIECE_BYTES)
                await self._send_in_time(piece, send)
                await send(_body_message(b"", more=False))
            except _StalledError:
                logger.warning("stopped a query: its client stalled")
            except Exception as error:
                logger.warning("response ended early: %s", error)
                if self.form.has_errors:
                    reason = json.dumps(describe_problem(error)[1]).encode()
                    await send(_body_message(reason + b"\n", more=True))
        if time.cancelled_caught:
            logger.warning("response ended early: the client did not read it in time")

    async def _send_in_time(self, body: bytes, send: Send) -> None:
        """Sends the bytes in parts, each of which has a timeout.

        A client that reads none would hold a slot that other queries wait for.
        """
        for start in range(0, len(body), _PIECE_BYTES):
            with self.service.slots.limit_send(self.service.limits.read_seconds_max) as time:
                await send(_body_message(body[start : start + _PIECE_BYTES], more=True))
            if time.cancelled_caught:
                raise _StalledError

    def _start_message(self, *headers: tuple[bytes, bytes]) -> Message:
        kind = (b"content-type", self.form.media_type.encode())
        return {"type": "http.response.start", "status": 200, "headers": [kind, *headers]}


class _StalledError(Exception):
    """The client of a response does not read."""


async def _fetch_next(fetcher: RowFetcher[bytes], enough: int) -> tuple[bytes, bool]:
    pieces, is_last = await fetcher.fetch(lambda pieces: sum(map(len, pieces)) >= enough)
    return b"".join(pieces), is_last


async def _cancel_on_disconnect(
    receive: Receive, fetcher: RowFetcher[bytes], scope: anyio.CancelScope
) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    fetcher.stop()
    scope.cancel()


def _body_message(body: bytes, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
