"""A Redis server, for tests of exporters."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.servers.process import free_ports, running


@dataclass
class RedisServer:
    """A server on a port of the loopback interface. It needs the password, and keeps its data.

    With a file of a certificate and its key, it accepts connections with TLS only.
    """

    folder: Path
    port: int
    password: str = "test-password"
    certificate: Path | None = None
    _resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def url(self) -> str:
        """The URL, without the password."""
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        """Returns a client, which does not repeat commands."""
        tls: dict[str, Any] = {}
        if self.certificate is not None:
            tls = {"ssl": True, "ssl_ca_certs": str(self.certificate), "host": "127.0.0.1"}
        return redis.Redis(port=self.port, password=self.password, decode_responses=True, **tls)

    def start(self) -> None:
        """Starts the server."""
        program = shutil.which("redis-server") or "redis-server"
        command = [program, "--bind", "127.0.0.1", "--save", ""]
        if self.certificate is None:
            command += ["--port", str(self.port)]
        else:
            command += ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            for name in ("cert", "key", "ca-cert"):
                command += [f"--tls-{name}-file", str(self.certificate)]
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
def redis_server(folder: Path, certificate: Path | None = None) -> Iterator[RedisServer]:
    """Runs a server until the context ends."""
    (port,) = free_ports(1)
    server = RedisServer(folder, port, certificate=certificate)
    server.start()
    try:
        yield server
    finally:
        server.stop()
