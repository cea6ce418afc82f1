"""One run of the simulation: a load on an account for some virtual time, and its samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulation.scale.jobs import JobRunner
from simulation.scale.ledger import SQS_REQUESTS, metric_dollars
from simulation.scale.limits import ESTABLISHED, Account
from simulation.scale.load import Load, Outage
from simulation.scale.operations import Operations
from simulation.scale.rules import Rules
from simulation.scale.work import Work
from simulation.scale.world import Table, World

MONTH_SECONDS = 730 * 3600
# Metrics of a table that `report_table_metrics` publishes.
_METRICS = 9
# Each queue of a function is polled by at least five long polls of 20 s.
_POLLS_SECOND = 0.25
_NOTHING = Work(0, {}, {})


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of an instance at a time. `ages` are those of the oldest messages."""

    seconds: float
    depths: dict[str, int]
    ages: dict[str, float]
    tasks: dict[str, int]
    functions: int
    commits: int
    ingested: int
    files_per_leaf: float


@dataclass(frozen=True, slots=True)
class Result:
    """The samples of a run and its totals. `rounds` are durations by operation, in seconds."""

    samples: Sequence[Sample]
    rounds: dict[str, list[float]]
    dollars_month: dict[str, float]
    world: World
    operations: Operations

    @property
    def last(self) -> Sample:
        """The state at the end."""
        return self.samples[-1]

    def mean(self, value: Callable[[Sample], float]) -> float:
        """Returns the mean of a value in the later half of the run."""
        later = self.samples[len(self.samples) // 2 :]
        return sum(value(sample) for sample in later) / len(later)

    def round_seconds(self, operation: str) -> float:
        """Returns the mean duration of the later half of the rounds, 0 if none ended."""
        rounds = self.rounds[operation]
        later = rounds[len(rounds) // 2 :]
        return sum(later) / len(later) if later else 0.0


def simulate(
    rules: Rules,
    works: dict[str, Work],
    load: Load,
    seconds: float,
    account: Account = ESTABLISHED,
    seed: int = 0,
    outage: Outage | None = None,
    samples: int = 120,
) -> Result:
    """Runs the load for so many virtual seconds."""
    world = World(rules, works, account, load, seed)
    runner = JobRunner(world)
    operations = Operations(world)
    for name, queue in world.queues.items():
        if name.replace("_", "-") in rules.schedules and queue.rule.receiver is not None:
            creates = name == "compaction_job_creation"
            operations.add(name, runner.create_jobs if creates else _do_nothing)
    operations.add_others(runner.fleets)
    runner.send_ingests()
    if outage is not None:
        world.timeline.after(outage.start, lambda: _set_out(world, True))
        world.timeline.after(outage.end, lambda: _set_out(world, False))
    taken: list[Sample] = []
    world.timeline.every(seconds / samples, lambda: taken.append(_sample(world, runner)))
    world.timeline.run(seconds)
    for fleet in runner.fleets.values():
        fleet.bill()
    return Result(
        taken,
        operations.rounds,
        _month(world, seconds),
        world,
        operations,
    )


def _do_nothing(_: Table) -> Work:
    return _NOTHING


def _set_out(world: World, is_out: bool) -> None:
    world.functions.is_out = world.launcher.is_out = is_out


def _sample(world: World, runner: JobRunner) -> Sample:
    leaves = sum(table.leaves.count for table in world.tables)
    return Sample(
        world.timeline.now,
        {name: queue.counts().visible for name, queue in world.queues.items()},
        {name: queue.age_seconds() for name, queue in world.queues.items()},
        {kind: fleet.running for kind, fleet in runner.fleets.items()},
        world.functions.running.total(),
        world.commits,
        runner.ingested,
        sum(table.leaves.files for table in world.tables) / leaves,
    )


def _month(world: World, seconds: float) -> dict[str, float]:
    """Returns the dollars of a month at this load, by purpose. Storage is not included."""
    polled = sum(1 for queue in world.queues.values() if queue.rule.receiver is not None)
    world.ledger.add("polls of queues", {SQS_REQUESTS: polled * _POLLS_SECOND * seconds})
    times = MONTH_SECONDS / seconds
    dollars = {purpose: value * times for purpose, value in world.ledger.dollars().items()}
    if "table_metrics" in world.queues:
        dollars["metrics of tables"] = metric_dollars(_METRICS * world.load.tables)
    dollars["alarms"] = world.rules.alarms * 0.1
    return dollars
