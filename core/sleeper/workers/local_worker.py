"""A worker process of a local instance: `python -m sleeper.workers.local_worker FOLDER`."""

from sleeper.jobs.event import new_task_id
from sleeper.opening import open_instance
from sleeper.workers.child import start_child
from sleeper.workers.worker import Worker, run_worker_process


def main() -> None:
    """Runs the worker."""
    folder, stop = start_child("a worker process of a local instance")
    instance = open_instance(folder)
    try:
        run_worker_process(Worker(instance, new_task_id(), stop))
    finally:
        instance.close()


if __name__ == "__main__":
    main()
