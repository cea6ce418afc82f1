"""Writes tables of stashes with Spark: each task of the stash is a partition of one job."""

from collections.abc import Iterable

from pyspark.sql import SparkSession

from sleeper.instance import Instance
from sleeper.spark.options import cached_instance
from sleeper.spark.session import mark_errors, raise_task_errors
from sleeper.stash.progress import TableProgress
from sleeper.stash.record import StashRecord
from sleeper.stash.task import do_task
from sleeper.tables import TableId


def write_table(
    session: SparkSession, instance: Instance, record: StashRecord, table_id: TableId
) -> int:
    """Does the tasks of a table that are not done. Returns the rows that they wrote.

    Errors are those of the tasks, UnavailableError for others of Spark.
    """
    where, digest, name = instance.where, record.digest, record.name

    def write(numbers: Iterable[int]) -> Iterable[int]:
        with mark_errors():
            own = cached_instance(where)
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
