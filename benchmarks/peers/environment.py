"""The virtual environment of the peers: made on demand, from pins, apart from the product's.

The product's own could not hold them: some keep pyarrow down, and all are big. A peer that
cannot be installed is left out, with a word on standard error.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring import Measured, Task

_PINS = Path(__file__).with_name("requirements.txt")
_VERSION = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer by its name, its module here and its package on PyPI."""

    name: str
    module: str
    package: str


DUCKDB = Peer("DuckDB", "duckdb", "duckdb")
CHDB = Peer("chDB", "chdb", "chdb")
LANCE = Peer("Lance", "lance", "pylance")
DELTA = Peer("delta-rs", "delta", "deltalake")
SLATEDB = Peer("SlateDB", "slatedb", "slatedb")


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer that can run, by the Python that has it."""

    peer: Peer
    version: str
    python: Path

    @property
    def label(self) -> str:
        return f"{self.peer.name} {self.version}"

    def task(
        self,
        function: str,
        arguments: dict[str, Any],
        check: Callable[[Measured], None] = lambda _: None,
    ) -> Task:
        """One of the peer's jobs. If it fails, that is the peer's affair."""
        module = f"benchmarks.peers.{self.peer.module}"
        return Task(module, function, arguments, str(self.python), check, may_fail=True)


def installed(folder: Path, peers: Iterable[Peer]) -> list[Installed]:
    """Those of the peers that are in the environment, or could be put there."""
    home = folder / "peers"
    python = home / "bin" / "python"
    if not python.exists() and not _uv("venv", "--python", sys.executable, str(home)):
        return []
    results = []
    for peer in peers:
        version = _version(python, peer)
        if version != _pinned(peer):
            print(f"  installing {peer.name} for the peers", file=sys.stderr)
            with_pins = ("-c", str(_PINS), peer.package, "pyarrow")
            _uv("pip", "install", "--python", str(python), *with_pins)
            version = _version(python, peer)
        if version is None:
            print(f"  {peer.name} cannot be installed here and is left out", file=sys.stderr)
        else:
            results.append(Installed(peer, version, python))
    return results


def _pinned(peer: Peer) -> str:
    pins = (line.partition("==") for line in _PINS.read_text().splitlines())
    return next(version for package, _, version in pins if package == peer.package)


def _version(python: Path, peer: Peer) -> str | None:
    """Returns the installed version of the peer, if any."""
    process = subprocess.run(
        [python, "-c", _VERSION, peer.package], capture_output=True, text=True, check=False
    )
    return process.stdout.strip() if process.returncode == 0 else None


def _uv(*arguments: str) -> bool:
    """Returns whether the command succeeded. It prints the reason of a failure."""
    command = [sys.executable, "-m", "uv", *arguments, "--quiet"]
    return subprocess.run(command, check=False).returncode == 0
