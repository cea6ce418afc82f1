"""Starts a server as a process, waits until it answers, and ends it."""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.folders import VARIABLE as FOLDERS_VARIABLE

# Below the ports that Linux gives to outgoing connections, one of which could otherwise take a port
# before its server does.
_PORTS = range(10_000, 32_000)
_random = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Returns free ports of the loopback interface."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            port = _random.choice(_PORTS)
            entry = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                entry.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def find_program(name: str, folders: Iterable[Path]) -> str | None:
    """Returns the path of a program on the path or in a folder, None if it is not installed."""
    return shutil.which(name) or next(
        (str(folder / name) for folder in folders if (folder / name).exists()), None
    )


@contextlib.contextmanager
def server_folder(user: str) -> Iterator[tuple[Path, list[str]]]:
    """Yields a new folder of a database server, and the words before its programs' commands.

    The path of the folder is short enough for a socket. The servers refuse to run as root, so
    root runs them as that user, who owns the folder. Deletes the folder at the end.
    """
    root = os.environ.get(FOLDERS_VARIABLE, "/tmp")
    folder = Path(tempfile.mkdtemp(prefix=f"{user}-", dir=root))
    prefix: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, user, user)
        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    try:
        yield folder, prefix
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def answers(run: Callable[[str], list[str]]) -> bool:
    """Returns whether a database server runs a statement."""
    with contextlib.suppress(subprocess.SubprocessError):
        return run("SELECT 1") == ["1"]
    return False


@contextlib.contextmanager
def running(
    command: Sequence[str],
    log: Path,
    is_ready: Callable[[], bool],
    timeout_seconds: float = 60,
) -> Iterator["subprocess.Popen[bytes]"]:
    """The server runs until the context ends. RuntimeError with its log if it does not start.

    Yields its process, which may be killed.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{command[0]} did not start: {last}")
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()
