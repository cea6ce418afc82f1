"""Tasks of ECS: a process for each, which ECS may stop.

ECS stops a task for maintenance or capacity: it sends SIGTERM, and kills the task later. SIGTERM
interrupts the worker's job. A *watch* in the task ends it if the job does not stop in time, see
`sleeper.workers.worker.run_worker_process`.
"""

import threading
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from botocore.exceptions import BotoCoreError, ClientError

from simulation.instances import SimulatedInstance
from simulation.scheduling.scheduler import Machine, Process, Thread
from simulation.services.control import Task, Tasks
from simulation.world import World
from sleeper.errors import SleeperError
from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.workers.worker import Worker, WorkerSettings

_IDLE_STOP_SECONDS = 300.0
_WAIT_SECONDS = 20.0
_STOPPED = 0.15
_STOPPED_SECONDS = (1.0, 30.0, 600.0)
_WATCH_SECONDS = 15.0
_KILL_SECONDS = 30.0
ERRORS = (SleeperError, ClientError, BotoCoreError)
"""Errors of a task or function that end it."""


@dataclass(eq=False)
class RunningTask:
    """A task with its process, and its worker once that has opened the instance."""

    task: Task
    process: Process
    main: Thread
    worker: Worker | None = None


class TaskProcesses:
    """Starts the processes of tasks, and stops some of them."""

    def __init__(self, world: World, instance: SimulatedInstance, tasks: Tasks) -> None:
        self._world = world
        self._instance = instance
        self._tasks = tasks
        self._random = Random(f"{world.seed} tasks")

    def start(self, task: Task, kind: JobKind) -> None:
        """Starts a task for jobs of the kind."""
        process, main = self._instance.processes.start("task", lambda: self._run(running, kind))
        running = RunningTask(task, process, main)
        if self._world.choose(_STOPPED):
            ecs = Process("ecs", Machine(), meets_faults=False)
            self._world.scheduler.spawn(ecs, "stop", lambda: self._stop_later(running))

    def _run(self, running: RunningTask, kind: JobKind) -> None:
        settings = WorkerSettings(
            kind.value, (QueueName(kind.value),), _WAIT_SECONDS, _IDLE_STOP_SECONDS
        )
        try:
            with suppress(*ERRORS):
                instance = self._instance.open()
                running.worker = Worker(instance, new_task_id(), threading.Event(), settings)
                running.worker.run()
                instance.close()
        finally:
            # ECS notices the end of a task, whatever ended it.
            self._tasks.stop(running.task.arn)

    def _stop_later(self, running: RunningTask) -> None:
        scheduler = self._world.scheduler
        seconds = self._random.choice(_STOPPED_SECONDS) * self._random.random()
        if scheduler.join(running.main, seconds):
            return
        self._world.note(running.main, "SIGTERM from ECS")
        worker = running.worker
        if worker is None:  # it handles no signal yet
            self._world.kill(running.process)
            return
        running.process.signal = worker.interrupt
        if scheduler.join(running.main, _WATCH_SECONDS):
            return
        scheduler.spawn(running.process, "watch", lambda: self._give_up(running, worker))
        if not scheduler.join(running.main, _KILL_SECONDS - _WATCH_SECONDS):
            self._world.note(running.main, "killed by ECS")
            self._world.kill(running.process)

    def _give_up(self, running: RunningTask, worker: Worker) -> None:
        with suppress(SleeperError):
            worker.abandon()
        self._world.note(running.main, "exits during a job")
        self._world.kill(running.process)
