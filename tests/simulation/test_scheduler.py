"""Threads of simulated processes: their order, their time, locks between them, and death."""

import textwrap

import pytest

from tests.simulation.programs import run_program

SETUP = """
from random import Random
from simulation.scheduling import patching
patching.install()
import concurrent.futures, queue, threading, time, uuid
from simulation.scheduling.scheduler import DeadlockError, Machine, Process, Scheduler
scheduler = Scheduler(Random(7), 1000.0)
patching.attach(scheduler, 7)
machine = Machine()
process, other = Process("one", machine), Process("other", machine)
"""


def run(body: str) -> list[str]:
    """Runs a program whose `main` is the first thread; returns the lines that it prints."""
    return run_program(SETUP + textwrap.dedent(body) + "\nscheduler.run(process, main)\n")


def test_time_moves_only_when_all_wait() -> None:
    lines = run("""
        def main():
            def sleep(seconds):
                time.sleep(seconds)
                print(seconds, time.monotonic() - 1000)
            threads = [threading.Thread(target=sleep, args=(s,)) for s in (86400.0, 1.0, 60.0)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    """)
    assert lines == ["1.0 1.0", "60.0 60.0", "86400.0 86400.0"]


def test_a_seed_decides_the_order_of_threads_and_random_names() -> None:
    body = """
        def main():
            done = queue.SimpleQueue()
            def work(name):
                for _ in range(3):
                    scheduler.switch()
                    done.put(name)
                done.put(uuid.uuid4().hex)
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                for name in "abc":
                    pool.submit(work, name)
            while not done.empty():
                print(done.get())
    """
    assert run(body) == run(body)
    assert run(body)[:9] != sorted(run(body)[:9])


def test_a_lock_makes_threads_of_processes_wait() -> None:
    lines = run("""
        def main():
            lock = threading.Lock()
            def hold():
                with lock:
                    time.sleep(10)
            scheduler.spawn(other, "hold", hold)
            time.sleep(1)
            print(lock.acquire(timeout=2), time.monotonic() - 1000)
            print(lock.acquire(), time.monotonic() - 1000)
    """)
    assert lines == ["False 3.0", "True 10.0"]


def test_a_killed_process_ends_where_it_waits_and_releases_its_locks() -> None:
    lines = run("""
        def main():
            lock = threading.Lock()
            def hold():
                try:
                    with lock:
                        time.sleep(1000)
                    print("not killed")
                finally:
                    try:
                        time.sleep(5)
                        print("waited after its death")
                    except BaseException as error:
                        print(type(error).__name__)
                        raise
            thread = scheduler.spawn(other, "hold", hold)
            time.sleep(1)
            scheduler.kill(other)
            print(scheduler.join(thread), lock.acquire(False), time.monotonic() - 1000)
    """)
    assert lines == ["Killed", "True True 1.0"]


def test_waiting_for_each_other_is_reported() -> None:
    lines = run("""
        def main():
            try:
                threading.Event().wait()
            except DeadlockError as error:
                print(error)
    """)
    assert lines == ["all threads wait:", "one/main: waits"]


def test_a_process_can_run_alone() -> None:
    lines = run("""
        def main():
            def print_alone():
                while True:
                    print("other")
                    time.sleep(1)
            scheduler.spawn(other, "print", print_alone)
            with scheduler.exclusively():
                time.sleep(10)
                print("alone", time.monotonic() - 1000)
            time.sleep(0.5)
    """)
    assert lines == ["alone 10.0", "other"]


@pytest.mark.parametrize("skew", [-3600.0, 60.0])
def test_the_wall_clock_of_a_machine_may_be_wrong(skew: float) -> None:
    lines = run(f"""
        def main():
            machine.skew_seconds = {skew}
            print(time.time() - 1000, time.monotonic() - 1000)
    """)
    assert lines == [f"{skew} 0.0"]


def test_a_cached_property_is_not_locked_for_other_processes() -> None:
    lines = run("""
        import functools

        class Slow:
            @functools.cached_property
            def value(self):
                time.sleep(1.0)
                return time.monotonic() - 1000

        def main():
            slow = Slow()
            scheduler.spawn(other, "reader", lambda: Slow().value)
            scheduler.sleep(0.5)
            with scheduler.exclusively():
                print(slow.value, slow.value)
    """)
    assert lines == ["1.5 1.5"]
