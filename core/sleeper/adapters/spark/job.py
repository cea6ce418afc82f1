"""Runs an adapter whose database Spark reads, in a process of its own.

`python -m sleeper.adapters.spark.job INSTANCE --adapter NAME --adapter-run ID --run-id ID`. On AWS
a platform starts it with spark-submit, whose settings the session takes on. For a local instance
the process starts Spark, on the master of `sleeper.spark.master`. A repeated run of the adapter's
run changes nothing.
"""

import argparse
import os
import signal
import sys
import threading

from sleeper.adapters.queued_run import INPUT_ARGUMENT
from sleeper.adapters.run import run_adapter
from sleeper.adapters.spark.database_load import local_databases, submitted_databases
from sleeper.instance import Instance
from sleeper.spark.driver import run_driver
from sleeper.spark.settings import choose_settings


def main() -> int:
    """Returns the exit status of `run_driver`."""
    parser = argparse.ArgumentParser("sleeper.adapters.spark.job", description=__doc__)
    parser.add_argument("instance", help="a folder, or aws:INSTANCE_ID")
    parser.add_argument("--adapter", required=True, help="the adapter's name")
    parser.add_argument("--adapter-run", required=True, help="the id of the adapter's run")
    parser.add_argument("--run-id", help="the run that was accepted, for the job tracker")
    parser.add_argument(
        INPUT_ARGUMENT,
        action="store_true",
        dest="ends_with_input",
        help="end when the standard input closes, because the process that started this one died",
    )
    arguments = parser.parse_args()
    return run_driver(arguments.instance, lambda instance: _run(instance, arguments))


def _end_with_input() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _run(instance: Instance, arguments: argparse.Namespace) -> str:
    if arguments.ends_with_input:
        threading.Thread(target=_end_with_input, daemon=True).start()
    is_local = instance.jobs.spark_platform is None
    settings = choose_settings(instance.properties())
    with local_databases(instance, settings) if is_local else submitted_databases() as spark:
        run = run_adapter(
            instance,
            arguments.adapter,
            arguments.adapter_run,
            spark=spark,
            tracker_run_id=arguments.run_id,
        )
    outcome = "done before" if run.done_before else f"{run.rows:,} rows"
    return f"adapter {run.adapter}: {outcome}"


if __name__ == "__main__":
    sys.exit(main())
