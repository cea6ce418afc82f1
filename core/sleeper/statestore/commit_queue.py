"""Commits that processes of one machine hand to the process that holds a table's write lock.

The *leader* is the process that holds the lock. A *sender* finds the lock taken, writes its
transactions to a named pipe, and waits for the outcomes on a socket. The leader
commits the transactions of all senders as one entry of the log, so that one synchronisation of the
disk serves all of them, and then sends each its outcomes.

The pipe only saves synchronisations. Whatever is lost with a dead leader is sent again or committed
by its sender under the lock, and a transaction that was committed before is then already done. A
leader that cannot commit a request returns it, and the sender commits it alone, to get its own
error. The pipe keeps messages in the order in which they were sent, and a leader commits them
before its own, so a repeated message never follows a later one of its sender.

The pipe is in a folder of temporary files that only its user may read, and it is named after the
lock's file. So processes of other users or in other containers, and systems without named pipes or
abstract sockets (Linux has them), commit alone.
"""

import json
import logging
import os
import select
import socket
import struct
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from sleeper.errors import UnavailableError
from sleeper.statestore.transactions.transaction import Outcome, Status
from sleeper.statestore.write_lock import LOCK_SECONDS_MAX
from sleeper.temporary import temporary_folder

logger = logging.getLogger(__name__)

# More than a pipe holds. A write of at most PIPE_BUF bytes is atomic.
_PIPE_BYTES_MAX = 1024**2
_ANSWER_BYTES_MAX = 256 * 1024
# The sender's process, user and group.
_CREDENTIALS = "3i"
_CREDENTIALS_SPACE = socket.CMSG_SPACE(struct.calcsize(_CREDENTIALS))

Lines = Sequence[str]


class Returned(Enum):
    """How a leader returns a request. AGAIN: the leader stopped. ALONE: it cannot commit it."""

    AGAIN = "again"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Submission:
    """Requests of one sender: for each whether its transactions are applied together, and these.

    The sender waits until `until`, a time of the machine's monotonic clock.
    """

    sender: str
    id: str
    until: float
    requests: tuple[tuple[bool, tuple[str, ...]], ...]


Answer = list[list[Outcome]] | Returned
"""The outcomes of each request of a submission, or why there are none."""


class CommitQueue:
    """The pipe of one lock and the socket of this process. Not safe for threads."""

    def __init__(self, lock_path: Path) -> None:
        self._lock_path = lock_path
        self._path: str | None = None
        self._pipe: int | None = None
        self._socket: socket.socket | None = None
        self._address = f"sleeper-{uuid.uuid4().hex}"

    def send(self, submission_id: str, requests: Sequence[tuple[bool, Lines]]) -> bool:
        """Sends a submission. Returns False if it cannot be sent, such as a large one."""
        until = time.monotonic() + LOCK_SECONDS_MAX
        content = [self._address, submission_id, until, requests]
        message = json.dumps(content, separators=(",", ":")).encode() + b"\n"
        if len(message) > select.PIPE_BUF:
            return False
        try:
            self._open_socket()
            os.write(self._open_pipe(creates=True), message)
        except OSError:  # a full pipe, or no pipes
            return False
        return True

    def receive(self, submission_id: str, seconds: float) -> Answer | None:
        """Returns the answer to a submission, None if there is none within the time."""
        if self._socket is None:
            return None
        end = time.monotonic() + seconds
        while True:
            # With a timeout of 0 it does not wait.
            self._socket.settimeout(max(end - time.monotonic(), 0))
            try:
                message, details, _, _ = self._socket.recvmsg(_ANSWER_BYTES_MAX, _CREDENTIALS_SPACE)
            except (TimeoutError, BlockingIOError):
                return None
            answer = _parse_answer(message, submission_id) if _is_own_user(details) else None
            if answer is not None:
                return answer

    def take(self) -> list[Submission]:
        """Takes all submissions out of the pipe. Drops this process's own and overdue ones."""
        try:
            content = os.read(self._open_pipe(), _PIPE_BYTES_MAX)
        except OSError:  # empty, or no pipe
            return []
        now = time.monotonic()
        submissions = map(_parse_submission, content.splitlines())
        return [
            submission
            for submission in submissions
            if submission is not None
            and submission.sender != self._address
            and submission.until > now
        ]

    def wait(self, milliseconds: int) -> None:
        """Waits until there is a submission in the pipe, or the time is over."""
        with suppress(OSError):
            _is_readable(self._open_pipe(), milliseconds)

    def answer(self, submission: Submission, answer: Answer) -> None:
        """Sends the answer. A sender that does not get it sends its submission again."""
        content: list[Any] = [submission.id]
        if isinstance(answer, Returned):
            content.append(answer.value)
        else:
            content.append(
                [[[o.status.value, o.number, o.reason] for o in each] for each in answer]
            )
        message = json.dumps(content, separators=(",", ":")).encode()
        with suppress(OSError):  # the sender is dead, or the answer is large
            self._open_socket().sendto(message, socket.MSG_DONTWAIT, f"\0{submission.sender}")

    def close(self) -> None:
        """Closes pipe and socket, and removes the pipe. Later uses open them again."""
        if self._pipe is not None:
            # Submissions of others stay for the next leader.
            is_empty = not _is_readable(self._pipe)
            os.close(self._pipe)
            self._pipe = None
            with suppress(OSError):  # another process has removed it
                if is_empty:
                    os.unlink(self._find_path())
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self.close()

    def _open_pipe(self, creates: bool = False) -> int:
        """Returns the pipe's descriptor. OSError if there is none."""
        if self._pipe is not None and not os.fstat(self._pipe).st_nlink:
            # Another process or the system has removed it, so others would open another one.
            os.close(self._pipe)
            self._pipe = None
        if self._pipe is None:
            path = self._find_path()
            if creates:
                self._make_pipe(path)
            elif not os.access(path, os.F_OK):
                raise FileNotFoundError(path)
            self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
        return self._pipe

    def _make_pipe(self, path: str) -> None:
        try:
            os.mkfifo(path, 0o600)
        except FileExistsError:
            pass
        except FileNotFoundError:
            # The folder was removed, so the next call makes it again.
            self._path = None
            raise

    def _find_path(self) -> str:
        """Returns the path of the pipe. OSError if the user can have none."""
        if self._path is None:
            lock = self._lock_path.stat()
            name = f"{lock.st_dev:x}-{lock.st_ino:x}-{lock.st_mtime_ns:x}"
            self._path = str(_make_folder() / name)
        return self._path

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                opened.bind(f"\0{self._address}")
                # The kernel tells who sent a message, because every user may send to the name.
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            except OSError:
                opened.close()
                raise
            self._socket = opened
        return self._socket


def _is_readable(pipe: int, milliseconds: int = 0) -> bool:
    """Returns whether a pipe has content, or gets some within the time."""
    # Unlike `select`, it takes descriptors of 1024 or more.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(milliseconds))


def _is_own_user(details: Sequence[tuple[int, int, bytes]]) -> bool:
    """Returns whether a message comes from a process of this user."""
    for level, kind, content in details:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            _, user, _ = struct.unpack(_CREDENTIALS, content[: struct.calcsize(_CREDENTIALS)])
            return bool(user == os.getuid())
    return False


def _make_folder() -> Path:
    """Returns the folder of the user's pipes. OSError if it is not the user's alone."""
    try:
        return temporary_folder("commits")
    except UnavailableError as error:
        raise PermissionError(str(error)) from error


def _parse_submission(message: bytes) -> Submission | None:
    try:
        sender, submission_id, until, requests = json.loads(message)
        parsed = tuple((bool(together), tuple(lines)) for together, lines in requests)
        return Submission(sender, submission_id, until, parsed)
    except (ValueError, TypeError, RecursionError) as error:
        logger.warning("commit of another process cannot be read: %r", error)
        return None


def _parse_answer(message: bytes, submission_id: str) -> Answer | None:
    """Returns the answer of that submission, None for that of an earlier one."""
    try:
        answered, content = json.loads(message)
        if answered != submission_id:
            return None
        if isinstance(content, str):
            return Returned(content)
        return [[Outcome(Status(s), n, reason) for s, n, reason in each] for each in content]
    except (ValueError, TypeError, RecursionError) as error:
        logger.warning("answer of another process cannot be read: %r", error)
        return None
