"""Child processes that run SQL statements, and are killed when they exceed a limit."""

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import psutil
import pyarrow as pa

from sleeper import READ_ONLY_VARIABLE, errors
from sleeper.errors import InvalidRequestError, SleeperError, classify_error
from sleeper.query.result import TimeLimit
from sleeper.tracing import Span, span

_IDLE_MAX = 2
_CHECK_SECONDS = 0.1
# Time for a process to end a statement by itself, with a better reason, and release its holds.
_GRACE_SECONDS = 2.0
_READ_BYTES = 64 * 1024
_MIB = 1024**2


@dataclass(slots=True)
class SqlProcesses:
    """A pool of processes. Each runs one statement at a time, and idle ones are reused.

    A statement may use `memory_bytes` in addition to the memory of its process before it.
    `read_only` processes open the instance read-only.
    """

    where: str
    memory_bytes: int
    read_only: bool = False
    _idle: "list[SqlProcess]" = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: bool = False

    def open(self, statement: str, limit: TimeLimit, caller: str, as_of: Any = None) -> "SqlRows":
        """Starts a statement. Raises the errors of `open_sql`."""
        # The process does not export spans.
        with span("sql") as traced:
            rows = SqlRows(self, self._acquire(), traced)
            rows.start(statement, limit, caller, as_of)
            traced.keep()
        return rows

    def prestart(self) -> None:
        """Starts a process for the first statement."""
        self.release(SqlProcess(self.where, self.memory_bytes, self.read_only))

    def release(self, process: "SqlProcess") -> None:
        """Returns a process whose statement has ended to the pool."""
        process.finish()
        with self._lock:
            if process.is_alive and not self._is_closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(process)
                return
        process.kill()

    def close(self) -> None:
        """Kills idle processes; running ones are killed at the end of their statements."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()

    def _acquire(self) -> "SqlProcess":
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    return process
        return SqlProcess(self.where, self.memory_bytes, self.read_only)


class SqlProcess:
    """A process, and a thread that checks its limits even while nobody reads its rows."""

    def __init__(self, where: str, memory_bytes: int, read_only: bool) -> None:
        # A new POSIX session, so that Ctrl-C does not reach the process.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sleeper.serve.sql_child", where],
            env={**os.environ, READ_ONLY_VARIABLE: "1"} if read_only else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._memory_bytes = memory_bytes
        self._running: _Running | None = None
        self._failure: InvalidRequestError | None = None
        self._is_ready = False
        self._lock = threading.Lock()
        self._has_work = threading.Event()
        assert self._process.stdout is not None
        self.answers = io.BufferedReader(cast(io.FileIO, self._process.stdout), _READ_BYTES)
        threading.Thread(target=self._watch, name="statement-watch", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether the process can run a statement."""
        return self._failure is None and self._process.poll() is None

    @property
    def failure(self) -> InvalidRequestError | None:
        """The reason for which the process was killed."""
        return self._failure

    def start(self, request: dict[str, Any], limit: TimeLimit) -> None:
        """Sends a statement. The time limit begins after the start of the process."""
        if not self._is_ready:
            self._is_ready = self.answers.read(1) == b"+"
            if not self._is_ready:
                raise OSError("the process did not start")
        with self._lock:
            allowed = self._used_bytes() + self._memory_bytes
            self._running = _Running(replace(limit, start_seconds=time.monotonic()), allowed)
        self._has_work.set()
        self._send(request)

    def stop(self) -> None:
        """Requests the end of the statement. The process is killed soon if it continues."""
        with self._lock:
            self._request_stop()

    def finish(self) -> None:
        """Stops checking limits, after the end of a statement."""
        with self._lock:
            self._running = None
            self._has_work.clear()

    def kill(self) -> None:
        """Kills the process. Idempotent."""
        self._process.kill()
        self._process.wait()
        self._has_work.set()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def _watch(self) -> None:
        while self._process.poll() is None:
            self._has_work.wait()
            with self._lock:
                self._check()
            time.sleep(_CHECK_SECONDS)

    def _check(self) -> None:
        """Kills a process that exceeds a limit, so that its answer has no end."""
        running = self._running
        if running is None or self._failure is not None:
            return
        limit = running.limit
        if 0 < limit.seconds < time.monotonic() - limit.start_seconds - _GRACE_SECONDS:
            self._end(limit.reason())
        elif self._used_bytes() > running.allowed_bytes:
            self._end(
                f"the statement uses more memory than {self._memory_bytes // _MIB:,} MiB: its "
                "functions return very long strings or lists"
            )
        elif limit.stop_event is not None and limit.stop_event.is_set():
            self._request_stop()

    def _end(self, reason: str) -> None:
        self._failure = InvalidRequestError(reason)
        self._process.kill()

    def _request_stop(self) -> None:
        if self._running is not None:
            self._running = replace(self._running, limit=TimeLimit(1, time.monotonic() - 1))
        self._send({"stop": True})

    def _used_bytes(self) -> int:
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:
            return 0  # The process has ended, and so has its answer.

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        # The process may have ended, and so has its answer.
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class _Running:
    """The limits of the running statement."""

    limit: TimeLimit
    allowed_bytes: int


class SqlRows:
    """The rows of a statement, a `RowStream`: iterate once, then close it."""

    def __init__(self, processes: SqlProcesses, process: SqlProcess, span: Span) -> None:
        self._processes = processes
        self._span = span
        self._process: SqlProcess | None = process
        self._stream: pa.RecordBatchStreamReader | None = None
        self._rows = 0

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        assert self._stream is not None
        return self._stream.schema

    def start(self, statement: str, limit: TimeLimit, caller: str, as_of: Any) -> None:
        """Waits for the schema of the rows, or raises the error of the statement."""
        assert self._process is not None
        request = {
            "statement": statement,
            "caller": caller,
            "seconds": limit.seconds,
            "setBy": limit.property_name,
            "asOf": as_of,
        }
        with self._close_on_error():
            self._process.start(request, limit)
            if not self._open_stream(self._process):
                self._end()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._process is None or self._stream is None:
            raise StopIteration
        with self._close_on_error():
            try:
                batch = self._stream.read_next_batch()
                self._rows += batch.num_rows
                return batch
            except StopIteration:
                self._end()
        raise StopIteration

    def close(self) -> None:
        """Stops the statement. Idempotent."""
        self._span.set("db.response.returned_rows", self._rows)
        self._span.end()
        process, self._process = self._process, None
        if process is None:
            return
        is_whole = False
        if process.is_alive:
            process.stop()
            with contextlib.suppress(SleeperError, pa.ArrowException, OSError):
                if self._stream is not None or self._open_stream(process):
                    for _ in self._stream or ():
                        pass
                is_whole = process.answers.readline().endswith(b"\n")
        if is_whole:
            self._processes.release(process)
        else:
            process.kill()

    def _open_stream(self, process: SqlProcess) -> bool:
        """Opens the stream of rows. Returns false if the answer is an error."""
        if process.answers.read(1) != b"R":
            return False
        self._stream = pa.ipc.open_stream(process.answers)
        return True

    def _end(self) -> None:
        """Reads the end of the answer and raises the error in it."""
        process = self._process
        assert process is not None
        line = process.answers.readline()
        if not line.endswith(b"\n"):
            raise OSError("the response is incomplete")
        self._process = None
        self._processes.release(process)
        problem = json.loads(line)
        if problem:
            kind = getattr(errors, problem["error"], RuntimeError)
            raise kind(problem["reason"])

    @contextlib.contextmanager
    def _close_on_error(self) -> Iterator[None]:
        process = self._process
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            self._span.end(error)
            self.close()
            failure = process.failure if process is not None else None
            raise failure or classify_error(
                error,
                "the statement ended its process: it may need more memory than is available",
                InvalidRequestError,
            ) from error
        except BaseException as error:
            self._span.end(error)
            self.close()
            raise
