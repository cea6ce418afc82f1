"""`sleeper run` in a process, and a Python exporter whose faults tests switch on by files."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from sleeper.instance import Instance
from tests.process_tree import children
from tests.wheels import make_wheel

WAIT_SECONDS_MAX = 60.0
COMMAND = (sys.executable, "-c", "from sleeper.cli.main import main; main()")
"""The command line, in a process."""

EXPORTER = '''
"""Appends each export to a file as a line of JSON, and fails as files of the folder tell it."""

import json
import os
import pathlib
import time


class ToFile:
    def __init__(self, options):
        self.folder = pathlib.Path(options["folder"])
        self.file = os.open(self.folder / "received", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def export(self, batch):
        if (self.folder / "away").exists():
            raise ConnectionError("the receiver is unavailable")
        if (self.folder / "hang").exists():
            time.sleep(3600)
        for each in batch:
            if (self.folder / f"refuse {each.key}").exists():
                raise ValueError(f"{each.key} is refused")
        for number, each in enumerate(batch):
            self.die("die before " + str(number))
            if (self.folder / f"always die with {each.key}").exists():
                os._exit(9)
            line = {"key": each.key, "value": each.value, "sequence": each.sequence}
            line |= {"bucket": batch.bucket, "process": os.getpid(), "time": time.time()}
            os.write(self.file, json.dumps(line).encode() + b"\\n")
        self.die("die at the end")

    def die(self, name):
        try:
            (self.folder / name).unlink()
        except FileNotFoundError:
            return
        os._exit(9)

    def close(self):
        os.close(self.file)
'''


@dataclass
class Receiver:
    """The receiver of a queue: a folder with the file of what it received."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()

    @property
    def options(self) -> dict[str, str]:
        """The options of the exporter."""
        return {"folder": str(self.folder)}

    def lines(self) -> list[dict[str, Any]]:
        """Returns the exports that it has received, in order."""
        path = self.folder / "received"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def exports(self) -> list[tuple[Any, Any, int]]:
        """Returns the key, the value and the sequence number of each."""
        return [(each["key"], each["value"], each["sequence"]) for each in self.lines()]

    def newest(self) -> dict[Any, Any]:
        """Returns the newest value of each key, without keys that went."""
        found: dict[Any, tuple[int, Any]] = {}
        for key, value, sequence in self.exports():
            if sequence > found.get(key, (-1, None))[0]:
                found[key] = (sequence, value)
        return {key: value for key, (_, value) in found.items() if value is not None}

    def set(self, fault: str) -> None:
        """Switches a fault on."""
        (self.folder / fault).touch()

    def clear(self, fault: str) -> None:
        """Switches a fault off."""
        (self.folder / fault).unlink(missing_ok=True)

    def has(self, fault: str) -> bool:
        """Returns whether the fault is still on: a process that dies of one removes it."""
        return (self.folder / fault).exists()


def add_exporter(instance: Instance, folder: Path) -> None:
    """Adds a wheel with the exporter `python:ToFile`."""
    wheel = make_wheel(
        folder,
        "file_exporter",
        {"file_exporter": EXPORTER},
        exporters={"ToFile": "file_exporter:ToFile"},
    )
    instance.code.registry.add([wheel])


@dataclass
class Run:
    """A `sleeper run` of an instance."""

    process: subprocess.Popen[bytes]

    def exporters(self) -> list[psutil.Process]:
        """Returns its processes that export: at most one that is alive."""
        found = children(self.process.pid)
        return [
            each for each in found if "export_queue.worker_process" in " ".join(_command_line(each))
        ]

    def kill_exporter(self) -> None:
        """Kills the process that exports, as soon as there is one."""
        wait_until(lambda: bool(self.exporters()))
        for each in self.exporters():
            each.kill()


@contextmanager
def running(instance: Instance, workers: int = 1) -> Iterator[Run]:
    """Runs the instance's background work, and ends it."""
    arguments = ("--instance", instance.where, "run", "--workers", str(workers))
    process = subprocess.Popen([*COMMAND, *arguments])
    try:
        yield Run(process)
    finally:
        process.terminate()
        process.wait()


def wait_until(condition: Callable[[], bool], seconds: float = WAIT_SECONDS_MAX) -> None:
    """Waits for a condition. AssertionError if it does not become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.05)


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
