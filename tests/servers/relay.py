"""Connections to an address of this machine, passed on to a server of its loopback interface."""

import contextlib
import socket
import threading
from collections.abc import Iterator

_BLOCK_BYTES = 1 << 18


@contextlib.contextmanager
def relay(address: str, port: int) -> Iterator[int]:
    """Yields a port of the address whose connections reach that port of 127.0.0.1."""
    listener = socket.create_server((address, 0))
    threading.Thread(target=_accept, args=(listener, port), daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        # Closing it would not wake the thread that waits.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _accept(listener: socket.socket, port: int) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_pass_on, args=(client, port), daemon=True).start()


def _pass_on(client: socket.socket, port: int) -> None:
    with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as to:
        back = threading.Thread(target=_copy, args=(to, client), daemon=True)
        back.start()
        _copy(client, to)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copies until the source ends. The other direction may go on."""
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK_BYTES):
            target.sendall(block)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
