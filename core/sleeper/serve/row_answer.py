"""An answer made of rows: streamed as fast as its reader reads, or whole if it must be."""

import json
import logging
from dataclasses import dataclass

import anyio
from starlette.types import Message, Receive, Scope, Send

from sleeper.serve.fetching import Fetching, OpenRows, Service
from sleeper.serve.problems import TooLargeError, problem_of, problem_response
from sleeper.serve.row_formats import RowFormat

logger = logging.getLogger(__name__)

_PIECE_BYTES = 256 * 1024
# To read why the answer ends.
_GRACE_SECONDS = 2


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """An ASGI application that answers one request.

    What goes wrong before the first rows are sent is an error with a status. Later the
    connection is closed without the end of the body, so that no client takes the rows for
    all of them; JSON lines have the reason as their last line.
    """

    service: Service
    open_rows: OpenRows
    form: RowFormat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fetching = Fetching(self.service, self.open_rows, self.form.write)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_when_gone, receive, fetching, tasks.cancel_scope)
            try:
                first, is_last = b"", False
                async with fetching.admitted():
                    first, is_last = await self._first(fetching)
                    if not is_last:
                        await self._stream(first, fetching, send)
                if is_last:
                    await self._send_whole(first, send)
            except Exception as error:
                await problem_response(error)(scope, receive, send)
            tasks.cancel_scope.cancel()

    async def _first(self, fetching: Fetching[bytes]) -> tuple[bytes, bool]:
        bytes_max = self.service.terms.answer_bytes_max
        if bytes_max is None:
            return await _next(fetching, _PIECE_BYTES)
        whole, is_last = await _next(fetching, bytes_max + 1)
        if len(whole) > bytes_max:
            raise TooLargeError(
                f"the answer is larger than the {bytes_max:,} bytes that can be given here: ask "
                "for fewer rows or columns, or send the query to the query queue"
            )
        return whole, is_last

    async def _send_whole(self, body: bytes, send: Send) -> None:
        length = (b"content-length", str(len(body)).encode())
        await send(self._start(length))
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, first: bytes, fetching: Fetching[bytes], send: Send) -> None:
        await send(self._start())
        # Who reads nothing is left alone when the query's time is up.
        with anyio.move_on_after(self.service.terms.seconds_max + _GRACE_SECONDS) as time:
            try:
                piece, is_last = first, False
                while not is_last:
                    await self._send_in_time(piece, send)
                    piece, is_last = await _next(fetching, _PIECE_BYTES)
                await self._send_in_time(piece, send)
                await send(_body(b"", more=False))
            except _StalledError:
                logger.warning("stopped a query: its reader stalled")
            except Exception as error:
                logger.warning("an answer broke off: %s", error)
                if self.form.tells_errors:
                    reason = json.dumps(problem_of(error)[1]).encode()
                    await send(_body(reason + b"\n", more=True))
        if time.cancelled_caught:
            logger.warning("an answer broke off: it was not read in time")

    async def _send_in_time(self, body: bytes, send: Send) -> None:
        """Sends the bytes in parts, each of which the reader must take in time.

        A reader that takes none holds the slot of a query that others wait for.
        """
        for start in range(0, len(body), _PIECE_BYTES):
            with anyio.move_on_after(self.service.terms.read_seconds_max) as time:
                await send(_body(body[start : start + _PIECE_BYTES], more=True))
            if time.cancelled_caught:
                raise _StalledError

    def _start(self, *headers: tuple[bytes, bytes]) -> Message:
        kind = (b"content-type", self.form.media_type.encode())
        return {"type": "http.response.start", "status": 200, "headers": [kind, *headers]}


class _StalledError(Exception):
    """The reader of an answer does not read."""


async def _next(fetching: Fetching[bytes], enough: int) -> tuple[bytes, bool]:
    pieces, is_last = await fetching.fetch(lambda pieces: sum(map(len, pieces)) >= enough)
    return b"".join(pieces), is_last


async def _stop_when_gone(
    receive: Receive, fetching: Fetching[bytes], scope: anyio.CancelScope
) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    fetching.stop()
    scope.cancel()


def _body(body: bytes, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
