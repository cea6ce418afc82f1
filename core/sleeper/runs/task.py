"""The task of a command that runs jobs in its own process.

If the process is killed, the next process of a local instance finds that the task's process is
gone and records its job as failed. On AWS, reports show the task as lost.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, TaskEvent, TaskStep, new_task_id
from sleeper.jobs.process import this_process
from sleeper.runs.heartbeat import heartbeat

logger = logging.getLogger(__name__)


@contextmanager
def own_task(instance: Instance, kind: JobKind) -> Iterator[tuple[str, Callable[[int], None]]]:
    """Records a task. Yields its id and a function that adds a job with its number of rows."""
    task_id = new_task_id()
    rows_of_jobs: list[int] = []
    now = instance.clock()
    started = TaskEvent(task_id, kind.value, TaskStep.STARTED, now, process=this_process())
    instance.jobs.tasks.record(started)
    try:
        with heartbeat(instance, task_id, kind.value):
            yield task_id, rows_of_jobs.append
    finally:
        now, rows = instance.clock(), sum(rows_of_jobs)
        ended = TaskEvent(
            task_id,
            kind.value,
            TaskStep.ENDED,
            now,
            jobs=len(rows_of_jobs),
            rows_read=rows,
            rows_written=rows,
        )
        try:
            instance.jobs.tasks.record(ended)
        except SleeperError:
            logger.warning("could not record task end", exc_info=True, extra={"task_id": task_id})
