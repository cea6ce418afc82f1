"""Writes a large table of a stash with Spark, in a process of its own.

`python -m sleeper.stash.spark.job INSTANCE --stash KEY --table TABLE_ID`. On AWS, EMR Serverless
starts it with spark-submit, whose settings the session takes on. For a local instance Spark runs on
this machine. A repeated run does the tasks that are not done.
"""

import argparse
import sys

from sleeper.instance import Instance
from sleeper.spark.driver import run_driver
from sleeper.spark.session import LOCAL_MASTER, local_session, open_submitted_session, stop_session
from sleeper.stash.record import StashRecord
from sleeper.stash.spark.writer import write_table
from sleeper.stash.spark_table import STASH_ARGUMENT
from sleeper.tables import TableId

_APP_NAME = "sleeper stash"


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
        folder = instance.storage.spill_folder() / "spark"
        with local_session(_APP_NAME, LOCAL_MASTER, folder, {}) as session:
            return write_table(session, instance, record, table_id)
    session = open_submitted_session(_APP_NAME)
    try:
        return write_table(session, instance, record, table_id)
    finally:
        stop_session(session)


if __name__ == "__main__":
    sys.exit(main())
