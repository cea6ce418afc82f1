"""A Redis server, for tests of exporters."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from tests.servers.process import free_ports, running


@dataclass
class RedisServer:
    """A server on a port of the loopback interface. It needs the password, and keeps its data."""

    folder: Path
    port: int
    password: str = "test-password"
    _resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def url(self) -> str:
        """The URL, without the password."""
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        """Returns a client, which does not repeat commands."""
        return redis.Redis(port=self.port, password=self.password, decode_responses=True)

    def start(self) -> None:
        """Starts the server."""
        program = shutil.which("redis-server") or "redis-server"
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "no", "--dir", str(self.folder)]
        command += ["--requirepass", self.password]
        self._resources.enter_context(running(command, self.folder / "log", self._answers))

    def stop(self) -> None:
        """Ends the server."""
        self._resources.close()

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), self.client() as client:
            return bool(client.ping())
        return False


def is_installed() -> bool:
    """Returns whether the server's program is on the path."""
    return shutil.which("redis-server") is not None


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """Runs a server until the context ends."""
    (port,) = free_ports(1)
    server = RedisServer(folder, port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
