"""The process that runs SQL statements for a server, one after another.

What a statement does inside the engine's functions (`repeat`, `replace`, a constant that takes
an hour to work out) neither asks the memory pool nor looks at a clock. So it is done where it can
be killed, and where running out of memory hurts nobody else: `python -m sleeper.serve.sql_child`.

It writes `+` when it is ready. It reads requests from standard input, a JSON object a line:
`statement`, `caller`, `asOf`, `seconds` and `setBy` of the time limit; or `{"stop": true}`, which
ends the one that runs. It answers each on standard output: `R`, the rows as an Arrow stream, and a
line; or `E` and a line. The line is a JSON object, empty if all went well, else with `error`, a
kind of `sleeper.errors`, and `reason`.
"""

import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.opening import open_instance
from sleeper.query.interruption import TimeLimit
from sleeper.query.service import open_sql
from sleeper.query.sql.as_of import as_of_value

logger = logging.getLogger(__name__)


class Requests:
    """Lines of standard input. The process ends when whoever writes them does."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[dict[str, Any], threading.Event]] = (
            queue.SimpleQueue()
        )
        self._stopped = threading.Event()
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def next(self) -> tuple[dict[str, Any], threading.Event]:
        """The next one, and what is set when it is to stop."""
        return self._waiting.get()

    def _read(self) -> None:
        for line in sys.stdin:
            request = json.loads(line)
            if request.get("stop"):
                self._stopped.set()
            else:
                self._stopped = threading.Event()
                self._waiting.put((request, self._stopped))
        os._exit(0)


def serve_requests(instance: Instance, requests: Requests, answers: BinaryIO) -> None:
    """Answers for ever."""
    while True:
        request, stopped = requests.next()
        limit = TimeLimit(request["seconds"], time.monotonic(), request["setBy"], stopped)
        problem: dict[str, str] = {}
        begun = False
        try:
            as_of = as_of_value(request["asOf"])
            statement, caller = request["statement"], request["caller"]
            with open_sql(instance, statement, limit, caller, as_of) as rows:
                answers.write(b"R")
                begun = True
                with pa.ipc.new_stream(answers, rows.schema) as stream:
                    for batch in rows:
                        stream.write_batch(batch)
                        answers.flush()
        except Exception as error:
            problem = _problem(error)
        answers.write((b"" if begun else b"E") + json.dumps(problem).encode() + b"\n")
        answers.flush()


def _problem(error: Exception) -> dict[str, str]:
    for kind in type(error).__mro__:
        if kind.__module__ == SleeperError.__module__:
            return {"error": kind.__name__, "reason": str(error)}
    logger.error("unexpected %s", type(error).__name__, exc_info=error)
    return {"error": "", "reason": f"{type(error).__name__}: {error}"}


def main(where: str) -> None:
    """Runs statements over the instance."""
    # Whatever prints must not print between the rows.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(OSError):
        # If the system is short of memory, it is to take this process first.
        Path("/proc/self/oom_score_adj").write_text("1000")
    instance = open_instance(where)
    requests = Requests()
    _ = instance.queries.engine().session  # the engine is loaded and warm
    answers.write(b"+")
    answers.flush()
    serve_requests(instance, requests, answers)


if __name__ == "__main__":
    main(sys.argv[1])
