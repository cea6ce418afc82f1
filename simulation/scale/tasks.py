"""Tasks that run the jobs of a queue, one at a time, and end when none comes."""

from collections.abc import Callable

from simulation.scale.ledger import CPU_HOURS, GB_HOURS
from simulation.scale.queue import Message
from simulation.scale.world import World
from sleeper.jobs.queue import QueueName
from sleeper.jobs.tracker import tasks_to_start
from sleeper.properties.instance import TASK_IDLE_STOP_SECONDS
from sleeper.runs.retry_policy import RETRY_POLICIES

START_SECONDS = 45.0
"""From the request to the first receive: network, image, process."""

RunJob = Callable[[Message, Callable[[bool], object]], object]
"""Runs the job of a message; the callback is told whether the message is done."""


class Fleet:
    """The tasks of a kind. `run_job` runs a message's job and says when it is done."""

    def __init__(self, world: World, kind: str, run_job: RunJob) -> None:
        self.rule = world.rules.tasks[kind]
        self.running = self.running_most = 0
        self._billed_at = 0.0
        self._timeline = world.timeline
        self._queue = world.queues[kind]
        self._launcher = world.launcher
        self._ledger = world.ledger
        self._random = world.random
        self._idle_stop_seconds: int = world.rules.get(TASK_IDLE_STOP_SECONDS)
        self._retry_seconds = RETRY_POLICIES[QueueName(kind)].delays_seconds[0]
        self._run_job = run_job
        # Idle tasks, and since when.
        self._idle: dict[int, float] = {}
        self._numbers = 0
        self._queue.on_message = self._wake

    def start_needed(self) -> int:
        """Starts tasks as the product's schedule does. Returns their number."""
        counts = self._queue.counts()
        if not counts.visible:
            return 0
        count = tasks_to_start(counts, self.running, self.rule.count_max)
        delays = self._launcher.launch(count, self.rule.cpus)
        for delay in delays:
            self._change(1)
            self._timeline.after(delay + START_SECONDS, self._begin)
        self.running_most = max(self.running_most, self.running)
        return len(delays)

    def bill(self) -> None:
        """Adds the time of the running tasks since the last call."""
        hours = self.running * (self._timeline.now - self._billed_at) / 3600
        self._billed_at = self._timeline.now
        units = {CPU_HOURS: hours * self.rule.cpus, GB_HOURS: hours * self.rule.memory_gib}
        self._ledger.add(f"{self.rule.kind} tasks", units)

    def _change(self, count: int) -> None:
        self.bill()
        self.running += count

    def _begin(self) -> None:
        self._numbers += 1
        self._next(self._numbers)

    def _next(self, task: int) -> bool:
        """Runs the task's next job. Returns False if there is none."""
        messages = [] if self._launcher.is_out else self._queue.receive(1)
        if not messages:
            self._rest(task)
            return False
        (message,) = messages

        def done(is_done: bool) -> None:
            if is_done:
                self._queue.delete(message)
            else:
                self._queue.release(message, self._retry_seconds)
            self._next(task)

        self._run_job(message, done)
        return True

    def _rest(self, task: int) -> None:
        """Waits for a message, and ends the task if none comes."""
        since = self._idle[task] = self._timeline.now

        def stop() -> None:
            if self._idle.get(task) == since:
                del self._idle[task]
                self._change(-1)
                self._launcher.end(self.rule.cpus)

        self._timeline.after(self._idle_stop_seconds, stop)

    def _wake(self) -> None:
        # SQS gives a message to any of the tasks that poll.
        while self._idle and self._queue.counts().visible:
            task = self._random.choice(list(self._idle))
            del self._idle[task]
            if not self._next(task):
                return
