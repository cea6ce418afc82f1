"""A TCP proxy that refuses, cuts, delays and reorders the exchanges of HTTP connections.

An *exchange* is a request and its response on a connection. Faults act on whole exchanges: the
bytes of a connection stay in order. A *lost* response is one that the server sent, and that the
client never gets: its request has taken effect.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from simulation.soak.journal import Journal

_CHUNK_BYTES = 1 << 16
_DELAY_SECONDS_MAX = 3.0
_REORDER_SECONDS_MAX = 1.5


class Cut(Enum):
    """Faults of an exchange."""

    REFUSED = "refused request"
    CUT_REQUEST = "cut request"
    LOST = "lost response"
    CUT_RESPONSE = "cut response"
    DELAYED = "delayed response"
    REORDERED = "reordered response"


_WEIGHTS = {
    Cut.REFUSED: 2,
    Cut.CUT_REQUEST: 2,
    Cut.LOST: 4,
    Cut.CUT_RESPONSE: 2,
    Cut.DELAYED: 4,
    Cut.REORDERED: 4,
}


@dataclass(slots=True)
class _Exchange:
    """The current exchange of a connection."""

    cut: Cut | None = None
    has_response: bool = True


class Proxy:
    """A proxy of a server on a loopback port. `probability` is that of a fault in an exchange."""

    def __init__(self, name: str, server_port: int, chance: random.Random, journal: Journal):
        self.probability = 0.0
        self.port = 0
        self._name = name
        self._server_port = server_port
        self._chance = chance
        self._journal = journal
        self._response = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begins to listen. To be called in the event loop."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Ends all connections. To be called in the event loop."""
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)  # closes their sockets

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
    ) -> None:
        writers, pumps = [client_writer], set[asyncio.Task[None]]()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            writers.append(writer)
            for each in writers:
                _end_with_error(each)
            exchange = _Exchange()
            pumps.add(asyncio.create_task(self._send_requests(exchange, client_reader, writer)))
            pumps.add(asyncio.create_task(self._send_responses(exchange, reader, client_writer)))
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            return  # the server is down, and its client sees a connection that ends
        finally:
            for pump in pumps:
                pump.cancel()
            for each in writers:
                each.transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)

    def _choose(self) -> Cut | None:
        if self._chance.random() >= self.probability:
            return None
        (cut,) = self._chance.choices([*_WEIGHTS], [*_WEIGHTS.values()])
        self._journal.fault(cut.value, self._name)
        return cut

    async def _send_requests(
        self, exchange: _Exchange, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if exchange.has_response:
                exchange.has_response, exchange.cut = False, self._choose()
            if exchange.cut is Cut.REFUSED:
                return
            if exchange.cut is Cut.CUT_REQUEST:
                writer.write(chunk[: len(chunk) // 2])
                await writer.drain()
                return
            writer.write(chunk)
            await writer.drain()

    async def _send_responses(
        self, exchange: _Exchange, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if not exchange.has_response:
                exchange.has_response = True
                if exchange.cut is Cut.LOST:
                    return
                if exchange.cut is Cut.CUT_RESPONSE:
                    writer.write(chunk[: len(chunk) // 2])
                    await writer.drain()
                    return
                await self._hold_back(exchange.cut)
            writer.write(chunk)
            await writer.drain()
            self._response.set()

    async def _hold_back(self, cut: Cut | None) -> None:
        """Waits for a time, or until a response of another connection has overtaken this one."""
        if cut is Cut.DELAYED:
            await asyncio.sleep(self._chance.uniform(0.1, _DELAY_SECONDS_MAX))
        if cut is Cut.REORDERED:
            self._response.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._response.wait(), _REORDER_SECONDS_MAX)


def _end_with_error(writer: asyncio.StreamWriter) -> None:
    """Makes the connection end with an error, as TLS does: what is cut never looks complete."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextlib.contextmanager
def running_proxies(*proxies: Proxy) -> Iterator[None]:
    """Runs the proxies in a thread until the context ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxies", daemon=True)
    thread.start()
    try:
        for proxy in proxies:
            asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(10)
        yield
    finally:
        for proxy in proxies:
            asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
