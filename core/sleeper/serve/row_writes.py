"""The endpoint that adds rows to a table, acknowledged when they are durable."""

import asyncio
import hashlib
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from sleeper.datafiles.engine.settings import make_spill_folder
from sleeper.datafiles.sources.budget import TooLargeError
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.ingest.large_rows import SUFFIXES, write_large
from sleeper.ingest.request_results import WriteResult, check_request_id
from sleeper.ingest.small_rows import Content, ContentType, begin_digest
from sleeper.reports.access import check_write_access
from sleeper.serve.access import TableAccess, identify_caller, open_table, read_header
from sleeper.serve.endpoint import Parameter, endpoint
from sleeper.serve.schema import Schema, model_of
from sleeper.serve.service import Service, check_writable

_WRITTEN = model_of(
    WriteResult,
    "Written",
    "number rows already_done",
    number=Schema("the transaction that added the rows", minimum=1),
    already_done=Schema("an earlier request with the key added the rows"),
)
CONTENT_TYPES = {
    **{kind.value: kind for kind in ContentType},
    "application/jsonl": ContentType.JSON_LINES,
    "application/json-lines": ContentType.JSON_LINES,
}
_BODY_SECONDS_MAX = 30.0
_BYTES_PER_SECOND_MIN = 64 * 1024


@endpoint(
    "POST",
    "/tables/{name}/rows",
    response=_WRITTEN,
    errors=(400, 404, 408, 409, 413, 415, 503),
    parameters=(
        Parameter(
            "Idempotency-Key",
            "A repeated request with the key adds no row twice, for 30 days.",
            "header",
        ),
    ),
    row_types=tuple(each.value for each in ContentType),
)
async def add_rows(service: Service, request: Request) -> Response:
    """Adds the rows of the body to a table, acknowledged when they are durable.

    Rows of many requests are written and committed together. A read-only server answers 403.
    """
    check_writable(service)
    kind = find_content_type(request.scope)
    if kind is None:
        names = ", ".join(each.value for each in ContentType)
        given = request.headers.get("content-type", "")
        raise HTTPException(415, f"content type {given[:200]!r} (expected {names})")
    request_id = read_request_id(request.scope)
    access = TableAccess(request.path_params["name"], identify_caller(request))
    async with _receive(service, request, kind) as body:
        if body.file is None:
            content = Content(kind, bytes(body.start))
            future = service.writers.submit(access, content, request_id)
            return Response(encode_written(await asyncio.wrap_future(future)), 200, _JSON)
        # A large body is ingested alone, from local disk.
        instance, file, digest = service.instance, body.file, body.digest.digest()

        def work() -> WriteResult:
            table, start = open_table(instance, access, check_write_access), time.monotonic()
            result = write_large(table, file, kind, digest, request_id, service.limits.rows)
            if not result.already_done:
                service.writers.on_group(1, result.rows, time.monotonic() - start)
            return result

        result = await to_thread.run_sync(work)
        return Response(encode_written(result), 200, _JSON)


_JSON = {"Content-Type": "application/json"}


def find_content_type(scope: Scope) -> ContentType | None:
    """Returns the format of the rows in the body; None if it is unknown."""
    name = read_header(scope, b"content-type")
    return CONTENT_TYPES.get(name) or CONTENT_TYPES.get(name.partition(";")[0].strip().lower())


def read_request_id(scope: Scope) -> str | None:
    """Returns the key of the request, which may be quoted; None if it has none."""
    key = read_header(scope, b"idempotency-key")
    if not key:
        return None
    is_quoted = len(key) > 1 and key[0] == key[-1] == '"'
    key = key[1:-1] if is_quoted else key
    try:
        check_request_id(key)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"Idempotency-Key: {error}") from error
    return key


def encode_written(result: WriteResult) -> bytes:
    """Returns the body of the response."""
    return _WRITTEN.codec.format(result).encode()


@dataclass(slots=True)
class _Body:
    """A body in memory, or in a file if it is large, and the hash of its content."""

    start: bytearray
    digest: "hashlib.blake2b"
    file: Path | None = None


@asynccontextmanager
async def _receive(service: Service, request: Request, kind: ContentType) -> AsyncIterator[_Body]:
    """Yields the body when it has arrived. Its file is deleted at the end."""
    body, limits = _Body(bytearray(), begin_digest(kind)), service.limits
    sink: BinaryIO | None = None
    size, is_counted = 0, False
    try:
        async for chunk in _chunks(request):
            size += len(chunk)
            body.digest.update(chunk)
            body.start += chunk
            if size > limits.rows_bytes_max:
                raise TooLargeError(f"the body has more than {limits.rows_bytes_max:,} bytes")
            if len(body.start) > limits.body_bytes_max:
                if sink is None:
                    is_counted = _begin_large_write(service)
                    folder = service.instance.storage.spill_folder()
                    body.file = folder / f"request-{uuid.uuid4().hex}{SUFFIXES[kind]}"
                    sink = await to_thread.run_sync(_open, body.file)
                await to_thread.run_sync(_write, sink, bytes(body.start))
                body.start.clear()
        if sink is not None:
            await to_thread.run_sync(_write, sink, bytes(body.start))
            sink.close()
        yield body
    finally:
        if sink is not None:
            sink.close()
        if body.file is not None:
            body.file.unlink(missing_ok=True)
        if is_counted:
            service.large_writes.release()


def _begin_large_write(service: Service) -> bool:
    """Counts a large body. UnavailableError if there are too many."""
    try:
        service.large_writes.acquire_nowait()
    except anyio.WouldBlock:
        raise UnavailableError("too many large bodies at once: try again later") from None
    return True


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    """Yields the parts of the body, which must arrive at a minimum rate."""
    stream, start, size = request.stream(), anyio.current_time(), 0
    while True:
        end = start + _BODY_SECONDS_MAX + size / _BYTES_PER_SECOND_MIN
        try:
            with anyio.fail_after(end - anyio.current_time()):
                chunk = await anext(stream, None)
        except TimeoutError:
            seconds = end - start
            reason = f"the body did not arrive in time: {size:,} bytes in {seconds:.0f} s"
            raise HTTPException(408, reason) from None
        if chunk is None:
            return
        size += len(chunk)
        yield chunk


def _open(file: Path) -> BinaryIO:
    make_spill_folder(file.parent)
    try:
        return file.open("xb")
    except OSError as error:
        raise UnavailableError(f"cannot keep the body in {file.parent}: {error}") from error


def _write(sink: BinaryIO, content: bytes) -> None:
    try:
        sink.write(content)
        sink.flush()
    except OSError as error:
        raise UnavailableError(f"cannot keep the body on the local disk: {error}") from error
