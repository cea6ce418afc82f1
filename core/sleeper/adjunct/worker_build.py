"""The process that builds one version of an adjunct store.

`sleeper.adjunct.feeds.dataset_feed` starts `python -m sleeper.adjunct.worker_build`.
"""

import ctypes
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial

from sleeper.adjunct.feeds.dataset_feed import REQUESTS, describe_failure, write_dataset
from sleeper.adjunct.feeds.opening import own_instance
from sleeper.clock import system_clock
from sleeper.opening import open_instance

_ROWS_PER_ANSWER = 100_000
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serves one request. Ends silently if the process that waits for it ends."""
    _end_with_parent()
    try:
        _serve()
    except BrokenPipeError:
        # At its end, Python would report the answers that it could not write.
        os._exit(1)


def _serve() -> None:
    # Output of other code must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(content: dict[str, object]) -> None:
        answers.write(json.dumps(content) + "\n")

    answer({})
    line = sys.stdin.readline()
    if not line:
        return
    threading.Thread(target=_wait_for_end, name="parent", daemon=True).start()
    request = REQUESTS.parse(line, "request")
    rows = 0

    def count(more: int) -> None:
        nonlocal rows
        rows += more
        if rows >= _ROWS_PER_ANSWER:
            answer({"rows": rows})
            rows = 0

    try:
        with own_instance(partial(open_instance, request.instance)) as open_once:
            write_dataset(request, open_once, system_clock, count)
    except Exception as error:
        answer(dict(describe_failure(error)))
        return
    answer({"rows": rows})
    answer({"done": True})


def _end_with_parent() -> None:
    """Makes Linux end this process with the thread that started it, which waits for its end.

    A load of RocksDB has Python's lock for long, so no thread of this process could do it in time.
    """
    with suppress(OSError, AttributeError):  # another system
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_end() -> None:
    """Ends the process when that which waits for it ends: another one may build the version."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
