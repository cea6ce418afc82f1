"""The first task of a session on a cluster, which fails early where a job would wait for ever.

A cluster without free resources lets a job wait. The reason stands only in what its master reported
to the driver, which Spark logs.
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sleeper.errors import UnavailableError
from sleeper.storage.bucket import Bucket, check_credentials
from sleeper.storage.location import DataRoot

_POLL_SECONDS = 0.2
_LINES_SHOWN = 5
_LOG_READ_BYTES = 20_000


def run_first_task(
    session: SparkSession, roots: Sequence[DataRoot], wait_seconds: int, log: Path
) -> None:
    """Runs a task that needs an executor, its Python with the package, and the roots.

    If the root is a bucket, the executor needs credentials of AWS.

    UnavailableError, with what the master reported, if no executor registers in the time.
    """
    with ThreadPoolExecutor(1) as pool:
        # Clusters that allocate executors on demand start none without a task.
        task = pool.submit(_run, session, roots)
        if not _has_executor(session, task, time.monotonic() + wait_seconds):
            session.sparkContext.cancelAllJobs()
            master = session.sparkContext.master
            raise UnavailableError(
                f"{master} offered no executor in {wait_seconds} s; it reported: {_read_end(log)}"
            )
        task.result()


def _run(session: SparkSession, roots: Sequence[DataRoot]) -> None:
    session.sparkContext.parallelize([0], 1).mapPartitions(partial(_see, roots)).collect()


def _see(roots: Sequence[DataRoot], numbers: Iterable[int]) -> Iterable[int]:
    # An executor without the package, or without the folder of a root, fails to unpickle them.
    check_access(roots)
    return numbers


def check_access(roots: Iterable[DataRoot]) -> None:
    """Checks that this process has credentials for the buckets of the roots, once for each bucket.

    The first task runs on one executor, and the others of a cluster may be set up in another way.
    UnavailableError, with the host, if there are none. Without the check, a task repeats its
    requests for minutes before it fails.
    """
    for root in roots:
        for bucket in root.buckets:
            _check_once(bucket)


@cache
def _check_once(bucket: Bucket) -> None:
    check_credentials(bucket)


def _has_executor(session: SparkSession, task: "Future[None]", deadline: float) -> bool:
    context: Any = session.sparkContext
    while time.monotonic() < deadline:
        # The driver is one of them.
        if task.done() or context._jsc.sc().getExecutorMemoryStatus().size() > 1:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _read_end(log: Path) -> str:
    lines = log.read_text(errors="replace")[-_LOG_READ_BYTES:].splitlines()
    return "; ".join(lines[-_LINES_SHOWN:]) or "nothing"
