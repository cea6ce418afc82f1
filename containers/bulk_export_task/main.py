"""Entry point of bulk export tasks."""

from sleeper.jobs.event import JobKind
from sleeper.wiring.task import run_task

if __name__ == "__main__":
    run_task(JobKind.BULK_EXPORT)
