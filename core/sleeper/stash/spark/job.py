"""Writes tables of a stash with Spark: for a command, or a large one in a process of its own.

`python -m sleeper.stash.spark.job INSTANCE --stash KEY --table TABLE_ID`. On AWS, EMR Serverless
starts it with spark-submit, whose settings the session takes on. For a local instance the process
starts Spark, on the master of `sleeper.spark.master`. A repeated run does the
tasks that are not done.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache

from pyspark.sql import SparkSession

from sleeper.instance import Instance
from sleeper.spark.driver import run_driver
from sleeper.spark.options import InstancePlace
from sleeper.spark.session import (
    mark_errors,
    open_submitted_session,
    raise_task_errors,
    start_session,
    stop_session,
)
from sleeper.spark.settings import SparkSettings, choose_settings
from sleeper.stash.destination import open_to_write
from sleeper.stash.progress import TableProgress
from sleeper.stash.record import StashRecord, TableVersion
from sleeper.stash.run import WriteTasks
from sleeper.stash.spark_table import STASH_ARGUMENT
from sleeper.stash.task import do_task
from sleeper.storage.location import DataRoot
from sleeper.tables import TableId


def write_table(
    session: SparkSession, instance: Instance, record: StashRecord, table_id: TableId
) -> int:
    """Does the tasks of a table that are not done. Returns the rows that they wrote.

    Errors are those of the tasks, UnavailableError for others of Spark.
    """
    place, digest, name = InstancePlace.plan(instance.where), record.digest, record.name

    def write(numbers: Iterable[int]) -> Iterable[int]:
        with mark_errors():
            own = place.open()
            task_record = StashRecord(own.storage.root, digest, name)
            for number in numbers:
                result = do_task(own, task_record, table_id, number)
                yield 0 if result is None else result.rows

    numbers = record.progress().get(table_id, TableProgress()).unfinished
    if not numbers:
        return 0
    with raise_task_errors():
        tasks = session.sparkContext.parallelize(numbers, len(numbers))
        return int(tasks.mapPartitions(write).sum())


_APP_NAME = "sleeper stash"


@contextmanager
def tasks_on(spark: SparkSettings, instance: Instance, record: StashRecord) -> Iterator[WriteTasks]:
    """Yields a function that does tasks on a session of Spark, which starts with the first one."""
    with ExitStack() as stack:
        start = cache(lambda: stack.enter_context(_session_on(spark, instance, record)))

        def write(version: TableVersion, numbers: Sequence[int]) -> None:
            if numbers:
                write_table(start(), instance, record, version.id)

        yield write


def _session_on(
    spark: SparkSettings, instance: Instance, record: StashRecord
) -> AbstractContextManager[SparkSession]:
    """Opens a session whose executors see the folders of the instance and the destination."""
    folder = instance.storage.spill_folder() / "spark"
    own = instance.storage.root
    files = open_to_write(record.request.destination, own).root
    roots = [root for root in (own, files) if isinstance(root, DataRoot)]
    return start_session(_APP_NAME, spark, folder, roots)


def main() -> int:
    """Returns the exit status of `run_driver`."""
    parser = argparse.ArgumentParser("sleeper.stash.spark.job", description=__doc__)
    parser.add_argument("instance", help="a folder, or aws:INSTANCE_ID")
    parser.add_argument(
        STASH_ARGUMENT, required=True, help="the digest of the destination, /, the name"
    )
    parser.add_argument("--table", required=True, help="the table's id")
    arguments = parser.parse_args()

    def work(instance: Instance) -> str:
        digest, _, name = arguments.stash.partition("/")
        record = StashRecord(instance.storage.root, digest, name)
        rows = _write(instance, record, TableId(arguments.table))
        return f"stash {name}, table {arguments.table}: {rows:,} rows"

    return run_driver(arguments.instance, work)


def _write(instance: Instance, record: StashRecord, table_id: TableId) -> int:
    if not record.is_running():
        return 0
    if instance.jobs.spark_platform is None:
        settings = choose_settings(instance.properties())
        with _session_on(settings, instance, record) as session:
            return write_table(session, instance, record, table_id)
    session = open_submitted_session(_APP_NAME)
    try:
        return write_table(session, instance, record, table_id)
    finally:
        stop_session(session)


if __name__ == "__main__":
    sys.exit(main())
