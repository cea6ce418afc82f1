"""A soak of one world: operations and faults, with calms between them."""

import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulation.soak.checks import (
    check_receiver,
    check_shape,
    describe_waiting,
    location_of_results,
)
from simulation.soak.faults import Faults
from simulation.soak.journal import Journal
from simulation.soak.model import Model, Row
from simulation.soak.operations import Operation, Workload
from simulation.soak.processes import Client
from simulation.soak.tables import EXPORTED, QUEUE, TABLES, Receiver
from simulation.soak.world import World
from sleeper.errors import SleeperError

_TICK_SECONDS = 0.02
_ROUGH_SECONDS = (20.0, 60.0)
_OPERATION_SECONDS_MAX = 180.0
_CALM_SECONDS_MAX = 120.0
_IDLE_ROUNDS = 3
_LOOK_SECONDS = 0.3
_CALM_TRIES = 3
_DAYS_SECONDS = 3 * 86_400.0
_KILLED = {"status": -9, "output": "", "error": "killed"}


@dataclass(slots=True)
class _Running:
    """An operation that a client runs."""

    operation: Operation
    start: float


class Soak:
    """Runs operations on clients while faults fire, and compares the tables in calms."""

    def __init__(
        self,
        world: World,
        clients: Sequence[Client],
        spark: Client | None,
        faults: Faults,
        receiver: Receiver,
        journal: Journal,
        chance: random.Random,
    ) -> None:
        self.model = Model()
        self.workload = Workload(self.model, world, chance)
        self._world = world
        self._clients = clients
        self._spark = spark
        self._faults = faults
        self._receiver = receiver
        self._journal = journal
        self._chance = chance
        self._running: dict[str, _Running] = {}
        self._again: deque[Operation] = deque()
        self._results: dict[int, dict[str, Any]] = {}

    def run(self, seconds: float) -> None:
        """Runs for about so long, and then until the world is calm and compared."""
        self.command(self.workload.load_snapshot())
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            rough = self._chance.uniform(*_ROUGH_SECONDS)
            self._rough(left if left - rough < _ROUGH_SECONDS[0] else rough)
            if not self.calm():
                return
        self._finish()

    def _rough(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._faults.begin()
        self._receiver.probability = 0.1
        while time.monotonic() < end:
            self._faults.tick()
            self._faults.keep_up()
            self._collect_answers()
            for client in self._idle_clients():
                self._begin(client, self._next_operation(client))
            time.sleep(_TICK_SECONDS)

    def _next_operation(self, client: Client) -> Operation:
        is_spark = client is self._spark
        for operation in self._again:
            if operation.is_spark == is_spark:
                self._again.remove(operation)
                return operation
        return self.workload.choose_spark() if is_spark else self.workload.choose()

    def _idle_clients(self) -> list[Client]:
        every = [*self._clients, *([self._spark] if self._spark else [])]
        return [client for client in every if client.name not in self._running]

    def _begin(self, client: Client, operation: Operation) -> None:
        if not client.is_alive:
            client.start()
        self._journal.record("begin", client=client.name, kind=operation.kind, job=operation.job)
        self._running[client.name] = _Running(operation, time.monotonic())
        client.send({"arguments": operation.arguments, "uploads": operation.uploads})

    def _collect_answers(self) -> None:
        for client in [*self._clients, *([self._spark] if self._spark else [])]:
            running = self._running.get(client.name)
            if running is None:
                continue
            answer = client.answer()
            if answer is None and time.monotonic() - running.start > _OPERATION_SECONDS_MAX:
                self._journal.fault("timeout", client.kind, job=running.operation.job)
                client.kill()
            if answer is None and not client.is_alive:
                # It may have answered just before its death.
                answer = client.answer() or _KILLED
            if answer is not None:
                del self._running[client.name]
                self._end(running, answer)

    def _end(self, running: _Running, answer: dict[str, Any]) -> None:
        operation, is_done = running.operation, answer["status"] == 0
        outcome = "done" if is_done else "killed" if answer["status"] == -9 else "failed"
        self._journal.operation(
            operation.kind,
            outcome,
            job=operation.job,
            seconds_taken=round(time.monotonic() - running.start, 2),
            error=answer["error"][-600:] if outcome == "failed" else "",
        )
        self._results[id(operation)] = answer
        if is_done:
            rows = operation.read(answer)
            if operation.change is not None:
                operation.change.acknowledge(operation.is_promise)
            if operation.next is not None:
                self._again.append(operation.next)
            if operation.reading is not None and rows is not None:
                self._check(operation.kind, operation, rows)
        elif operation.change is not None:
            operation.tries -= 1
            if operation.tries > 0:
                self._again.append(operation)
            else:
                operation.change.abandon()

    def _check(self, where: str, operation: Operation, rows: list[Row]) -> None:
        assert operation.reading is not None
        self._journal.rows_checked += len(rows)
        for problem in self.model.check(operation.reading, rows):
            self._journal.problem(f"{where}: {problem}; {operation.job}")

    def calm(self) -> bool:
        """Ends the faults, lets the queues drain, and compares all tables. False if one differs."""
        self._faults.calm()
        self._receiver.probability = 0.0
        # The first operation of a Spark session takes a minute and more on a busy machine.
        self._end_operations(time.monotonic() + _OPERATION_SECONDS_MAX)
        if not self._drain(time.monotonic() + _CALM_SECONDS_MAX):
            return False
        self.model.keep_promises()
        for table in TABLES:
            rows = self._compare(table)
            if table == EXPORTED and rows is not None:
                check_receiver(self._receiver, rows, self._journal)
        self._read_results()
        return not self._journal.problems

    def _end_operations(self, deadline: float) -> None:
        """Waits for running operations, and repeats those whose outcome must be known."""
        while (self._running or self._again) and time.monotonic() < deadline:
            self._faults.keep_up()
            self._collect_answers()
            for client in self._idle_clients():
                mine = [op for op in self._again if op.is_spark == (client is self._spark)]
                if mine:
                    self._again.remove(mine[0])
                    self._begin(client, mine[0])
            time.sleep(_TICK_SECONDS)
        for running in self._running.values():
            self._journal.problem(f"does not end without faults: {running.operation.job}")

    def command(self, operation: Operation, tries: int = _CALM_TRIES) -> dict[str, Any] | None:
        """Runs an operation in a calm; None, and a problem, if it fails."""
        client = self._clients[0]
        for _ in range(tries):
            self._begin(client, operation)
            while client.name in self._running:
                self._faults.keep_up()
                self._collect_answers()
                time.sleep(_TICK_SECONDS)
            answer = self._results.pop(id(operation))
            if answer["status"] == 0:
                return answer
        self._journal.problem(f"fails without faults: {operation.job}: {answer['error'][-500:]}")
        return None

    def _drain(self, deadline: float) -> bool:
        """Waits until several looks in a row find nothing unfinished. False at the deadline."""
        rounds, waiting = 0, ["not looked at"]
        while rounds < _IDLE_ROUNDS and time.monotonic() < deadline:
            self._faults.keep_up()
            try:
                waiting = [*describe_waiting(self._world, self._faults.now_ms), *self._exports()]
            except SleeperError as error:
                waiting = [str(error)]
            rounds = 0 if waiting else rounds + 1
            time.sleep(_LOOK_SECONDS)
        if rounds < _IDLE_ROUNDS:
            self._journal.problem(f"no progress without faults: {'; '.join(waiting)}")
        return rounds >= _IDLE_ROUNDS

    def _exports(self) -> list[str]:
        """Returns what is not exported."""
        command = ["export-queue", "status", QUEUE, "--output", "json"]
        answer = self.command(Operation("export-queue status", command))
        output = "" if answer is None else answer["output"]
        is_done = all(f'"{name}": 0,' in output for name in ("lag", "pending"))
        return [] if is_done else [f"exports: {output}"]

    def _compare(self, table: str) -> list[Row] | None:
        rows: list[Row] = []
        operation = self.workload.query(table)
        read = operation.read

        def keep(answer: dict[str, Any]) -> list[Row]:
            rows.extend(read(answer) or [])
            return rows

        operation.read = keep
        return None if self.command(operation) is None else rows

    def _read_results(self) -> None:
        """Compares the rows of queries by message, which have ended."""
        for query, reading in self.workload.queries:
            show = Operation("queries show", ["queries", "show", query, "--output", "json"])
            self._begin(self._clients[0], show)
            while self._clients[0].name in self._running:
                self._collect_answers()
                time.sleep(_TICK_SECONDS)
            location = location_of_results(self._results.pop(id(show)))
            if location is not None:
                rows = self._world.rows_of_files(location)
                self._check("query by message", Operation("", [query], reading=reading), rows)
        self.workload.queries.clear()

    def _finish(self) -> None:
        """Compacts everything, and purges and collects it days later."""
        compact, purge, collect = ["compact", "--all"], ["purge"], ["gc"]
        for steps in ([compact], [purge], [collect, [*collect, "--orphans"]]):
            for step in steps:
                for table in TABLES:
                    self.command(Operation(" ".join(step), [step[0], table, *step[1:]]))
            # Files of runs that are days old are not committed any more.
            if not self._drain(time.monotonic() + _CALM_SECONDS_MAX):
                return
            self._faults.calm(_DAYS_SECONDS)
        if self.calm():
            check_shape(self._world, self._faults.now_ms, self._journal)
            self._restore_backups()

    def _restore_backups(self) -> None:
        for number, (source, readings) in enumerate(self.workload.backups[-2:]):
            target = str(self._world.folder / f"restored-{number}")
            arguments = ["--instance", target, "instance", "restore", source]
            if self.command(Operation("restore", arguments)) is None:
                continue
            for table, reading in readings.items():
                operation = self.workload.query(table)
                operation.arguments = ["--instance", target, *operation.arguments]
                operation.reading = reading
                self.command(operation)
