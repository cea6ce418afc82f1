"""Bulk exports whose files the executors of Spark write, a task for each leaf."""

from collections.abc import Iterable

from pyspark.sql import SparkSession

from sleeper.bulk_export.service import ExportFolder, ExportPlan, WriteLeaves, make_leaf_writer
from sleeper.errors import UnavailableError
from sleeper.instance import OpenTable
from sleeper.partitions.partition import Partition
from sleeper.spark.options import InstancePlace
from sleeper.spark.session import mark_errors, raise_task_errors, start_session
from sleeper.spark.settings import SparkSettings

_APP_NAME = "sleeper bulk export"


def leaves_on(spark: SparkSettings) -> WriteLeaves:
    """Returns a function that writes the leaves of an export on a session of its own."""

    def write(table: OpenTable, folder: ExportFolder, plan: ExportPlan) -> int:
        storage = table.instance.storage
        files = storage.spill_folder() / "spark"
        with start_session(_APP_NAME, spark, files, (storage.root, folder.root)) as session:
            return write_leaves(session, table, folder, plan)

    return write


def write_leaves(
    session: SparkSession, table: OpenTable, folder: ExportFolder, plan: ExportPlan
) -> int:
    """Writes the files, and returns the number of rows.

    UnavailableError if a file is missing afterwards: the executors did not write to this folder.
    """
    place, table_id = InstancePlace.plan(table.instance.where), table.ref.id

    def write(leaves: Iterable[Partition]) -> Iterable[int]:
        with mark_errors((folder.root,)):
            instance = place.open()
            own = OpenTable(instance, instance.tables.index.get(table_id))
            yield from map(make_leaf_writer(own, folder, plan), leaves)

    with raise_task_errors():
        leaves = session.sparkContext.parallelize(plan.leaves, len(plan.leaves))
        rows = int(leaves.mapPartitions(write).sum())
    _check_files(folder, plan)
    return rows


def _check_files(folder: ExportFolder, plan: ExportPlan) -> None:
    paths = folder.list_paths()
    for leaf in plan.leaves:
        if folder.leaf_path(leaf) not in paths:
            raise UnavailableError(
                f"an executor wrote {leaf.id}.parquet, which does not exist in {folder.location} "
                "(expected a folder that all machines see at the same path)"
            )
