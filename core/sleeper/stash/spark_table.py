"""Large tables of a stash, which one Spark job writes: locally a process, on AWS EMR Serverless.

The job does the recorded tasks of the table that are not done, so it can be repeated at any time.
"""

import logging
import sys
from collections.abc import Callable, Sequence

from sleeper.errors import UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.spark_platform import (
    PlatformJob,
    PlatformName,
    RunState,
    SparkPlatform,
    find_outcome,
    make_run_id,
    spark_settings,
)
from sleeper.properties.deployed import SERVERLESS_APPLICATION
from sleeper.stash.progress import Progress, TableProgress
from sleeper.stash.properties import STASH_SPARK_BYTES
from sleeper.stash.record import StashRecord
from sleeper.tables import TableId

logger = logging.getLogger(__name__)
STASH_ARGUMENT = "--stash"
"""The argument of the driver that is followed by the key of a stash."""
_PLATFORM = PlatformName.EMR_SERVERLESS
_DRIVER = "sleeper.stash.spark.job"
_ATTEMPTS = 3
# Stands for a platform's reference when the tasks were sent to the queue instead.
_QUEUED = "queue"


def spark_bytes(instance: Instance) -> int:
    """Returns the smallest size of a table that Spark writes; 0 if it writes none."""
    properties = instance.properties()
    has_platform = properties.get(SERVERLESS_APPLICATION) is not None
    is_local = instance.jobs.spark_platform is None
    return properties.get(STASH_SPARK_BYTES) if is_local or has_platform else 0


def write_in_process(instance: Instance, record: StashRecord, table_id: TableId) -> int:
    """Writes a table by a process with Spark on this machine, and returns its rows.

    UnavailableError if the process failed; it may be repeated.
    """
    from sleeper.bulk_import.start import run_command

    progress = record.progress().get(table_id, TableProgress())
    if progress.unfinished and record.decision() is None:
        arguments = _arguments(instance, record, table_id)
        outcome = run_command((sys.executable, "-P", "-m", _DRIVER, *arguments))
        if outcome.state is not RunState.SUCCEEDED:
            raise UnavailableError(f"Spark did not write table {table_id}: {outcome.reason}")
        progress = record.progress().get(table_id, TableProgress())
    return progress.written.rows


def is_queued(record: StashRecord, table_id: TableId) -> bool:
    """Returns whether Spark failed, so that the tasks of its table are in the queue."""
    return record.spark_runs(table_id)[-1:] == [_QUEUED]


def watch_platform(
    instance: Instance,
    record: StashRecord,
    progress: Progress,
    send: Callable[[TableId, Sequence[int]], None],
) -> None:
    """Starts Spark jobs, also those that failed again; after the last attempt, sends the tasks."""
    if instance.jobs.spark_platform is None:
        return
    for table_id, table in progress.items():
        if not table.uses_spark or table.is_done:
            continue
        runs = record.spark_runs(table_id)
        if not runs and table.tasks is not None:
            _start(instance, record, table_id, 0)
        if not runs or runs[-1] == _QUEUED:
            continue
        outcome = find_outcome(_open(instance), runs[-1])
        # The tasks may have been done after the progress was read.
        table = record.progress()[table_id]
        if outcome.state is RunState.RUNNING or table.is_done:
            continue
        reason = outcome.reason or "it ended before all tasks were done"
        record.record_problem(table_id, table.unfinished[0], f"Spark job {runs[-1]}: {reason}")
        if len(runs) < _ATTEMPTS:
            _start(instance, record, table_id, len(runs))
            continue
        send(table_id, table.unfinished)
        record.record_spark_run(table_id, len(runs), _QUEUED)


def _start(instance: Instance, record: StashRecord, table_id: TableId, attempt: int) -> None:
    from sleeper.bulk_import.start import driver_environment

    job_id = f"stash-{record.name}-{table_id}"
    # The platform starts a run id once, so a job that was not recorded is not repeated.
    job = PlatformJob(
        make_run_id(table_id, record.key, str(attempt)),
        job_id,
        _arguments(instance, record, table_id),
        spark_settings(_PLATFORM, instance.properties(), {}),
        environment=driver_environment(instance),
    )
    reference = _open(instance).submit(job)
    record.record_spark_run(table_id, attempt, reference)
    logger.info("started Spark as %s", reference, extra={"job_id": job_id})


def _open(instance: Instance) -> SparkPlatform:
    assert instance.jobs.spark_platform is not None
    return instance.jobs.spark_platform(_PLATFORM)


def _arguments(instance: Instance, record: StashRecord, table_id: TableId) -> tuple[str, ...]:
    """Returns the arguments of the driver."""
    return (instance.where, STASH_ARGUMENT, record.key, "--table", table_id)
