"""Loads of a snapshot table in processes that are killed at a stage.

Arguments: the instance, the source (`queue` for a worker that takes a message, a Parquet file for a
bulk import), and the stages. A job has the id of its stage.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from sleeper.bulk_import.service import bulk_import_paths
from sleeper.ingest import gathered_rows, run
from sleeper.ingest.service import ingest_paths
from sleeper.opening import open_instance
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.snapshot_loads import PublishSnapshot
from sleeper.workers.worker import Worker
from tests.unit.bulk_import.in_process import InProcessCluster


def kill_at(owner: Any, name: str, is_after: bool, publishes: bool = False) -> None:
    """Ends the process before or after the first call, or the first that publishes."""
    original: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **more: Any) -> Any:
        is_it = not publishes or any(isinstance(each, PublishSnapshot) for each in arguments)
        if is_it and not is_after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **more)
        if is_it:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call)


STAGES: dict[str, Callable[[], None]] = {
    "before-it-begins": lambda: kill_at(run, "begin_run", is_after=False),
    "after-it-began": lambda: kill_at(run, "begin_run", is_after=True),
    "while-it-reads": lambda: kill_at(gathered_rows.GatheredRows, "in_order", is_after=False),
    "after-it-wrote": lambda: kill_at(gathered_rows, "write_sorted", is_after=True),
    "before-the-commit": lambda: kill_at(StateStore, "commit", is_after=False, publishes=True),
    "after-the-commit": lambda: kill_at(StateStore, "commit", is_after=True, publishes=True),
}


def main(where: str, source: str, *stages: str) -> None:
    for stage in stages:
        process = os.fork()
        if process == 0:
            STAGES[stage]()
            instance = open_instance(where)
            if source == "queue":
                assert instance.background is not None
                instance.background.recover()  # as the runner of a dead worker does
                Worker(instance, "task", threading.Event()).run_one()
            elif source.endswith(".parquet"):
                bulk_import_paths(instance, "t", [source], InProcessCluster, stage)
            else:
                ingest_paths(instance, "t", [source], stage)
            os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        assert status == -signal.SIGKILL, (stage, status)


if __name__ == "__main__":
    main(*sys.argv[1:])
