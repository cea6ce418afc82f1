"""Entry point of tasks. SLEEPER_TASK_KIND selects the queue."""

import os

from sleeper.jobs.event import JobKind
from sleeper.workers.task import run_task

if __name__ == "__main__":
    run_task(JobKind(os.environ["SLEEPER_TASK_KIND"]))
