"""A PostgreSQL server with logical decoding, for tests that follow a database."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import running

# Debian's package does not put the server on the path.
_FOLDERS = (*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/bin"))


def find_program(name: str) -> str | None:
    """Returns the path of a program of PostgreSQL, None if it is not installed."""
    return shutil.which(name) or next(
        (str(folder / name) for folder in _FOLDERS if (folder / name).exists()), None
    )


@dataclass(frozen=True)
class Postgres:
    """A server that listens on a socket in the folder."""

    folder: Path

    def run(self, statements: str) -> list[str]:
        """Runs SQL statements, each by itself. Returns the lines of their results."""
        command = [find_program("psql") or "psql", "-X", "-q", "-A", "-t"]
        command += ["-v", "ON_ERROR_STOP=1", "-h", str(self.folder), "-U", "test", "postgres"]
        done = subprocess.run(
            command, input=statements, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.splitlines()


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """Runs a server with an empty database until the context ends."""
    # A socket's path is short. PostgreSQL refuses to run as root.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    prefix: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    programs = {name: find_program(name) or name for name in ("initdb", "postgres", "pg_ctl")}
    data = str(folder / "data")
    try:
        options = ["-D", data, "-A", "trust", "-U", "test", "-E", "UTF8", "--locale=C", "-N"]
        subprocess.run([*prefix, programs["initdb"], *options], check=True, capture_output=True)
        settings = ["listen_addresses=", "wal_level=logical", "fsync=off", "timezone=UTC"]
        command = [*prefix, programs["postgres"], "-D", data, "-k", str(folder)]
        for setting in settings:
            command += ["-c", setting]
        server = Postgres(folder)

        def is_ready() -> bool:
            with contextlib.suppress(subprocess.SubprocessError):
                return server.run("SELECT 1") == ["1"]
            return False

        with running(command, Path(tempfile.mkdtemp(dir=folder)) / "log", is_ready):
            yield server
            stop = [*prefix, programs["pg_ctl"], "stop", "-D", data, "-m", "immediate"]
            subprocess.run(stop, check=True, capture_output=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
