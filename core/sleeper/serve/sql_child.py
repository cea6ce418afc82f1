"""The process that runs SQL statements for a server, one after another.

The engine's functions (`repeat`, `replace`, a constant that takes an hour to evaluate) check
neither the memory pool nor the time limit. So statements run in a process that can be killed and
whose lack of memory harms no other: `python -m sleeper.serve.sql_child`.

It writes `+` when it is ready. It reads requests from standard input, a JSON object per line:
`statement`, `caller`, `asOf`, `seconds` and `setBy` of the time limit; or `{"stop": true}`, which
stops the running statement. It answers each on standard output: `R`, the rows as an Arrow stream,
and a line; or `E` and a line. The line is a JSON object, empty after success, else with `error`,
the name of a class in `sleeper.errors`, and `reason`.
"""

import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.instance import Instance
from sleeper.opening import open_instance
from sleeper.query.result import TimeLimit
from sleeper.query.sql.service import open_sql
from sleeper.query.sql.tables import parse_as_of

logger = logging.getLogger(__name__)
_BATCH_BYTES_MAX = 4 * 1024**2
_ROW_BYTES_MAX = 16 * 1024**2


class Requests:
    """Requests on standard input. Its end, when the server ends, ends the process."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[dict[str, Any], threading.Event]] = queue.SimpleQueue()
        self._stop_event = threading.Event()
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def next(self) -> tuple[dict[str, Any], threading.Event]:
        """Returns the next request and the event that stops it."""
        return self._queue.get()

    def _read(self) -> None:
        for line in sys.stdin:
            request = json.loads(line)
            if request.get("stop"):
                self._stop_event.set()
            else:
                self._stop_event = threading.Event()
                self._queue.put((request, self._stop_event))
        os._exit(0)


def serve_requests(instance: Instance, requests: Requests, answers: BinaryIO) -> None:
    """Runs one statement after another, without end."""
    while True:
        request, stop_event = requests.next()
        limit = TimeLimit(request["seconds"], time.monotonic(), request["setBy"], stop_event)
        problem: dict[str, str] = {}
        has_rows = False
        try:
            as_of = parse_as_of(request["asOf"])
            statement, caller = request["statement"], request["caller"]
            with open_sql(instance, statement, limit, caller, as_of) as rows:
                answers.write(b"R")
                has_rows = True
                with pa.ipc.new_stream(answers, rows.schema) as stream:
                    for batch in rows:
                        for part in split_batch(batch):
                            stream.write_batch(part)
                            answers.flush()
        except Exception as error:
            problem = _problem(error)
        answers.write((b"" if has_rows else b"E") + json.dumps(problem).encode() + b"\n")
        answers.flush()


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields the rows in batches of limited size, because the server holds one in memory.

    Raises `InvalidRequestError` for a row that is too large.
    """
    size = pa.ipc.get_record_batch_size(batch)
    if size <= _BATCH_BYTES_MAX or (batch.num_rows == 1 and size <= _ROW_BYTES_MAX):
        yield batch
    elif batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from split_batch(batch.slice(0, half))
        yield from split_batch(batch.slice(half))
    else:
        raise InvalidRequestError(
            f"a row of the result has {size:,} bytes (expected at most {_ROW_BYTES_MAX:,}): its "
            "functions return very long strings or lists"
        )


def _problem(error: Exception) -> dict[str, str]:
    for kind in type(error).__mro__:
        if kind.__module__ == SleeperError.__module__:
            return {"error": kind.__name__, "reason": str(error)}
    logger.error("unexpected %s", type(error).__name__, exc_info=error)
    return {"error": "", "reason": f"{type(error).__name__}: {error}"}


def main(where: str) -> None:
    """Runs statements over the instance."""
    # Output of other code must not mix with the rows.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(OSError):
        # The kernel kills this process first if memory runs out.
        Path("/proc/self/oom_score_adj").write_text("1000")
    instance = open_instance(where)
    requests = Requests()
    _ = instance.queries.engine().session  # Loads the engine.
    answers.write(b"+")
    answers.flush()
    serve_requests(instance, requests, answers)


if __name__ == "__main__":
    main(sys.argv[1])
