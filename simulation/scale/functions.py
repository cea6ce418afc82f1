"""Lambda: concurrency, cold starts, sources of messages and schedules.

A run that finds no concurrency is throttled. A source then holds its messages and tries again until
their visibility timeout, after which they return to their queue with one receive more. The run of a
schedule is tried again until its largest age, and then dropped.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from random import Random

from simulation.scale.ledger import LAMBDA_GB_SECONDS, LAMBDA_RUNS, SQS_REQUESTS, Ledger
from simulation.scale.limits import LAMBDA_UNRESERVED_MIN, Account
from simulation.scale.queue import Message, Queue
from simulation.scale.rules import FunctionRule, ScheduleRule
from simulation.scale.timeline import Action, Timeline

COLD_START_SECONDS = 1.5
"""The start of a process: modules, clients, properties."""

_IDLE_SECONDS = 600.0
_RETRY_SECONDS = 1.0
POLL_SECONDS = 0.02
"""Between two batches of a source: delete the messages, receive the next ones."""

Handle = Callable[[list[Message]], tuple[float, Action]]
"""Returns how long a batch takes, and what happens at its end."""


class Functions:
    """The functions of an account."""

    def __init__(
        self,
        timeline: Timeline,
        account: Account,
        functions: Iterable[FunctionRule],
        ledger: Ledger,
        random: Random,
    ) -> None:
        reserved = sum(each.reserved or 0 for each in functions)
        self._unreserved = account.lambda_concurrency - reserved
        if reserved and self._unreserved < LAMBDA_UNRESERVED_MIN:
            raise ValueError(
                f"an account of {account.lambda_concurrency} cannot reserve {reserved}"
            )
        self.running: Counter[str] = Counter()
        self.throttled = self.dropped = self.cold_starts = self.running_most = 0
        self.is_out = False
        self._timeline = timeline
        self._ledger = ledger
        self._random = random
        self._unreserved_running = 0
        # The times at which idle processes ended their last run.
        self._idle: defaultdict[str, list[float]] = defaultdict(list)

    def start(
        self, function: FunctionRule, seconds: float, done: Action, runs: float = 1.0
    ) -> bool:
        """Starts a run, or `runs` runs one after another. Returns False if it is throttled."""
        if self.is_out or not self._has_room(function):
            self.throttled += 1
            return False
        seconds += self._start_process(function)
        self.running[function.name] += 1
        self._unreserved_running += 0 if function.reserved else 1
        self.running_most = max(self.running_most, self.running.total())
        units = {LAMBDA_RUNS: runs, LAMBDA_GB_SECONDS: seconds * function.memory_mb / 1024}
        self._ledger.add(function.name, units)

        def end() -> None:
            self.running[function.name] -= 1
            self._unreserved_running -= 0 if function.reserved else 1
            self._idle[function.name].append(self._timeline.now)
            done()

        self._timeline.after(seconds, end)
        return True

    def schedule(
        self, rule: ScheduleRule, run: Callable[[], tuple[float, Action]], first: float
    ) -> None:
        """Runs the function in its period; `run` returns its duration and what follows."""

        def attempt(until: float) -> None:
            if self._timeline.now > until:
                self.dropped += 1
                return
            if self.is_out or not self._has_room(rule.function):
                self.throttled += 1
                self._timeline.after(_RETRY_SECONDS * 10, lambda: attempt(until))
                return
            seconds, done = run()
            self.start(rule.function, seconds, done)

        def begin() -> None:
            attempt(self._timeline.now + rule.age_seconds_max)

        self._timeline.every(rule.period_seconds, begin, first)

    def jitter(self) -> float:
        """Returns the wait of a throttled run, random as that of Lambda."""
        return self._random.uniform(0.5, 1.5) * _RETRY_SECONDS

    def _has_room(self, function: FunctionRule) -> bool:
        if function.reserved:
            return self.running[function.name] < function.reserved
        return self._unreserved_running < self._unreserved

    def _start_process(self, function: FunctionRule) -> float:
        idle = self._idle[function.name]
        while idle and idle[0] < self._timeline.now - _IDLE_SECONDS:
            idle.pop(0)
        if idle:
            idle.pop()
            return 0.0
        self.cold_starts += 1
        return COLD_START_SECONDS


class Source:
    """Gives the messages of a queue to its function, in batches."""

    def __init__(
        self, timeline: Timeline, functions: Functions, queue: Queue, ledger: Ledger, handle: Handle
    ) -> None:
        assert queue.rule.receiver is not None
        self._function = queue.rule.receiver
        self._timeline = timeline
        self._functions = functions
        self._queue = queue
        self._ledger = ledger
        self._handle = handle
        self._batches = 0
        queue.on_message = self._poll

    def _poll(self) -> None:
        most = self._queue.rule.at_once_max
        while most is None or self._batches < most:
            messages = self._queue.receive(self._queue.rule.batch)
            if not messages:
                return
            self._batches += 1
            self._deliver(messages, self._timeline.now + self._queue.rule.visibility_seconds)

    def _deliver(self, messages: list[Message], until: float) -> None:
        weight = sum(message.weight for message in messages)
        batches = max(1.0, weight / self._queue.rule.batch)

        def end() -> None:
            done()
            self._timeline.after(POLL_SECONDS * batches, finish)

        def finish() -> None:
            for message in messages:
                self._queue.delete(message)
            # A batch is received and deleted by one request each.
            self._ledger.add(self._function.name, {SQS_REQUESTS: 2 * batches})
            self._free()

        seconds, done = self._handle(messages)
        if self._functions.start(self._function, seconds, end, batches):
            return
        if self._timeline.now < until:
            self._timeline.after(self._functions.jitter(), lambda: self._deliver(messages, until))
            return
        for message in messages:
            self._queue.release(message)
        self._free()

    def _free(self) -> None:
        self._batches -= 1
        self._poll()
