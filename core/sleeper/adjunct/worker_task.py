"""The task on AWS that fills adjunct stores on its disk until SIGTERM.

`python -m sleeper.adjunct.worker_task` fills the stores of SLEEPER_ADJUNCT_STORES in the folder
SLEEPER_ADJUNCT_PATH, and logs metrics each minute. With the argument `check`, it tells the health:
its status is 1 if a store's process has not written a status for a quarter of an hour.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sleeper import INSTANCE_VARIABLE
from sleeper.adjunct.definition import StoreDefinition, parse_stores
from sleeper.adjunct.feeds.opening import FeedContext, own_instance
from sleeper.adjunct.metrics import KIND, AdjunctMetric
from sleeper.adjunct.run_stores import run_stores
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.status import StoreStatus, read_report, seconds_since
from sleeper.instance import AWS_PREFIX
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.opening import open_instance
from sleeper.reports.metric import TASK_KIND
from sleeper.retries import retry_as_job
from sleeper.storage.descriptors import raise_descriptor_limit
from sleeper.workers.json_logs import log_as_json, log_metrics

STORES_VARIABLE = "SLEEPER_ADJUNCT_STORES"
PATH_VARIABLE = "SLEEPER_ADJUNCT_PATH"
CHECK = "check"
STALE_SECONDS = 900.0
"""A process that writes no status for so long is not healthy. A load may be silent for minutes."""

_METRICS_SECONDS = 60.0


def run_adjunct_task() -> None:
    """Fills the stores until SIGTERM."""
    log_as_json(KIND)
    retry_as_job()
    raise_descriptor_limit()
    definitions, parent = _read_environment()
    instance_id = os.environ[INSTANCE_VARIABLE].removeprefix(AWS_PREFIX)
    listener = _metrics_listener(instance_id, parent, definitions)
    with (
        own_instance(open_instance) as open_once,
        suppress(KeyboardInterrupt),
        interrupted_by_sigterm(),
    ):
        run_stores(definitions, parent, FeedContext(open_once), listener=listener)


def is_healthy() -> bool:
    """Returns whether the process that fills the stores has said so recently."""
    definitions, parent = _read_environment()
    reports = [read_report(StoreFolder(parent, each.name)) for each in definitions]
    return all(
        each is not None
        and each.reported_ms is not None
        and seconds_since(each.reported_ms) < STALE_SECONDS
        for each in reports
    )


def measure_stores(
    parent: Path, definitions: Sequence[StoreDefinition], started_ms: int
) -> dict[str, int]:
    """Returns the age of the store that lacks data the longest, the failing stores, and the size.

    A store that was never complete is as old as the task.
    """
    reports = [read_report(StoreFolder(parent, each.name)) for each in definitions]
    ages = [seconds_since(_updated_ms(each) or started_ms) for each in reports]
    return {
        AdjunctMetric.AGE_SECONDS: int(max(ages, default=0.0)),
        AdjunctMetric.PROBLEMS: sum(
            each is not None and each.problem is not None for each in reports
        ),
        AdjunctMetric.BYTES: sum(each.bytes for each in reports if each is not None),
    }


def _updated_ms(report: StoreStatus | None) -> int:
    return 0 if report is None else report.updated_ms


def _read_environment() -> tuple[Sequence[StoreDefinition], Path]:
    return parse_stores(os.environ[STORES_VARIABLE]), Path(os.environ[PATH_VARIABLE])


def _metrics_listener(
    instance_id: str, parent: Path, definitions: Sequence[StoreDefinition]
) -> Callable[[object], None]:
    started_ms, last = time.time_ns() // 1_000_000, time.monotonic()

    def listen(_statuses: object) -> None:
        nonlocal last
        if time.monotonic() >= last + _METRICS_SECONDS:
            last = time.monotonic()
            counts = measure_stores(parent, definitions, started_ms)
            log_metrics(instance_id, TASK_KIND, KIND, counts)

    return listen


if __name__ == "__main__":
    if sys.argv[1:] == [CHECK]:
        sys.exit(0 if is_healthy() else 1)
    run_adjunct_task()
