"""Prints how tasks end that ECS stops: `python -m tests.simulation.aws.stopped_tasks`.

A *polite* worker makes a call each second, a *busy* one none, and a *stuck* one cannot return its
message either. A *function* reaches its time limit during its third call.
"""

from simulation import surroundings
from simulation.scheduling import patching

surroundings.make_alike()
patching.install()

from contextlib import suppress  # noqa: E402 (after the replacement of Python's modules)
from typing import Any  # noqa: E402

from simulation.aws import tasks as module  # noqa: E402
from simulation.calls import Call, Fault  # noqa: E402
from simulation.processes import Processes  # noqa: E402
from simulation.scheduling.scheduler import Machine, Process  # noqa: E402
from simulation.services.control import Tasks  # noqa: E402
from simulation.world import START_SECONDS, World  # noqa: E402
from sleeper.jobs.event import JobKind  # noqa: E402
from sleeper.workers.worker import InterruptedJobError  # noqa: E402

_BEHAVIOURS = ("polite", "busy", "stuck")


def refuse(fault: Fault) -> Exception:
    return ConnectionError(fault)


class Instance:
    """Opens as the behaviour of the next task."""

    def __init__(self, world: World) -> None:
        self.processes = Processes(world, lambda _name: Machine())
        self._behaviours = iter(_BEHAVIOURS)
        self.behaviour = ""

    def open(self) -> "Instance":
        opened = Instance.__new__(Instance)
        opened.behaviour = next(self._behaviours)
        return opened

    def close(self) -> None:
        say(f"{self.behaviour} closes")


class Worker:
    """Behaves as its instance says."""

    def __init__(self, instance: Instance, *_: object) -> None:
        self._behaviour = instance.behaviour

    def run(self) -> None:
        with suppress(InterruptedJobError):
            while True:
                world.scheduler.sleep(1.0 if self._behaviour == "polite" else 1000.0)
                call()
        say(f"{self._behaviour} is interrupted")

    def interrupt(self) -> None:
        raise InterruptedJobError

    def abandon(self) -> None:
        if self._behaviour == "stuck":
            world.scheduler.sleep(1000.0)
        say(f"{self._behaviour} returns its message")


def call() -> None:
    world(Call("sqs", "receive"), lambda: None, refuse)


def say(text: str) -> None:
    print(f"{world.scheduler.now - START_SECONDS - started:.0f} s: {text}")


def run_function() -> None:
    with world.limited(25.0):
        for number in range(9):
            world.scheduler.sleep(10.0)
            call()
            print(f"call {number}")


def main() -> None:
    global started
    tasks: Any = Tasks()
    instance: Any = Instance(world)
    starter = module.TaskProcesses(world, instance, tasks)
    for _ in _BEHAVIOURS:
        starter.start(tasks.start("arn/family:1"), JobKind.INGEST)
        started = world.scheduler.now - START_SECONDS
        world.scheduler.sleep(100.0)
        assert not tasks.running
    world.scheduler.join(instance.processes.start("function", run_function)[1])


started = 0.0
world = World.create(1, frozenset())
replaced: Any = module
replaced.Worker = Worker
replaced._STOPPED, replaced._STOPPED_SECONDS = 1.0, (1.0,)
world.scheduler.run(Process("world", Machine(), meets_faults=False), main)
history = (line.split(None, 2)[2] for line in world.trace.lines)
print(*(text for text in history if not text.startswith("sqs")), sep="\n")
