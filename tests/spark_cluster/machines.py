"""Machines of a test: namespaces of Linux, joined by a bridge.

A machine has a network, a host name, processes and mounts of its own, and the files of this one
except the repository. The kernel deletes the namespaces, with their links and processes, when
their first process ends, which it does with the process of the test at the latest.
"""

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.process_tree import children

ROOT = Path(__file__).parents[2]
"""The repository, of which machines see the virtual environment only."""

_PROGRAMS = ("ip", "mount", "nsenter", "setpriv", "unshare")
_FIRST = (
    *("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--mount", "--pid"),
    *("--mount-proc", "--fork", "--kill-child", "sleep", "infinity"),
)
_random = random.SystemRandom()


class NoMachinesError(Exception):
    """This process may not make namespaces."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its host name, its address, and the id of its first process."""

    name: str
    address: str
    pid: int

    def command(self, *words: str) -> list[str]:
        """Returns the command that runs another one on this machine."""
        target = ("nsenter", "--target", str(self.pid))
        return [*target, "--net", "--uts", "--mount", "--pid", *words]

    def run(self, script: str) -> str:
        """Returns the output of a script of the shell."""
        command = self.command("sh", "-ec", script)
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@dataclass(frozen=True, slots=True)
class Network:
    """The machines, and the address by which they reach this one."""

    address: str
    machines: tuple[Machine, ...]


@contextlib.contextmanager
def joined_machines(names: Sequence[str], own_name: str, folder: Path) -> Iterator[Network]:
    """Yields machines with these names, with their files in the folder.

    They know this machine by its own name. NoMachinesError without the permission to make them, or
    without a program for it.
    """
    _check_programs()
    net = f"10.{_random.randrange(128, 256)}.{_random.randrange(256)}"
    with contextlib.ExitStack() as stack:
        machines = [
            Machine(name, f"{net}.{number}", stack.enter_context(_first_process()))
            for number, name in enumerate(names, 2)
        ]
        network = Network(f"{net}.1", tuple(machines))
        stack.enter_context(_joined(network))
        lines = [f"{each.address} {each.name}" for each in machines]
        _write_hosts(folder, [*lines, f"{network.address} {own_name}"])
        _prepare(machines, folder)
        yield network


def _check_programs() -> None:
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        raise NoMachinesError(f"namespaces need the programs {', '.join(missing)}")
    if os.geteuid() != 0:
        raise NoMachinesError("namespaces need root")


@contextlib.contextmanager
def _first_process() -> Iterator[int]:
    """Yields the id of the first process of new namespaces, which end with it."""
    holder = subprocess.Popen(_FIRST, stderr=subprocess.PIPE, text=True)
    try:
        while not (first := [p for p in children(holder.pid) if p.name() == "sleep"]):
            if holder.poll() is not None:
                assert holder.stderr is not None
                raise NoMachinesError(f"no namespaces: {holder.stderr.read().strip()}")
        yield first[0].pid
    finally:
        holder.kill()
        holder.communicate()


@contextlib.contextmanager
def _joined(network: Network) -> Iterator[None]:
    """Joins this machine and all machines by a bridge of the first one."""
    first, *others = network.machines
    own = f"sleeper{os.getpid()}"
    _ip(None, f"link add {own} type veth peer name outer netns {first.pid}")
    try:
        _ip(None, f"address add {network.address}/24 dev {own}")
        _ip(None, f"link set {own} up")
        _ip(first, "link add eth0 type bridge")
        _ip(first, "link set outer master eth0 up")
        for number, other in enumerate(others):
            _ip(first, f"link add port{number} type veth peer name eth0 netns {other.pid}")
            _ip(first, f"link set port{number} master eth0 up")
        _address(network.machines)
        yield
    finally:
        # The kernel would do so some time after the end of the first process.
        _ip(None, f"link delete {own}")


def _address(machines: Sequence[Machine]) -> None:
    for machine in machines:
        _ip(machine, f"address add {machine.address}/24 dev eth0")
        _ip(machine, "link set lo up")
        _ip(machine, "link set eth0 up")


def _ip(machine: Machine | None, arguments: str) -> None:
    # Ids of processes are those of this machine.
    prefix = [] if machine is None else ["nsenter", "--target", str(machine.pid), "--net"]
    try:
        subprocess.run(
            [*prefix, "ip", *arguments.split()], check=True, capture_output=True, text=True
        )
    except subprocess.CalledProcessError as error:
        raise NoMachinesError(f"ip {arguments}: {error.stderr.strip()}") from error


def _write_hosts(folder: Path, lines: Sequence[str]) -> None:
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))


def _prepare(machines: Sequence[Machine], folder: Path) -> None:
    """Gives all machines their names, and hides the repository."""
    (folder / "prefix").mkdir()
    kept, prefix = folder / "prefix", Path(sys.prefix)
    for machine in machines:
        script = f"hostname {machine.name}; mount --bind {folder / 'hosts'} /etc/hosts; "
        script += f"mount --bind {prefix} {kept}; mount -t tmpfs hidden {ROOT}; "
        script += f"mkdir -p {prefix}; mount --bind {kept} {prefix}; umount {kept}"
        machine.run(script)
