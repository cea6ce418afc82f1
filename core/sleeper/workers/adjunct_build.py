"""The process that builds one version of an adjunct store.

`sleeper.adjunct.dataset_process` starts `python -m sleeper.workers.adjunct_build`.
"""

import json
import os
import sys
import threading
from functools import cache

from sleeper.adjunct.dataset_process import REQUESTS, describe_failure, write_dataset
from sleeper.clock import system_clock
from sleeper.instance import Instance
from sleeper.opening import open_instance

_ROWS_PER_ANSWER = 100_000


def main() -> None:
    """Serves one request."""
    # Output of other code must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(content: dict[str, object]) -> None:
        answers.write(json.dumps(content) + "\n")

    answer({})
    line = sys.stdin.readline()
    if not line:
        return
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    request = REQUESTS.parse(line, "request")
    opened: list[Instance] = []
    rows = 0

    @cache
    def get_instance() -> Instance:
        opened.append(open_instance(request.instance))
        return opened[-1]

    def count(more: int) -> None:
        nonlocal rows
        rows += more
        if rows >= _ROWS_PER_ANSWER:
            answer({"rows": rows})
            rows = 0

    try:
        write_dataset(request, get_instance, system_clock, count)
    except Exception as error:
        answer(dict(describe_failure(error)))
        return
    finally:
        for each in opened:
            each.close()
    answer({"rows": rows})
    answer({"done": True})


def _end_with_parent() -> None:
    """Ends the process when that which waits for it ends: another one may build the version."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
