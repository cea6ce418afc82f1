"""An event loop of a simulated thread: its waits are virtual, and others run meanwhile."""

import textwrap

from tests.simulation.programs import run_program

SETUP = """
from random import Random
from simulation.scheduling import patching
patching.install()
import asyncio, os, sys, threading, time
from anyio import create_task_group, to_thread
from simulation.scheduling.event_loop import SimulatedLoop
from simulation.scheduling.scheduler import Machine, Process, Scheduler
scheduler = Scheduler(Random(7), 1000.0)
patching.attach(scheduler, 7)
"""
END = """
scheduler.run(Process("one", Machine()), lambda: SimulatedLoop().run(work()))
sys.stdout.flush()
os._exit(0)  # its threads wait for their turn
"""


def run(body: str) -> list[str]:
    return run_program(SETUP + textwrap.dedent(body) + END)


def test_waits_take_virtual_time() -> None:
    assert run("""
        async def work():
            await asyncio.sleep(86400)
            print(time.monotonic() - 1000)
    """) == ["86400.0"]


def test_a_thread_works_while_the_loop_waits_for_it() -> None:
    assert run("""
        def step():
            time.sleep(5.0)
            return threading.current_thread().name
        async def work():
            print(await to_thread.run_sync(step), time.monotonic() - 1000)
    """) == ["AnyIO worker thread 5.0"]


def test_the_order_of_tasks_is_the_same_in_each_run() -> None:
    body = """
        async def end(name):
            try:
                await asyncio.sleep(1000)
            finally:
                print(name)
        async def work():
            async with create_task_group() as tasks:
                for name in "abcdefgh":
                    tasks.start_soon(end, name)
                await asyncio.sleep(1)
                tasks.cancel_scope.cancel()
    """
    assert run(body) == run(body)
