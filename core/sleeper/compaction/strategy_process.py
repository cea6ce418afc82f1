"""The strategy of a table, in a process of its own if it comes from a wheel.

Files are selected while a table's state is open, by a process that works for other tables too. A
strategy that never returns, or ends its process, must not stop that process, and Python cannot end
a call in a thread. So a child process imports and calls the strategy. It serves one creation of
jobs, and is killed if an answer takes too long.

The child reads a line of JSON for the strategy, then one for each leaf, which it answers with a
line: the groups as paths, or an error. It starts with the first leaf that has files to select.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from sleeper.compaction.strategy import (
    FileSize,
    Selector,
    Strategy,
    StrategySettings,
    size_ratio_groups,
    whole_leaf_groups,
)
from sleeper.errors import SleeperError, UserCodeError
from sleeper.properties.table import (
    COMPACTION_FILES_BATCH_SIZE,
    COMPACTION_STRATEGY,
    COMPACTION_STRATEGY_TIMEOUT_SECONDS,
    COST_FILES_MAX,
    SIZE_RATIO,
    SIZE_RATIO_JOBS_MAX,
)
from sleeper.properties.values import TableProperties
from sleeper.user_code.loading import UserCode, WheelObject, import_object
from sleeper.user_code.wheel import CodeKind, EntryPoint


@contextmanager
def open_selector(
    properties: TableProperties, code: UserCode, full: bool = False
) -> Iterator[Selector]:
    """Yields the table's strategy, or the one for a full compaction.

    InvalidRequestError if the name is not registered.
    """
    name = properties.get(COMPACTION_STRATEGY)
    wheel_object = None if full else code.locate(CodeKind.STRATEGY, name)
    if wheel_object is not None:
        own = OwnStrategy(wheel_object, properties.get(COMPACTION_STRATEGY_TIMEOUT_SECONDS))
        try:
            yield _make_selector(name, own, properties)
        finally:
            own.close()
        return
    strategy = whole_leaf_groups if full else code.load(CodeKind.STRATEGY, name)
    yield _make_selector(name, strategy, properties)


def _make_selector(name: str, strategy: Strategy, properties: TableProperties) -> Selector:
    settings = StrategySettings(
        properties.get(COMPACTION_FILES_BATCH_SIZE),
        properties.get(SIZE_RATIO),
        properties.get(SIZE_RATIO_JOBS_MAX) if strategy is size_ratio_groups else None,
        properties.get(COST_FILES_MAX),
    )
    return Selector(name, strategy, settings)


class OwnStrategy:
    """Calls a strategy in a child process. `seconds` limits an answer, with its import."""

    def __init__(self, wheel_object: WheelObject, seconds: int) -> None:
        self._object = wheel_object
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(
        self, files: Sequence[FileSize], settings: StrategySettings
    ) -> list[list[FileSize]]:
        """Returns the groups. UserCodeError, without the name of the strategy, if it fails."""
        if self._process is None:
            self._process = self._start()
        process = self._process
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            _kill(process)

        timer = threading.Timer(self._seconds, end)
        timer.start()
        try:
            answer = _ask(process, _request(files, settings))
        finally:
            timer.cancel()
        if answer is None:
            _kill(process)  # it may have closed its output only
            reason = f"its process ended with status {process.wait()}"
            if is_late.is_set():
                limit = f"{COMPACTION_STRATEGY_TIMEOUT_SECONDS.name} is {self._seconds}"
                reason = f"no answer within {self._seconds} seconds ({limit})"
            raise UserCodeError(reason)
        if "error" in answer:
            raise UserCodeError(answer["error"])
        by_path = {file.path: file for file in files}
        return [
            [by_path.get(path) or FileSize(path, 0) for path in group] for group in answer["groups"]
        ]

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                _kill(process)
            process.communicate()

    def _start(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C does not reach it: the parent ends it.
            start_new_session=True,
        )
        point = self._object.point
        head = {
            "name": point.name,
            "module": point.module,
            "attribute": point.attribute,
            "file_name": self._object.file_name,
            "folder": str(self._object.folder),
            "seconds": self._seconds,
        }
        _send(process, head)
        return process


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kills the process, and those that it has forked, which keep its output open."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _request(files: Sequence[FileSize], settings: StrategySettings) -> dict[str, Any]:
    return {"files": [[each.path, each.rows] for each in files], "settings": asdict(settings)}


def _ask(process: "subprocess.Popen[bytes]", request: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the answer, None if the process ended before it."""
    _send(process, request)
    assert process.stdout is not None
    line = process.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def _send(process: "subprocess.Popen[bytes]", message: dict[str, Any]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # The process has ended, which `_ask` reports.
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers requests of the parent process until it closes them."""
    head = json.loads(requests.readline())
    point = EntryPoint(CodeKind.STRATEGY, head["name"], head["module"], head["attribute"])
    strategy: Strategy | None = None
    for line in requests:
        # The system ends the process of a call that outlives the parent.
        signal.setitimer(signal.ITIMER_REAL, 2 * head["seconds"])
        try:
            if strategy is None:
                strategy = import_object(
                    WheelObject(point, head["file_name"], Path(head["folder"]))
                )
            answer = _select(strategy, json.loads(line))
        except SleeperError as error:
            answer = {"error": str(error)}
        except BaseException as error:  # SystemExit too
            answer = {"error": f"{type(error).__name__}: {error}"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _select(strategy: Strategy, request: dict[str, Any]) -> dict[str, Any]:
    files = [FileSize(path, rows) for path, rows in request["files"]]
    groups = strategy(files, StrategySettings(**request["settings"]))
    return {"groups": [[str(file.path) for file in group] for group in groups]}


def _main() -> None:
    # What user code prints is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
