"""A PostgreSQL server with logical decoding, for tests that read or follow a database."""

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.servers.certificates import make_certificate
from tests.servers.process import answers, find_program, free_ports, running, server_folder

TLS_NAME = "db.test"
"""A name of the server that no resolver knows."""

_CERTIFICATE = "certificate.pem"
# Debian's package does not put the server on the path.
_FOLDERS = (*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/bin"))


def find_postgres(name: str) -> str | None:
    """Returns the path of a program of PostgreSQL, None if it is not installed."""
    return find_program(name, _FOLDERS)


@dataclass(frozen=True)
class Postgres:
    """A database of a server, which listens on a socket in the folder and on a port.

    Connections to the port need the password. The server has a certificate, signed by itself, of
    127.0.0.1 and of `TLS_NAME`.
    """

    folder: Path
    port: int
    name: str = "postgres"
    user: str = "test"
    password: str = "test-password"

    @property
    def certificate(self) -> Path:
        """A file with the certificate of the server."""
        return self.folder / _CERTIFICATE

    @property
    def url(self) -> str:
        """The URL, without the password."""
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{self.name}"

    def run(self, statements: str) -> list[str]:
        """Runs SQL statements, each by itself. Returns the lines of their results."""
        command = [find_postgres("psql") or "psql", "-X", "-q", "-A", "-t"]
        command += ["-v", "ON_ERROR_STOP=1", "-h", str(self.folder), "-p", str(self.port)]
        command += ["-U", self.user, self.name]
        done = subprocess.run(
            command, input=statements, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.splitlines()

    def make_database(self) -> "Postgres":
        """Creates an empty database, for one test alone."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name}")
        return replace(self, name=name)


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Runs a server with an empty database until the context ends."""
    programs = {name: find_postgres(name) or name for name in ("initdb", "postgres", "pg_ctl")}
    with server_folder("postgres") as (folder, prefix):
        data = str(folder / "data")
        (port,) = free_ports(1)
        server = Postgres(folder, port)
        password = folder / "password"
        password.write_text(server.password)
        password.chmod(0o444)
        options = ["-D", data, "-U", server.user, "-E", "UTF8", "--locale=C", "-N"]
        options += ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}"]
        subprocess.run([*prefix, programs["initdb"], *options], check=True, capture_output=True)
        settings = ["listen_addresses=127.0.0.1", f"port={port}", "wal_level=logical"]
        settings += ["fsync=off", "timezone=UTC", "ssl=on", f"ssl_cert_file={server.certificate}"]
        settings += [f"ssl_key_file={_make_key(server)}"]
        command = [*prefix, programs["postgres"], "-D", data, "-k", str(folder)]
        for setting in settings:
            command += ["-c", setting]
        with running(command, folder / "log", lambda: answers(server.run)):
            yield server
            stop = [*prefix, programs["pg_ctl"], "stop", "-D", data, "-m", "immediate"]
            subprocess.run(stop, check=True, capture_output=True)


def _make_key(server: Postgres) -> Path:
    """Writes the certificate, and returns a file of its key that the server accepts."""
    private = make_certificate(server.folder / "private.pem", TLS_NAME)
    certificate = private.read_text().partition("-----BEGIN PRIVATE KEY-----")[0]
    server.certificate.write_text(certificate)
    server.certificate.chmod(0o644)
    private.chmod(0o600)
    if os.geteuid() == 0:
        shutil.chown(private, server.folder.owner(), server.folder.group())
    return private
