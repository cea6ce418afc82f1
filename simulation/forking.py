"""Runs each seed in a process of its own, forked from one that has imported everything.

So a seed never sees what another left in memory, and a hang ends with its process. The parent must
not have started threads of the engine, which a fork would lose.
"""

import ctypes
import faulthandler
import gc
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from simulation.plan import Plan
from simulation.result import RESULTS, Result
from simulation.surroundings import own_folder, remove_folder

# Only a history that hangs needs so long, on the slowest machine.
_SECONDS_MAX = 300.0
_CHUNK_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1


@dataclass
class _Child:
    plan: Plan
    process_id: int
    started: float
    content: bytearray = field(default_factory=bytearray)


def run_forked(
    plans: Iterable[Plan], run: Callable[[Plan], Result], parallel: int = 1
) -> Iterator[Result]:
    """Yields the results of plans as they end. A plan that hangs or dies is a failure."""
    selector, waiting = selectors.DefaultSelector(), iter(plans)
    has_more = True
    # Collections of a history look at its own objects only.
    gc.freeze()
    try:
        while True:
            while has_more and len(selector.get_map()) < parallel:
                plan = next(waiting, None)
                has_more = plan is not None
                if plan is not None:
                    descriptor, child = _start(plan, run)
                    selector.register(descriptor, selectors.EVENT_READ, child)
            if not selector.get_map():
                return
            yield from _collect(selector)
    finally:
        for key in list(selector.get_map().values()):
            os.kill(key.data.process_id, signal.SIGKILL)
            _wait(key.data.process_id)
            os.close(key.fd)
        selector.close()


def _collect(selector: selectors.BaseSelector) -> Iterator[Result]:
    for key, _ in selector.select(1.0):
        child: _Child = key.data
        chunk = os.read(key.fd, _CHUNK_BYTES)
        child.content += chunk
        if not chunk:
            selector.unregister(key.fd)
            os.close(key.fd)
            yield _parse(child, _wait(child.process_id))
    for key in list(selector.get_map().values()):
        if time.monotonic() - key.data.started > _SECONDS_MAX:
            os.kill(key.data.process_id, signal.SIGABRT)  # faulthandler prints its threads


def _wait(process_id: int) -> int:
    _, status = os.waitpid(process_id, 0)
    remove_folder(process_id)
    return status


def _parse(child: _Child, status: int) -> Result:
    if child.content:
        return RESULTS.parse(child.content.decode(), "result of a seed")
    return Result(child.plan.seed, f"process ended: status {status}")


def _start(plan: Plan, run: Callable[[Plan], Result]) -> tuple[int, _Child]:
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    process_id = os.fork()
    if process_id == 0:
        os.close(reading)
        _run_child(plan, run, writing)
    os.close(writing)
    return reading, _Child(plan, process_id, time.monotonic())


def _run_child(plan: Plan, run: Callable[[Plan], Result], writing: int) -> None:
    faulthandler.enable()
    # Functions print logs and metrics, which the history has too.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    if sys.platform == "linux":  # and its death does
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    own_folder()
    try:
        result = run(plan)
    except BaseException as error:
        traceback.print_exc()
        result = Result(plan.seed, f"{type(error).__name__}: {error}")
    content = RESULTS.format(result).encode()
    while content:
        content = content[os.write(writing, content) :]
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the history still wait, and exit handlers must not run in them.
    os._exit(0)
