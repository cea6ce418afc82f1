"""The scheduler: one thread of all simulated processes runs, and a seed decides which is next."""

import _thread
import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

_new_lock = _thread.allocate_lock
_new_thread = _thread.start_new_thread
_ident = _thread.get_ident


class Killed(BaseException):
    """The simulated process of this thread is dead."""


class DeadlockError(Exception):
    """Every thread waits, and none of them until a time."""


@dataclass(eq=False)
class Machine:
    """A simulated machine. `skew_seconds` is how far its wall clock is ahead.

    A clock that is synchronised is never more than `skew_seconds_max` wrong.
    """

    skew_seconds: float = 0.0
    skew_seconds_max: float = math.inf

    def jump(self, seconds: float) -> None:
        """Moves the clock."""
        most = self.skew_seconds_max
        self.skew_seconds = max(-most, min(most, self.skew_seconds + seconds))


@dataclass(eq=False)
class Process:
    """A simulated process. Faults happen to all but those that observe the others.

    At its first call after `ends_at` it is killed. `signal` is the handler of a signal that has
    arrived, which its first thread runs at its next call.
    """

    name: str
    machine: Machine
    meets_faults: bool = True
    is_dead: bool = False
    ends_at: float | None = None
    signal: Callable[[], object] | None = None
    threads: "list[Thread]" = field(default_factory=list)


@dataclass(eq=False)
class Thread:
    """A thread of a simulated process. `error` is what ended it, except its process's death."""

    process: Process
    name: str
    number: int
    baton: _thread.LockType = field(default_factory=_new_lock)
    is_done: bool = False
    is_timed_out: bool = False
    error: BaseException | None = None
    wait: int = 0
    is_waiting: bool = False
    waiting_threads: "list[Thread]" = field(default_factory=list)
    wake_at: float | None = None

    def __str__(self) -> str:
        return f"{self.process.name}/{self.name}"


class Scheduler:
    """Runs one thread at a time. Only its own threads, and the one of `run`, may call it."""

    def __init__(self, random: Random, start_seconds: float) -> None:
        self.random = random
        self.now = start_seconds
        self._ready: list[Thread] = []
        self._timers: list[tuple[float, int, int, Thread]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self._by_ident: dict[int, Thread] = {}
        self._exclusive: Process | None = None
        self._deadlock: DeadlockError | None = None
        self._root: Thread | None = None
        self.on_error: Callable[[Thread, BaseException], None] = lambda _thread, _error: None

    def find_current(self) -> Thread | None:
        """Returns the simulated thread that calls, None for any other thread of the program."""
        return self._by_ident.get(_ident())

    @property
    def current(self) -> Thread:
        """The simulated thread that calls."""
        return self._by_ident[_ident()]

    def run(self, process: Process, action: Callable[[], None]) -> None:
        """Runs the action as the first thread. Returns when it ends; other threads stay stopped.

        DeadlockError if all threads wait for each other.
        """
        root = Thread(process, "main", next(self._numbers))
        root.baton.acquire()
        process.threads.append(root)
        self._by_ident[_ident()] = root
        self._root = root
        try:
            action()
        finally:
            del self._by_ident[_ident()]

    def spawn(self, process: Process, name: str, action: Callable[[], object]) -> Thread:
        """Starts a thread, which runs when the scheduler chooses it."""
        thread = Thread(process, name, next(self._numbers))
        thread.baton.acquire()
        process.threads.append(thread)
        self._ready.append(thread)
        _new_thread(self._bootstrap, (thread, action))
        return thread

    def sleep(self, seconds: float) -> None:
        """Lets others run for so long."""
        self.block(max(0.0, seconds))

    def switch(self) -> None:
        """Lets another thread run that is ready, or none."""
        me = self.current
        self._check_alive(me)
        if not self._ready:
            return
        self._ready.append(me)
        self._hand_over(me)

    def block(self, seconds: float | None) -> bool:
        """Waits until `wake`, or for so many seconds. Returns whether it was woken."""
        me = self.current
        self._check_alive(me)
        me.wait += 1
        me.is_waiting, me.is_timed_out = True, False
        me.wake_at = None if seconds is None else self.now + seconds
        if me.wake_at is not None:
            heapq.heappush(self._timers, (me.wake_at, next(self._order), me.wait, me))
        self._hand_over(me)
        return not me.is_timed_out

    def wake(self, thread: Thread) -> None:
        """Makes a waiting thread ready. Does nothing if it does not wait."""
        if thread.is_waiting:
            thread.is_waiting = False
            self._ready.append(thread)

    def join(self, thread: Thread, seconds: float | None = None) -> bool:
        """Waits for the end of a thread. False if it has not ended after so many seconds."""
        end = None if seconds is None else self.now + seconds
        while not thread.is_done:
            left = None if end is None else end - self.now
            if left is not None and left <= 0:
                return False
            thread.waiting_threads.append(self.current)
            self.block(left)
        return True

    def kill(self, process: Process) -> None:
        """Ends a process: each of its threads gets `Killed` where it waits or calls next."""
        process.is_dead = True
        for thread in process.threads:
            self.wake(thread)

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Runs only threads of the caller's process in the block."""
        before, self._exclusive = self._exclusive, self.current.process
        try:
            yield
        finally:
            self._exclusive = before

    def is_exclusive(self) -> bool:
        """Returns whether only one process runs."""
        return self._exclusive is not None

    def describe(self) -> list[str]:
        """Returns a line for each thread that has not ended."""
        return [
            f"{thread}: " + ("waits" if thread.is_waiting else "is ready")
            for thread in self._threads()
            if not thread.is_done
        ]

    def _threads(self) -> list[Thread]:
        return sorted(self._by_ident.values(), key=lambda thread: thread.number)

    def _check_alive(self, thread: Thread) -> None:
        if thread.process.is_dead:
            raise Killed(thread.process.name)

    def _bootstrap(self, thread: Thread, action: Callable[[], object]) -> None:
        self._by_ident[_ident()] = thread
        thread.baton.acquire()
        try:
            self._check_alive(thread)
            action()
        except Killed:
            pass
        except BaseException as error:  # the world reports it
            thread.error = error
            self.on_error(thread, error)
        del self._by_ident[_ident()]
        thread.is_done = True
        thread.process.threads.remove(thread)
        for waiting in thread.waiting_threads:
            self.wake(waiting)
        self._start(self._choose())

    def _hand_over(self, me: Thread) -> None:
        chosen = self._choose()
        if chosen is not me:
            self._start(chosen)
            me.baton.acquire()
        if me.process.is_dead:
            raise Killed(me.process.name)
        if me is self._root and self._deadlock is not None:
            raise self._deadlock

    def _start(self, thread: Thread) -> None:
        thread.baton.release()

    def _choose(self) -> Thread:
        """Returns the next thread, which is no longer ready nor waiting."""
        while not (ready := self._find_ready()):
            timer = self._next_timer()
            if timer is None:
                return self._report_deadlock()
            at, thread = timer
            self.now = max(self.now, at)
            thread.is_timed_out = True
            self.wake(thread)
        thread = ready[0] if len(ready) == 1 else ready[self.random.randrange(len(ready))]
        self._ready.remove(thread)
        return thread

    def _find_ready(self) -> list[Thread]:
        if self._exclusive is None:
            return self._ready
        return [each for each in self._ready if each.process is self._exclusive]

    def _next_timer(self) -> tuple[float, Thread] | None:
        """Returns the first wait that has a time, and forgets it."""
        skipped = []
        result = None
        while self._timers and result is None:
            timer = heapq.heappop(self._timers)
            at, _, wait, thread = timer
            if not thread.is_waiting or thread.wait != wait:
                continue
            if self._exclusive in (None, thread.process):
                result = at, thread
            else:
                skipped.append(timer)
        for timer in skipped:
            heapq.heappush(self._timers, timer)
        return result

    def _report_deadlock(self) -> Thread:
        assert self._root is not None
        lines = "\n".join(self.describe())
        self._deadlock = DeadlockError(f"all threads wait:\n{lines}")
        self._root.is_waiting = False
        return self._root
