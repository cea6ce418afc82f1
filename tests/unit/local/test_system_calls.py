"""The order of system calls, by strace: data files are on the disk before their commit.

Unlike tests that replace functions of `os`, this one sees the calls of SQLite and of the engine.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.child_processes import python_path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

# Enough rows for the engine to write the files.
SCRIPT = """
import os, sys
import pyarrow as pa
import sleeper
from tests.system.bad_days import run_all

schema = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
properties = {"sleeper.engine.threads": "1"}
with sleeper.create_instance(sys.argv[1] + "/instance", properties) as instance:
    table = instance.create_table("rows", schema)
    for count in (100, 100, 30_000):
        table.ingest(pa.table({"k": range(count), "v": ["value"] * count}))
        os.write(1, b"acknowledged")
    table.compact(full=True)
    run_all(instance._ports)
    os.write(1, b"acknowledged")
"""
CALLS = "openat,mkdir,write,pwrite64,writev,fsync,fdatasync,rename,linkat,link,ftruncate"
CALL = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)(?:<(.*?)>)?")
DESCRIPTOR = re.compile(r"\d+<(/[^>]*)>")
PATHS = re.compile(r'"([^"]*)"')


@dataclass
class Disk:
    """What a power failure could take at each moment: contents of files, and names in folders."""

    top: str
    contents: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    commits: int = 0
    acknowledged: int = 0
    data_files: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def apply(self, call: str, arguments: str, result: str | None) -> None:
        """Applies a call that succeeded."""
        opened = DESCRIPTOR.match(arguments)
        path = opened[1] if opened else ""
        if call in ("fsync", "fdatasync"):
            self.contents.discard(path)
            self.names = {name for name in self.names if name.rpartition("/")[0] != path}
        elif call == "openat" and "O_CREAT" in arguments and result:
            self.create(result)
        elif call == "mkdir":
            self.create(PATHS.findall(arguments)[0])
        elif call in ("rename", "link", "linkat"):
            old, new = PATHS.findall(arguments)
            if old in self.contents:
                self.contents.add(new)
            self.contents.discard(old)
            self.names.discard(old)
            self.create(new)
        elif path == "/dev/null" and "acknowledged" in arguments:
            self.acknowledged += 1
            self.check("an acknowledgement", self.at_risk + self.unsynced_log)
        elif path.startswith(self.top):
            self.write(path)

    def create(self, path: str) -> None:
        if path.startswith(self.top):
            self.names.add(path)

    def write(self, path: str) -> None:
        self.contents.add(path)
        if "/data/" in path:
            self.data_files.add(path)
        if path.endswith("/state.db-wal"):
            self.commits += 1
            self.check("a commit", self.at_risk)

    @property
    def at_risk(self) -> list[str]:
        """The data files, and folders of them, that are not on the disk."""
        kept = re.compile(re.escape(self.top) + r"/[0-9a-f]{8}(/data(/.*)?)?")
        return [each for each in (*self.contents, *self.names) if kept.fullmatch(each)]

    @property
    def unsynced_log(self) -> list[str]:
        return [each for each in self.contents if each.endswith("/state.db-wal")]

    def check(self, moment: str, at_risk: list[str]) -> None:
        if at_risk:
            self.faults.append(f"at {moment}: {', '.join(sorted(at_risk))}")


def test_files_are_on_the_disk_before_their_commit_and_commits_before_their_acknowledgement(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "trace"
    command = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "20", "-o", str(trace)]
    command += ["-e", f"trace={CALLS}", sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    disk = Disk(str(tmp_path / "instance"))
    for call, arguments, result in list_calls(trace.read_text()):
        disk.apply(call, arguments, result)
    assert disk.faults == []
    assert disk.acknowledged == 4
    assert disk.commits >= 5
    kinds = {Path(each.partition("#")[0]).suffix for each in disk.data_files}
    assert kinds == {".parquet", ".filter", ".sketches", ".checksum"}


def list_calls(trace: str) -> list[tuple[str, str, str | None]]:
    """Returns the calls that succeeded, with the path of the descriptor that each returned.

    A call that another thread interrupted counts where it ended.
    """
    calls, started = [], {}
    for line in trace.splitlines():
        thread, _, text = line.partition(" ")
        text = text.strip()
        if text.endswith("<unfinished ...>"):
            started[thread] = text.removesuffix("<unfinished ...>")
            continue
        if text.startswith("<... "):
            text = started.pop(thread, "") + text.partition("resumed>")[2]
        found = CALL.match(text)
        if found and int(found[3]) >= 0:
            calls.append((found[1], found[2], found[4]))
    return calls
