"""A session: one world from its start to its report, with all processes ended."""

import contextlib
import random
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil

import sleeper
from simulation.soak.aws_world import aws_world
from simulation.soak.faults import Faults
from simulation.soak.journal import Journal
from simulation.soak.processes import SPARK_KIND, Client, WrongClock, end_all
from simulation.soak.run import Soak
from simulation.soak.tables import EXPORTED, PROPERTIES, QUEUE, SCHEMA, Receiver
from simulation.soak.world import MARK_VARIABLE, World, local_world
from sleeper.clock import system_clock
from tests.servers.http_receivers import http_server

_MakeWorld = Callable[
    [Path, WrongClock, Journal, random.Random], AbstractContextManager[World, bool | None]
]
WORLDS: Mapping[str, _MakeWorld] = {"local": local_world, "aws": aws_world}
_CLIENTS = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """What a session runs. `servers` is the kind of its world."""

    servers: str
    seed: int
    seconds: float
    folder: Path
    has_spark: bool = False


def run_session(settings: Settings) -> Journal:
    """Runs a soak, and returns its journal. Deletes the folder if there was no problem."""
    folder = settings.folder
    folder.mkdir(parents=True)
    journal = Journal(folder / "journal.jsonl")
    journal.record("settings", seed=settings.seed, servers=settings.servers)
    chance = random.Random(settings.seed)
    clocks = [WrongClock(folder / f"clock-{name}") for name in ("background", "clients", "spark")]
    receiver = Receiver(random.Random(chance.random()), journal)
    proxies = random.Random(chance.random())
    with (
        contextlib.closing(journal),
        http_server(receiver.respond) as server,
        WORLDS[settings.servers](folder, clocks[0], journal, proxies) as world,
    ):
        _create_tables(world, server.url)
        clients = [_client(world, clocks[1], f"client-{number}") for number in range(_CLIENTS)]
        spark = _spark_client(world, clocks[2]) if settings.has_spark else None
        every = [*clients, *([spark] if spark else [])]
        faults = Faults(world, every, clocks, journal, chance)
        try:
            Soak(world, clients, spark, faults, receiver, journal, chance).run(settings.seconds)
        finally:
            world.set_faults(0.0)
            end_all([*every, *world.background], journal)
            _end_marked(folder, journal)
    if not journal.problems:
        shutil.rmtree(folder)
    return journal


def _create_tables(world: World, receiver_url: str) -> None:
    with sleeper.Instance(world.open(system_clock)) as instance:
        for name, properties in PROPERTIES.items():
            instance.create_table(name, SCHEMA, properties)
        instance.create_export_queue(
            QUEUE,
            EXPORTED,
            on="ingest",
            keys="k",
            values="v",
            exporter=f"webhook:{receiver_url}/",
            buckets=8,
        )


def _client(world: World, clock: WrongClock, name: str) -> Client:
    command = [sys.executable, "-m", "simulation.soak.client"]
    return Client(name, "client", command, world.environment(clock), world.folder, has_pipes=True)


def _spark_client(world: World, clock: WrongClock) -> Client:
    command = [sys.executable, "-m", "simulation.soak.spark_client"]
    environment = world.environment(clock)
    return Client("spark", SPARK_KIND, command, environment, world.folder, has_pipes=True)


def _end_marked(folder: Path, journal: Journal) -> None:
    """Kills processes of this soak whose parents died."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK_VARIABLE) == str(folder):
                process.kill()
                journal.record("killed a remaining process", command=process.cmdline()[:4])


def describe(journal: Journal, settings: Settings, seconds: float) -> str:
    """Returns the report of a session."""
    lines = [
        f"{settings.servers}{' with Spark' if settings.has_spark else ''}, seed {settings.seed}: "
        f"{seconds:.0f} s, {journal.operations.total()} operations "
        f"({_list(journal.outcomes)}), {journal.faults.total()} faults, "
        f"{journal.rows_checked:,} rows checked, {len(journal.problems)} problems",
        f"  operations: {_list(journal.operations)}",
        f"  faults: {_list(journal.faults)}",
    ]
    if journal.problems:
        lines += [f"  problem: {text}" for text in journal.problems]
        lines += [f"  fault before: {text}" for text in journal.last_faults]
        lines += [
            f"  folder: {settings.folder}",
            f"  again: python -m simulation.soak --minutes {settings.seconds / 60:g} "
            f"--seed {settings.seed} --servers {settings.servers}"
            f"{',spark' if settings.has_spark else ''}",
        ]
    return "\n".join(lines)


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
