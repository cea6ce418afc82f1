"""The faults of a soak, at random times and targets: dead, stopped and misdated processes."""

import contextlib
import random
import signal
import time
from collections.abc import Sequence

import psutil

from simulation.soak.journal import Journal
from simulation.soak.processes import SPARK_KIND, Process, WrongClock
from simulation.soak.world import World

_PERIOD_SECONDS = (0.3, 2.5)
_PAUSE_SECONDS = (0.3, 6.0)
_AHEAD_SECONDS = (-1800.0, 7200.0)
_SERVER_PAUSE_SECONDS = (0.5, 5.0)
_PROBABILITIES = (0.0, 0.01, 0.03, 0.1)
_WEIGHTS = {"kill": 5, "stop": 4, "clock": 3, "restart": 1, "away": 2, "connections": 3}
_CALM_AHEAD_SECONDS = 4 * 3600.0


class Faults:
    """Fires faults. A calm advances all clocks, so that each lease has passed."""

    def __init__(
        self,
        world: World,
        clients: Sequence[Process],
        clocks: Sequence[WrongClock],
        journal: Journal,
        chance: random.Random,
    ) -> None:
        self.base_seconds = 0.0
        self._world = world
        self._clients = clients
        self._clocks = clocks
        self._journal = journal
        self._chance = chance
        self._next = 0.0

    def now_ms(self) -> int:
        """The time that all processes have in a calm."""
        return int((time.time() + self.base_seconds) * 1000)

    def begin(self) -> None:
        """Ends a calm."""
        self._next = time.monotonic()
        self._world.set_faults(_PROBABILITIES[1])

    def tick(self) -> None:
        """Lets stopped processes go on, and fires the next fault if it is due."""
        for process in self._all():
            process.resume_if_due()
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._chance.uniform(*_PERIOD_SECONDS)
            self._fire()

    def calm(self, ahead_seconds: float = _CALM_AHEAD_SECONDS) -> None:
        """Ends all faults, and advances the clocks."""
        self._world.set_faults(0.0)
        for process in self._all():
            process.resume_if_due(is_forced=True)
        self.keep_up()
        self.base_seconds += ahead_seconds
        for clock in self._clocks:
            clock.set(self.base_seconds)
        self._journal.record("calm", clocks_ahead_seconds=self.base_seconds)

    def keep_up(self) -> None:
        """Starts background processes and servers that have ended."""
        for process in (*self._world.servers, *self._world.background):
            if not process.is_alive:
                process.start()
        self._world.pass_time()

    def _all(self) -> Sequence[Process]:
        return (*self._clients, *self._world.background, *self._world.servers)

    def _fire(self) -> None:
        (kind,) = self._chance.choices([*_WEIGHTS], [*_WEIGHTS.values()])
        processes = [*self._clients, *self._world.background]
        # A Spark session takes so long to start that it would otherwise do nothing.
        weights = [1 if process.kind == SPARK_KIND else 4 for process in processes]
        (process,) = self._chance.choices(processes, weights)
        draw = self._chance.random()
        match kind:
            case "kill":
                self._kill(process, draw)
            case "stop":
                self._stop(process, draw)
            case "clock":
                position = self._chance.randrange(len(self._clocks))
                seconds = self._chance.uniform(*_AHEAD_SECONDS)
                self._clocks[position].set(self.base_seconds + seconds)
                self._journal.fault("clock jump", f"clock {position}", seconds=round(seconds))
            case "restart" | "away" if self._world.servers:
                self._disturb_server(kind, self._chance.choice(self._world.servers))
            case "connections" if self._world.servers:
                probability = self._chance.choice(_PROBABILITIES)
                self._world.set_faults(probability)
                self._journal.record("connections", probability=probability)

    def _kill(self, process: Process, draw: float) -> None:
        victim = _choose(process.tree(), draw)
        if victim is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGKILL)
                self._journal.fault("kill -9", _label(process, victim), pid=victim.pid)

    def _stop(self, process: Process, draw: float) -> None:
        seconds = self._chance.uniform(*_PAUSE_SECONDS)
        victim = _choose(process.tree(), draw)
        if victim is not None and process.resume_at is None:
            process.pause(victim, seconds)
            label = _label(process, victim)
            self._journal.fault("SIGSTOP", label, pid=victim.pid, seconds=round(seconds, 1))

    def _disturb_server(self, kind: str, server: Process) -> None:
        seconds = self._chance.uniform(*_SERVER_PAUSE_SECONDS)
        tree = server.tree()
        if not tree or server.resume_at is not None:
            return
        if kind == "away":
            server.pause(tree[0], seconds)
            self._journal.fault("SIGSTOP", server.kind, seconds=round(seconds, 1))
        else:
            server.restart()
            self._journal.fault("restart", server.kind)


def _choose(tree: Sequence[psutil.Process], draw: float) -> psutil.Process | None:
    return tree[int(draw * len(tree))] if tree else None


def _label(process: Process, victim: psutil.Process) -> str:
    is_first = process.process is not None and victim.pid == process.process.pid
    return process.kind if is_first else f"child of {process.kind}"
