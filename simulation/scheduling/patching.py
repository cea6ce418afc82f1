"""Replaces Python's threads, locks, clocks and random sources by those of the scheduler.

`install` is called before any module of the product is imported, because modules bind names such as
`time.sleep` when they are imported. Until a scheduler is attached, and in threads that it does not
own, everything behaves as usual. Threads of native code, such as the engine's, are not owned: they
work while the thread that waits for them has the baton, and their results do not depend on order.
"""

import _thread
import concurrent.futures.thread
import functools
import itertools
import os
import queue
import random
import tempfile
import threading
import time
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any

from simulation.scheduling.scheduler import Killed, Scheduler, Thread

_real_time, _real_monotonic, _real_sleep = time.time, time.monotonic, time.sleep
_real_urandom = os.urandom
_real_start = _thread.start_new_thread
_real_join = threading.Thread.join
_real_is_alive = threading.Thread.is_alive
_real_make_executor = concurrent.futures.ThreadPoolExecutor.__init__


class _Attached:
    """The scheduler of this process of the system, and the source of what was random."""

    scheduler: Scheduler | None = None
    random: Random = Random(0)


def attach(scheduler: Scheduler, seed: int) -> None:
    """Makes the scheduler's threads use its time and a seeded source of random bytes."""
    _Attached.scheduler = scheduler
    _Attached.random = Random(seed)
    random.seed(seed)


def _find() -> tuple[Scheduler, Thread] | None:
    scheduler = _Attached.scheduler
    if scheduler is None:
        return None
    thread = scheduler.find_current()
    return None if thread is None else (scheduler, thread)


class Lock:
    """A lock of `threading` whose waits are those of the scheduler."""

    __slots__ = ("__weakref__", "_inner", "_waiting")

    def __init__(self) -> None:
        self._inner = _thread.allocate_lock()
        self._waiting: list[Thread] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See `threading.Lock.acquire`."""
        if self._inner.acquire(False):
            return True
        if not blocking:
            return False
        owner = _find()
        if owner is None:
            return self._inner.acquire(True, timeout)
        scheduler, thread = owner
        end = None if timeout < 0 else scheduler.now + timeout
        while not self._inner.acquire(False):
            left = None if end is None else end - scheduler.now
            if left is not None and left <= 0:
                return False
            self._waiting.append(thread)
            try:
                scheduler.block(left)
            finally:
                if thread in self._waiting:
                    self._waiting.remove(thread)
        return True

    def release(self) -> None:
        """See `threading.Lock.release`."""
        self._inner.release()
        scheduler = _Attached.scheduler
        if self._waiting and scheduler is not None:
            scheduler.wake(self._waiting.pop(0))

    def locked(self) -> bool:
        """See `threading.Lock.locked`."""
        return self._inner.locked()

    def _at_fork_reinit(self) -> None:
        self._inner = _thread.allocate_lock()
        self._waiting = []

    __enter__ = acquire

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def _start_thread(function: Callable[..., object], arguments: tuple[Any, ...] = ()) -> int:
    owner = _find()
    if owner is None:
        return _real_start(function, arguments)
    scheduler, thread = owner
    if thread.process.is_dead:
        raise Killed(thread.process.name)
    python_thread = getattr(function, "__self__", None)
    name = getattr(python_thread, "name", "thread")
    started = scheduler.spawn(thread.process, name, lambda: function(*arguments))
    if isinstance(python_thread, threading.Thread):
        python_thread._simulated = started  # type: ignore[attr-defined]
    return started.number


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    owner, simulated = _find(), getattr(self, "_simulated", None)
    if owner is None or simulated is None:
        return _real_join(self, timeout)
    owner[0].join(simulated, timeout)
    return None


def _is_alive(self: threading.Thread) -> bool:
    simulated = getattr(self, "_simulated", None)
    return _real_is_alive(self) if simulated is None else not simulated.is_done


def _now(real: Callable[[], float], has_skew: bool) -> float:
    owner = _find()
    if owner is None:
        return real()
    scheduler, thread = owner
    return scheduler.now + (thread.process.machine.skew_seconds if has_skew else 0.0)


def _sleep(seconds: Any) -> None:
    owner = _find()
    if owner is None:
        _real_sleep(seconds)
    else:
        owner[0].sleep(seconds)


def _urandom(size: int) -> bytes:
    return _real_urandom(size) if _find() is None else _Attached.random.randbytes(size)


shared_cache = functools.cache
"""`functools.cache` with one value for all simulated processes, for the simulation itself."""


class _ProcessCache:
    """`functools.cache` with values for each simulated process, as processes of a system have."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._caches: dict[object, Any] = {}

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        owner = _find()
        process = None if owner is None else owner[1].process
        cache = self._caches.get(process)
        if cache is None:
            cache = self._caches[process] = shared_cache(self._function)
        return cache(*arguments, **keywords)

    def __get__(self, instance: object, _owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def cache_clear(self) -> None:
        """See `functools.cache`."""
        self._caches.clear()


class _UnlockedProperty(functools.cached_property[Any]):
    """`functools.cached_property` as of Python 3.12.

    The one of Python 3.11 has a lock for all objects of a class, and so for all simulated
    processes, of which a stopped one may have it.
    """

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        name, values = self.attrname, instance.__dict__
        if name not in values:
            values[name] = self.func(instance)
        return values[name]


_numbers = itertools.count(1)
_NUMBER, _HASH = "_simulated_number", "__hash__"


def _number_of(thing: Any) -> int:
    """Returns a hash that is the same in each run, for sets whose order would be that of memory."""
    if _NUMBER not in vars(thing):
        vars(thing)[_NUMBER] = next(_numbers)
    return int(vars(thing)[_NUMBER])


class _OrderedThreads(dict[threading.Thread, None]):
    """The threads of an executor, which joins them in the order of their start.

    Threads have no numbers: Python makes some for threads of native code, at any time.
    """

    def add(self, thread: threading.Thread) -> None:
        """See `set.add`."""
        self[thread] = None


def _make_executor(self: Any, *arguments: Any, **keywords: Any) -> None:
    _real_make_executor(self, *arguments, **keywords)
    self._threads = _OrderedThreads()


def _number_futures(self: Any, futures: Any) -> None:
    self.futures = sorted(futures, key=_number_of)


def _wall_seconds() -> float:
    return _now(_real_time, has_skew=True)


def _monotonic_seconds() -> float:
    return _now(_real_monotonic, has_skew=False)


def install() -> None:
    """Replaces them, once, in the whole process of the system."""
    time.time = _wall_seconds
    time.time_ns = lambda: int(_wall_seconds() * 1e9)
    time.monotonic = time.perf_counter = _monotonic_seconds
    time.monotonic_ns = time.perf_counter_ns = lambda: int(_monotonic_seconds() * 1e9)
    time.sleep = _sleep
    os.urandom = _urandom
    threads: Any = threading
    threads.Lock = threads._allocate_lock = Lock
    threads.RLock, threads._CRLock = threads._PyRLock, None
    threads._start_new_thread = _start_thread
    threads._time = _monotonic_seconds
    threads.Thread.join, threads.Thread.is_alive = _join, _is_alive
    queues: Any = queue
    queues.SimpleQueue, queues.time = queues._PySimpleQueue, _monotonic_seconds
    sources: Any = random
    sources._urandom = _urandom
    functions: Any = functools
    functions.RLock = threads._PyRLock
    functions.cache = _ProcessCache
    functions.cached_property = _UnlockedProperty
    # The results of `concurrent.futures.wait`, and the threads of an executor, are sets.
    futures: Any = concurrent.futures._base
    setattr(futures.Future, _HASH, _number_of)
    futures._AcquireFutures.__init__ = _number_futures
    names: Any = tempfile
    names._RandomNameSequence.rng = property(lambda _: _Attached.random)
    executors: Any = concurrent.futures.thread
    executors.ThreadPoolExecutor.__init__ = _make_executor
    executors.queue.SimpleQueue = queues._PySimpleQueue
    # It is held while a thread starts.
    executors._global_shutdown_lock = Lock()
