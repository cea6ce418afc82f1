"""A MariaDB server, for tests that read a database."""

import contextlib
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.servers.process import answers, find_program, free_ports, running, server_folder

_FOLDERS = (Path("/usr/sbin"), Path("/usr/bin"))
_SETTINGS = (
    "bind-address=127.0.0.1",
    "character-set-server=utf8mb4",
    "innodb-buffer-pool-size=16M",
    "innodb-doublewrite=0",
    "innodb-flush-log-at-trx-commit=0",
    "innodb-log-file-size=8M",
    "skip-log-bin",
    "skip-name-resolve",
)


def find_mariadb(name: str) -> str | None:
    """Returns the path of a program of MariaDB, None if it is not installed."""
    return find_program(name, _FOLDERS)


@dataclass(frozen=True)
class MariaDB:
    """A database of a server. Connections to the port need the user and the password."""

    folder: Path
    port: int
    name: str = "mysql"
    user: str = "test"
    password: str = "test-password"

    @property
    def url(self) -> str:
        """The URL, without the password."""
        return f"mariadb://{self.user}@127.0.0.1:{self.port}/{self.name}"

    def run(self, statements: str) -> list[str]:
        """Runs SQL statements, each by itself. Returns the lines of their results."""
        command = [find_mariadb("mariadb") or "mariadb", "--no-defaults", "-N", "-B"]
        command += ["--default-character-set=utf8mb4"]
        command += ["-S", str(self.folder / "socket"), "-u", "root", self.name]
        done = subprocess.run(
            command, input=statements, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.splitlines()

    def make_database(self) -> "MariaDB":
        """Creates an empty database, for one test alone."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name}; GRANT ALL ON {name}.* TO '{self.user}'@'%';")
        return replace(self, name=name)


@contextlib.contextmanager
def mariadb() -> Iterator[MariaDB]:
    """Runs a server until the context ends."""
    with server_folder("mysql") as (folder, prefix):
        data = folder / "data"
        install = find_mariadb("mariadb-install-db") or "mariadb-install-db"
        options = ["--no-defaults", f"--datadir={data}", "--skip-test-db"]
        options += ["--auth-root-authentication-method=normal", *(f"--{s}" for s in _SETTINGS)]
        subprocess.run([*prefix, install, *options], check=True, capture_output=True, cwd=folder)
        (port,) = free_ports(1)
        server = MariaDB(folder, port)
        command = [*prefix, find_mariadb("mariadbd") or "mariadbd", "--no-defaults"]
        command += [f"--datadir={data}", f"--socket={folder / 'socket'}", f"--port={port}"]
        command += [f"--pid-file={folder / 'pid'}", *(f"--{s}" for s in _SETTINGS)]
        with running(command, folder / "log", lambda: answers(server.run)):
            server.run(f"CREATE USER '{server.user}'@'%' IDENTIFIED BY '{server.password}';")
            yield server
