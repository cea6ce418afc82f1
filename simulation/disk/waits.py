"""Waits of the product in virtual time, and the memory of its processes.

The product waits for other processes in the system: for a lock, a pipe, a socket. In the simulated
world, where these are threads of one process and one of them runs at a time, it polls instead. The
waits keep their timeouts, but not the order of those who wait for a lock.

The product remembers folders that are durable in a variable of a module, which each simulated
process must have for itself.
"""

import os
from collections.abc import Callable, Hashable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from simulation.disk.hooks import DiskHooks
from sleeper.statestore import commit_queue
from sleeper.statestore.commit_queue import Answer, CommitQueue
from sleeper.statestore.write_lock import LOCK_SECONDS_MAX, WriteLock, locked_too_long
from sleeper.storage import disk as storage

_POLL_SECONDS_FIRST = 0.002
_POLL_SECONDS_MAX = 0.1


def install_waits(hooks: DiskHooks) -> Callable[[], None]:
    """Makes the product wait in virtual time. Returns a function that restores it."""
    stack = ExitStack()

    def replace(owner: Any, name: str, value: Any) -> None:
        stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    receive_now, make_queue = CommitQueue.receive, CommitQueue.__init__

    def acquire(lock: WriteLock) -> None:
        if not _is_true_within(hooks, LOCK_SECONDS_MAX, lock.try_acquire):
            raise locked_too_long(lock.path)

    def receive(queue: CommitQueue, submission_id: str, seconds: float) -> Answer | None:
        answers: list[Answer] = []

        def has_answer() -> bool:
            answer = receive_now(queue, submission_id, 0)
            answers.extend([] if answer is None else [answer])
            return bool(answers)

        _is_true_within(hooks, seconds, has_answer)
        return answers[0] if answers else None

    def wait(queue: CommitQueue, milliseconds: int) -> None:
        with suppress(OSError):
            pipe = queue._open_pipe()
            _is_true_within(hooks, milliseconds / 1000, lambda: commit_queue._is_readable(pipe))

    def make(queue: CommitQueue, lock_path: Path) -> None:
        make_queue(queue, lock_path)
        # Another process of this machine may simulate the same seed, and so have the same name.
        queue._address += f"-{os.getpid()}"

    replace(WriteLock, "acquire", acquire)
    replace(CommitQueue, "receive", receive)
    replace(CommitQueue, "wait", wait)
    replace(CommitQueue, "__init__", make)
    replace(storage, "_durable", _ProcessInodes(hooks.process))
    return stack.close


def _is_true_within(hooks: DiskHooks, seconds: float, is_true: Callable[[], bool]) -> bool:
    """Polls until a condition is true or the time is over."""
    end_ms = hooks.now_ms() + seconds * 1000
    poll_seconds = _POLL_SECONDS_FIRST
    while not is_true():
        left_ms = end_ms - hooks.now_ms()
        if left_ms <= 0:
            return False
        hooks.sleep(min(poll_seconds, max(left_ms, 1) / 1000))
        poll_seconds = min(2 * poll_seconds, _POLL_SECONDS_MAX)
    return True


class _ProcessInodes:
    """The inodes of paths that each process has recorded."""

    def __init__(self, process: Callable[[], Hashable]) -> None:
        self._process = process
        self._inodes: dict[Hashable, dict[str, int]] = {}

    def _own(self) -> dict[str, int]:
        return self._inodes.setdefault(self._process(), {})

    def get(self, path: str) -> int | None:
        return self._own().get(path)

    def pop(self, path: str, default: None) -> int | None:
        return self._own().pop(path, default)

    def clear(self) -> None:
        self._own().clear()

    def __setitem__(self, path: str, inode: int) -> None:
        self._own()[path] = inode

    def __len__(self) -> int:
        return len(self._own())
