"""Runs an adapter whose database Spark reads, in a process of its own.

`python -m sleeper.spark.adapter_job INSTANCE --adapter NAME --adapter-run ID --run-id ID`. On AWS
a platform starts it with spark-submit, whose settings the session takes on. For a local instance
Spark runs on this machine. A repeated run of the adapter's run changes nothing.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from contextlib import closing

from sleeper.adapters.platform import INPUT_ARGUMENT
from sleeper.adapters.run import AdapterRun, run_adapter
from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.opening import open_instance
from sleeper.retries import retry_as_job
from sleeper.spark.database_load import LOCAL_MASTER, local_databases, submitted_databases

_INTERRUPTED = 130


def main() -> int:
    """Returns exit status 0 for done (or done before), 1 for failed or refused with its reason.

    SIGTERM, with which platforms cancel jobs, acts as Ctrl-C: the tracker records the failure.
    """
    parser = argparse.ArgumentParser("sleeper.spark.adapter_job", description=__doc__)
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
    retry_as_job()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        with interrupted_by_sigterm(), closing(open_instance(arguments.instance)) as instance:
            if arguments.ends_with_input:
                threading.Thread(target=_end_with_input, daemon=True).start()
            run = _run(instance, arguments)
    except SleeperError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    outcome = "done before" if run.done_before else f"{run.rows:,} rows"
    sys.stderr.write(f"adapter {run.adapter}: {outcome}\n")
    return 0


def _end_with_input() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _run(instance: Instance, arguments: argparse.Namespace) -> AdapterRun:
    is_local = instance.jobs.spark_platform is None
    with local_databases(instance, LOCAL_MASTER) if is_local else submitted_databases() as spark:
        return run_adapter(
            instance,
            arguments.adapter,
            arguments.adapter_run,
            spark=spark,
            tracker_run_id=arguments.run_id,
        )


if __name__ == "__main__":
    sys.exit(main())
