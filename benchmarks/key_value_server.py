"""A key-value server, with which benchmarks compare lookups in a store.

It has nothing that a real one does besides: no parser of commands, no access control, no disk. A
request is a number of keys and the keys, 8 bytes each; a response is its length and the values of
the keys as MessagePack, None for one that is absent.
"""

import multiprocessing
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import msgspec

_LENGTH = struct.Struct("<I")
_KEY_BYTES = 8
# A forked child would have threads of the parent's libraries, but not their state.
_PROCESSES = multiprocessing.get_context("spawn")


class KeyValueClient:
    """A connection to the server. A context manager."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> "KeyValueClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def get_many(self, keys: Sequence[int]) -> list[Any]:
        """Returns the values of keys by one request."""
        self._socket.sendall(_LENGTH.pack(len(keys)) + struct.pack(f"<{len(keys)}q", *keys))
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        values: list[Any] = msgspec.msgpack.decode(self._file.read(length))
        return values


@contextmanager
def key_value_server(keys: int, countries: int) -> Iterator[int]:
    """Runs a server in a process of its own, with the keys from 0 on. Yields its port.

    A value is a country, of so many, and half of the key.
    """
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_serve, args=(sender, keys, countries), daemon=True)
    process.start()
    try:
        yield int(receiver.recv())
    finally:
        process.terminate()
        process.join()


def _serve(started: Connection, keys: int, countries: int) -> None:
    encode = msgspec.msgpack.Encoder().encode
    values = {
        key: msgspec.Raw(encode((f"country{key % countries:03}", key / 2))) for key in range(keys)
    }
    with socket.create_server(("127.0.0.1", 0)) as listening:
        started.send(listening.getsockname()[1])
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_answer, args=(connection, values), daemon=True).start()


def _answer(connection: socket.socket, values: dict[int, msgspec.Raw]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    encode = msgspec.msgpack.Encoder().encode
    with connection, connection.makefile("rb") as file:
        while header := file.read(_LENGTH.size):
            (count,) = _LENGTH.unpack(header)
            asked = struct.unpack(f"<{count}q", file.read(count * _KEY_BYTES))
            content = encode([values.get(key) for key in asked])
            connection.sendall(_LENGTH.pack(len(content)) + content)
