"""The scenarios, each a sweep over a load or a course of time, and their charts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from simulation.scale.chart import Axis, Chart, Line
from simulation.scale.limits import ESTABLISHED, Account
from simulation.scale.load import Load, Outage
from simulation.scale.rules import Rules
from simulation.scale.simulate import MONTH_SECONDS, Result, Sample, simulate
from simulation.scale.work import Work
from sleeper.properties.table import INGEST_COMMIT_ASYNC
from sleeper.properties.values import instance_properties

_HOUR = 3600.0
_CREATION = "compaction_job_creation"
_TABLE_COUNTS = (1, 10, 100, 300, 1_000, 3_000, 10_000, 30_000)
_COHORTS_MAX = 20
"""Cohorts of a sweep over tables. There must be more than runs at once."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all scenarios have: the product's rules, the measured works, and a seed.

    `scale` shortens all runs and shrinks all loads, for tests.
    """

    rules: Rules
    works: dict[str, Work]
    seed: int = 0
    scale: float = 1.0

    def run(
        self,
        load: Load,
        seconds: float,
        account: Account = ESTABLISHED,
        outage: Outage | None = None,
    ) -> Result:
        """Runs a load."""
        return simulate(
            self.rules, self.works, load, seconds * self.scale, account, self.seed, outage
        )


def with_properties(rules: Rules, values: Mapping[str, str]) -> Rules:
    """Returns the rules with other values of properties that need no deployment."""
    return replace(rules, properties=instance_properties({**rules.properties.values, **values}))


def through_committer(rules: Rules) -> Rules:
    """Returns the rules of tables whose ingests commit through the committer."""
    declaration = INGEST_COMMIT_ASYNC.default_from
    assert declaration is not None
    return with_properties(rules, {declaration.name: "true"})


def with_commit_batch(rules: Rules, batch: int) -> Rules:
    """Returns the rules with other batches of the committer."""
    commits = replace(rules.queues["commits"], batch=batch)
    return replace(rules, queues={**rules.queues, "commits": commits})


def idle(setting: Setting) -> list[Chart]:
    """Tables without work: how long a round takes, and what a month costs."""
    results = {n: setting.run(_tables(n), 8 * _HOUR) for n in _TABLE_COUNTS}
    operations = (_CREATION, "table_metrics", "garbage_collection", "state_snapshots")
    rounds = [
        Line(name.replace("_", " "), [(n, r.round_seconds(name)) for n, r in results.items()])
        for name in operations
    ]
    period = setting.rules.schedules["compaction-job-creation"].period_seconds
    limit = Line("period of job creation", [(n, period) for n in _TABLE_COUNTS], limit=True)
    tables, dollars = Axis("tables", True), Axis("dollars a month", True)
    return [
        Chart(
            "scale-rounds",
            "Idle: from the message of the last table to its handling",
            tables,
            Axis("seconds", True),
            [*rounds, limit],
        ),
        Chart("scale-idle", "Idle: dollars a month", tables, dollars, _dollar_lines(results)),
    ]


def month(setting: Setting) -> Result:
    """10,000 idle tables for a month."""
    return setting.run(_tables(10_000), MONTH_SECONDS)


def steady(setting: Setting) -> list[Chart]:
    """Small ingests, spread evenly over 10,000 tables."""
    rates = (1, 10, 100, 300, 600, 1_000)
    results = {
        rate: setting.run(Load(10_000, max(1, rate // 5), ingests_second=rate), _HOUR)
        for rate in rates
    }
    ingests = Axis("ingests a second", True)
    tasks = [
        Line(f"{kind} tasks", [(n, r.mean(_tasks(kind))) for n, r in results.items()])
        for kind in ("ingest", "compaction")
    ]
    ages = [
        Line(f"{name} queue", [(n, r.mean(_age(name))) for n, r in results.items()])
        for name in ("ingest", "compaction", "commits")
    ]
    files = [(n, r.mean(lambda s: s.files_per_leaf)) for n, r in results.items()]
    return [
        Chart(
            "scale-steady-tasks",
            "Even load: mean number of tasks",
            ingests,
            Axis("tasks", True),
            tasks,
        ),
        Chart(
            "scale-steady-ages",
            "Even load: age of the oldest message",
            ingests,
            Axis("seconds", True),
            [*ages, Line("files a leaf, at the end", files)],
        ),
        Chart(
            "scale-steady-dollars",
            "Even load: dollars a month",
            ingests,
            Axis("dollars a month", True),
            _dollar_lines(results),
        ),
    ]


def hot(setting: Setting) -> list[Chart]:
    """One table that takes all ingests."""
    direct = (1, 5, 10, 20, 40)
    committed = (1, 20, 60, 120, 180, 260)
    lines = [
        _committed(setting, "direct commits", direct),
        _committed(
            replace(setting, rules=through_committer(setting.rules)), "committer", committed
        ),
        _committed(
            replace(setting, rules=with_commit_batch(through_committer(setting.rules), 1)),
            "committer, batches of 1",
            (1, 10, 20, 40, 80),
        ),
        Line("sent", [(n, n) for n in committed], limit=True),
    ]
    return [
        Chart(
            "scale-hot",
            "One hot table: commits of ingests",
            Axis("ingests a second"),
            Axis("committed a second"),
            lines,
        )
    ]


def outage(setting: Setting) -> list[Chart]:
    """An hour without functions and tasks, while clients send on."""
    result = setting.run(
        Load(10_000, 50, ingests_second=20),
        5 * _HOUR,
        outage=Outage(_HOUR * setting.scale, 2 * _HOUR * setting.scale),
    )
    minutes = [(sample.seconds / 60, sample) for sample in result.samples]
    return [
        Chart(
            "scale-outage",
            "An outage from minute 60 to 120, at 20 ingests a second",
            Axis("minutes"),
            Axis("messages, tasks", True),
            [
                Line("ingests that wait", [(m, s.depths["ingest"]) for m, s in minutes]),
                Line("compactions that wait", [(m, s.depths["compaction"]) for m, s in minutes]),
                Line("ingest tasks", [(m, s.tasks["ingest"]) for m, s in minutes]),
                Line("compaction tasks", [(m, s.tasks["compaction"]) for m, s in minutes]),
            ],
        )
    ]


def many_leaves(setting: Setting) -> list[Chart]:
    """A table of a million leaves, each touched by every ingest: one every ten minutes."""
    leaves = max(1_000, int(1_000_000 * setting.scale))
    result = setting.run(Load(leaves=leaves, ingests_second=1 / 600, rows=10), 8 * _HOUR)
    hours = [(sample.seconds / 3600, sample) for sample in result.samples]
    return [
        Chart(
            "scale-leaves",
            "A million leaves, an ingest every ten minutes",
            Axis("hours"),
            Axis("files a leaf"),
            [Line("files a leaf", [(h, s.files_per_leaf) for h, s in hours])],
        ),
        Chart(
            "scale-leaves-jobs",
            "A million leaves: compaction jobs",
            Axis("hours"),
            Axis("jobs, tasks", True),
            [
                Line("jobs that wait", [(h, s.depths["compaction"]) for h, s in hours]),
                Line("commits that wait", [(h, s.depths["commits"]) for h, s in hours]),
                Line("tasks", [(h, s.tasks["compaction"]) for h, s in hours]),
            ],
        ),
    ]


def new_account(setting: Setting) -> list[Chart]:
    """Idle tables in accounts with little concurrency."""
    counts = (100, 300, 1_000, 2_000, 4_000)
    lines = []
    for concurrency in (10, 50, 1_000):
        account = replace(ESTABLISHED, lambda_concurrency=concurrency)
        results = {n: setting.run(_tables(n), 2 * _HOUR, account) for n in counts}
        points = [(n, r.round_seconds(_CREATION)) for n, r in results.items()]
        lines.append(Line(f"concurrency {concurrency}", points))
    period = setting.rules.schedules["compaction-job-creation"].period_seconds
    lines.append(Line("period", [(n, period) for n in counts], limit=True))
    return [
        Chart(
            "scale-new-account",
            "New accounts: a round of compaction job creation",
            Axis("tables", True),
            Axis("seconds", True),
            lines,
        ),
        _processors(setting),
    ]


def _processors(setting: Setting) -> Chart:
    """An ingest a second with the processors of Fargate that new accounts have, and with more."""
    lines = []
    for cpus in (6, 16, 4_000):
        account = replace(ESTABLISHED, fargate_cpus=cpus)
        result = setting.run(Load(100, ingests_second=1), 6 * _HOUR, account)
        points = [(s.seconds / 3600, s.files_per_leaf) for s in result.samples]
        lines.append(Line(f"{cpus:,} processors", points))
    title = "New accounts: files a leaf of 100 tables, at an ingest a second"
    return Chart("scale-processors", title, Axis("hours"), Axis("files a leaf", True), lines)


SCENARIOS: Mapping[str, Callable[[Setting], list[Chart]]] = {
    "idle": idle,
    "steady": steady,
    "hot": hot,
    "outage": outage,
    "leaves": many_leaves,
    "new-account": new_account,
}


def _tasks(kind: str) -> Callable[[Sample], float]:
    return lambda sample: sample.tasks[kind]


def _age(queue: str) -> Callable[[Sample], float]:
    return lambda sample: sample.ages[queue]


def _tables(count: int) -> Load:
    return Load(count, max(1, count // _COHORTS_MAX))


def _committed(setting: Setting, name: str, rates: Sequence[int]) -> Line:
    seconds = 300.0
    points = []
    for rate in rates:
        result = setting.run(Load(ingests_second=rate), seconds + 120)
        # The first tasks start after two minutes.
        first = next(s for s in result.samples if s.seconds >= 120 * setting.scale)
        span = result.last.seconds - first.seconds
        points.append((float(rate), (result.last.ingested - first.ingested) / span))
    return Line(name, points)


def _dollar_lines(results: Mapping[int, Result]) -> list[Line]:
    parts: dict[str, Callable[[Mapping[str, float]], float]] = {
        "all": lambda d: sum(d.values()),
        "metrics of tables": lambda d: d.get("metrics of tables", 0.0),
        "job creation": lambda d: d.get("create-compaction-jobs", 0.0),
        "tasks": lambda d: d.get("ingest tasks", 0.0) + d.get("compaction tasks", 0.0),
        "requests of jobs": lambda d: d.get("ingest jobs", 0.0) + d.get("compaction jobs", 0.0),
    }
    lines = [
        Line(name, [(n, part(r.dollars_month)) for n, r in results.items()])
        for name, part in parts.items()
    ]
    return [line for line in lines if any(y > 0 for _, y in line.points)]
