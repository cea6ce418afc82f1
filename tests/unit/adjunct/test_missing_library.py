"""Stores in a process without the library of those on disk."""

import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import sys

sys.modules["rocksdict"] = None
from sleeper.adjunct import AdjunctStore
from sleeper.errors import InvalidRequestError

input, folder = sys.argv[1:]
with AdjunctStore.open("a", input, folder, type="memory", refresh_seconds=None) as store:
    print(dict(store.all()))
try:
    AdjunctStore.open("b", input, folder, refresh_seconds=None)
except InvalidRequestError as error:
    print(error)
"""


@pytest.mark.slow
def test_stores_in_memory_need_no_library_and_others_name_the_extra(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"k": 1, "v": 2}\n')
    command = [
        sys.executable,
        "-c",
        _SCRIPT,
        f"files:{tmp_path}/*.jsonl?key=k",
        str(tmp_path / "stores"),
    ]
    (tmp_path / "_SUCCESS").touch()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    memory, disk = done.stdout.splitlines()
    assert memory == "{1: {'v': 2}}"
    assert disk.startswith("store 'b' of type rocksdb: ")
    assert disk.endswith("(expected the extra sleeper-store[adjunct], or type memory)")
