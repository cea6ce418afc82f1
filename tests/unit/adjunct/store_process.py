"""A process that opens a shared store and answers lookups, for tests.

Each line of its input is a command in JSON, and each line of its output the answer.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from sleeper.adjunct import AdjunctStore


class StoreProcess:
    """The process, from the one that tests. A context manager, which kills it."""

    def __init__(self, **arguments: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.adjunct.store_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.begin(arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def begin(self, command: Any) -> None:
        """Sends a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command, default=os.fspath) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Waits for an answer. The first one is that of the opening."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def ask(self, command: str, *arguments: Any) -> Any:
        self.begin([command, *arguments])
        return self.answer()

    def kill(self) -> None:
        """Kills the process, as the kernel does that lacks memory. Idempotent."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def run() -> None:
    arguments = json.loads(sys.stdin.readline())
    arguments["path"] = Path(arguments["path"])
    try:
        store = AdjunctStore.open(**arguments)
    except Exception as error:
        answer(f"{type(error).__name__}: {error}")
        return
    answer("open")
    for line in sys.stdin:
        command, *rest = json.loads(line)
        if command == "all":
            answer(dict(store.all()))
        elif command == "filling":
            answer(store.status().is_filling)
        elif command == "refresh":
            answer(store.refresh())
        else:
            answer(store.get(*rest))


def answer(value: Any) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    run()
