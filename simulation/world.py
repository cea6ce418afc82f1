"""A seeded world: processes, calls with faults, and the history of what they did.

`World` is the `Calls` of all simulated services, disks and ports. A call may switch to another
thread, take time, and meet a fault. An *operation* is what a thread does, such as an ingest or a
compaction job: faults are counted by it.
"""

import gc
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

from simulation.calls import Call, Fault
from simulation.faults import JUMPED, KILLED, LATE, PAUSED, POWER, Faults, MetFaults, Point, Profile
from simulation.scheduling.patching import attach
from simulation.scheduling.scheduler import Killed, Process, Scheduler, Thread
from simulation.trace import Trace, TraceHandler
from sleeper.errors import SleeperError

T = TypeVar("T")

# The product closes what nothing refers to, so cycles end at calls, not by counts of allocations.
_CALLS_BETWEEN_COLLECTIONS = 250
TIME_LIMIT = "time limit"
# A longer call may keep a process from renewing what it holds.
_SECONDS_KEPT = 0.5
START_SECONDS = 1_790_000_000.0
"""The time at which each history begins: in September 2026."""


@dataclass
class World:
    """The world of one seed. `errors` are unexpected exceptions of its threads."""

    seed: int
    faults: Faults
    trace: Trace
    scheduler: Scheduler
    errors: list[tuple[str, BaseException]] = field(default_factory=list)
    on_death: list[Callable[[Process], None]] = field(default_factory=list)
    _operations: dict[Thread, str] = field(default_factory=dict)
    _steps: dict[Thread, str] = field(default_factory=dict)
    _paused: dict[Process, float] = field(default_factory=dict)
    _met: Counter[Process] = field(default_factory=Counter)
    _met_beside: Counter[Process] = field(default_factory=Counter)
    _met_at: Counter[tuple[Process, str]] = field(default_factory=Counter)

    @property
    def began_at(self) -> float:
        """The virtual time at which the history began."""
        return START_SECONDS

    @classmethod
    def create(
        cls,
        seed: int,
        only_faults: frozenset[tuple[str, str]] | None = None,
        trace_file: Path | None = None,
        focus: Collection[str] = (),
    ) -> "World":
        """Makes the world of a seed, and attaches this process of the system to it.

        Kinds of faults in the focus happen for certain.
        """
        faults = Faults(seed, Profile.draw(Random(f"{seed} profile"), focus), only_faults)
        scheduler = Scheduler(Random(f"{seed} order"), START_SECONDS)
        world = cls(seed, faults, Trace(trace_file), scheduler)
        scheduler.on_error = world.report
        threading.excepthook = world._on_thread_error
        sys.unraisablehook = _report_unraisable
        attach(scheduler, seed)
        logging.getLogger("concurrent.futures").disabled = True
        logging.getLogger().handlers = [TraceHandler(world._log, world._report_logged)]
        return world

    def __call__(
        self, call: Call, effect: Callable[[], T], error: Callable[[Fault], Exception]
    ) -> T:
        """Carries out a call. Killed if the process dies before or after it."""
        thread = self._find_exposed()
        if thread is None:
            return effect()
        point = self._begin(thread, call)
        if self.faults.is_out(point, self.scheduler.now):
            self._count(thread, call)
            self.note(thread, f"{call} ! unavailable")
            raise error(Fault.UNAVAILABLE)
        for fault in (Fault.UNAVAILABLE, Fault.THROTTLED, Fault.FULL):
            if self._happens(thread, fault, point):
                self.note(thread, f"{call} ! {fault}")
                raise error(fault)
        try:
            result = effect()
        except Exception as raised:
            self.note(thread, f"{call} raised {type(raised).__name__}")
            raise
        self.note(thread, str(call))
        self._end(thread, point, error)
        return result

    def now_ms(self) -> int:
        """Returns the true time in milliseconds, which clocks of processes may not have."""
        return int(self.scheduler.now * 1000)

    def choose(self, probability: float) -> bool:
        """Returns a decision of a service. Nothing unusual happens to checks."""
        return not self.scheduler.is_exclusive() and self.faults.choose(probability)

    def point(self, call: Call) -> None:
        """Lets others run, and the process may die here."""
        thread = self._find_exposed()
        if thread is not None:
            self._begin(thread, call)

    def operate(self, call: Call, lose_power: Callable[[], None]) -> Fault | None:
        """Returns the fault of an operation of the disk, during which no time passes.

        Killed if the process is dead or dies before it, alone or because the power fails.
        """
        thread = self._find_exposed()
        if thread is None:
            return None
        if thread.process.is_dead:
            raise Killed(thread.process.name)
        point = self._name(thread, call)
        if self._happens(thread, POWER, point):
            self.note(thread, f"{POWER} before {call}")
            lose_power()
            raise Killed(thread.process.name)
        self._may_die(thread, point, "before")
        for fault in (Fault.FULL, Fault.UNAVAILABLE):
            if self._happens(thread, fault, point):
                self.note(thread, f"{call} ! {fault}")
                return fault
        self.scheduler.switch()
        return None

    def count_met(self, process: Process) -> MetFaults:
        """Returns the faults that the process has met so far, its death, and jumps of any clock."""
        shared = sum(count for (kind, *_), count in self.faults.counts.items() if kind == JUMPED)
        shared += process.is_dead
        return MetFaults(self._met[process] + shared, self._met_beside[process] + shared)

    def count_met_at(self, process: Process, services: Sequence[str]) -> int:
        """Returns how many faults the process has met so far at calls of the services."""
        return sum(self._met_at[process, each] for each in services)

    def note(self, thread: Thread, text: str) -> None:
        """Adds a line to the history."""
        self.trace.add(self.scheduler.now, str(thread), text)

    def _log(self, line: str) -> None:
        thread = self.scheduler.find_current()
        if thread is not None:
            self.note(thread, line)

    def _report_logged(self, error: BaseException) -> None:
        """Records an error that the product logs with its place, unless it is an expected kind."""
        thread = self._find_exposed()
        if thread is not None and not isinstance(error, SleeperError):
            self.report(thread, error)

    def report(self, thread: Thread, error: BaseException) -> None:
        """Records an exception that ended a thread and that nothing expects."""
        self.note(thread, f"ended by {type(error).__name__}: {error}")
        self.errors.append((str(thread), error))

    def operation_of(self, thread: Thread) -> str:
        """Returns what the thread does, or else the first thread of its process."""
        return self._operations.get(thread) or self._operations.get(
            thread.process.threads[0], thread.process.name.rstrip("0123456789")
        )

    @contextmanager
    def operating(self, operation: str, step: str | None = None) -> Iterator[None]:
        """Names what the calling thread does in the block, and the step that it does it in.

        Without a step, the block belongs to the step in which the thread is, if any.
        """
        thread = self.scheduler.current
        before = self._operations.get(thread), self._steps.get(thread)
        self._operations[thread] = operation
        if step is not None:
            self._steps[thread] = step
        try:
            yield
        finally:
            _set(self._operations, thread, before[0])
            _set(self._steps, thread, before[1])

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Kills the calling process at a call in the block that is later than so many seconds."""
        process = self.scheduler.current.process
        process.ends_at = self.scheduler.now + seconds
        try:
            yield
        finally:
            process.ends_at = None

    def kill(self, process: Process) -> None:
        """Ends a process, as `kill -9` does."""
        self.scheduler.kill(process)
        for notify in self.on_death:
            notify(process)

    def _find_exposed(self) -> Thread | None:
        """Returns the calling thread if faults may happen to it now."""
        thread = self.scheduler.find_current()
        if thread is None or self.scheduler.is_exclusive() or not thread.process.meets_faults:
            return None
        return thread

    def _begin(self, thread: Thread, call: Call) -> Point:
        """Lets others run before a call, and the process may die."""
        point = self._name(thread, call)
        if self.faults.number % _CALLS_BETWEEN_COLLECTIONS == 0:
            gc.collect()
        self._wait(thread, point)
        return point

    def _name(self, thread: Thread, call: Call) -> Point:
        """Returns the call with its name in the history."""
        operation = self.operation_of(thread)
        first = thread.process.threads[0]
        who = self._steps.get(thread) or self._steps.get(first, operation)
        return self.faults.begin_call(operation, call, who)

    def _wait(self, thread: Thread, point: Point) -> None:
        seconds = self._latency_seconds(thread, point)
        process = thread.process
        if self._happens(thread, PAUSED, point):
            self.note(thread, f"{point.call} ! {PAUSED}")
            self._paused[process] = self.scheduler.now + self.faults.pause_seconds(point)
        if self._happens(thread, JUMPED, point):
            jump = self.faults.jump_seconds(point)
            self.note(thread, f"{point.call} ! {JUMPED} {jump:.0f} s")
            process.machine.jump(jump)
        if seconds:
            self.scheduler.sleep(seconds)
        else:
            self.scheduler.switch()
        while self._paused.get(process, 0.0) > self.scheduler.now:
            self.scheduler.sleep(self._paused[process] - self.scheduler.now)
        self._may_die(thread, point, "before")
        if process.signal is not None and thread is process.threads[0]:
            handle, process.signal = process.signal, None
            handle()

    def _end(self, thread: Thread, point: Point, error: Callable[[Fault], Exception]) -> None:
        seconds = self._latency_seconds(thread, point)
        if self._happens(thread, LATE, point):
            self.note(thread, f"{point.call} ! {LATE}")
            seconds += self.faults.late_seconds(point)
        if seconds:
            self.scheduler.sleep(seconds)
        self._may_die(thread, point, "after")
        if self._happens(thread, Fault.LOST, point):
            self.note(thread, f"{point.call} ! {Fault.LOST}")
            raise error(Fault.LOST)

    def _latency_seconds(self, thread: Thread, point: Point) -> float:
        seconds = self.faults.latency_seconds()
        if seconds > _SECONDS_KEPT:
            self._count(thread, point.call)
        return seconds

    def _happens(self, thread: Thread, kind: str, point: Point) -> bool:
        is_met = self.faults.happens(kind, point)
        if is_met:
            self._count(thread, point.call, kind)
        return is_met

    def _count(self, thread: Thread, call: Call, kind: str = "") -> None:
        """Counts a fault of a process, and whether its threads beside the first one met it."""
        self._met[thread.process] += 1
        self._met_at[thread.process, call.service] += 1
        if kind == PAUSED or thread is not thread.process.threads[0]:
            self._met_beside[thread.process] += 1

    def _may_die(self, thread: Thread, point: Point, when: str) -> None:
        ends_at = thread.process.ends_at
        is_over = ends_at is not None and self.scheduler.now >= ends_at
        if is_over or self._happens(thread, KILLED, point):
            self.note(thread, f"{TIME_LIMIT if is_over else KILLED} {when} {point.call}")
            self.kill(thread.process)
            raise Killed(thread.process.name)

    def _on_thread_error(self, arguments: threading.ExceptHookArgs) -> None:
        thread, error = self.scheduler.find_current(), arguments.exc_value
        if thread is not None and error is not None and not isinstance(error, Killed):
            self.report(thread, error)


def _set(names: dict[Thread, str], thread: Thread, name: str | None) -> None:
    if name is None:
        names.pop(thread, None)
    else:
        names[thread] = name


def _report_unraisable(arguments: "sys.UnraisableHookArgs") -> None:
    """Prints an error of a finaliser, unless its process is dead or its disk fails."""
    if not isinstance(arguments.exc_value, Killed | OSError):
        sys.__unraisablehook__(arguments)
