"""Whole runs: known answers of simple cases, the effect of changed rules, and determinism."""

import pytest

from simulation.scale.entries import add_files_bytes, append_units
from simulation.scale.functions import POLL_SECONDS
from simulation.scale.limits import ESTABLISHED, PARTITION_WRITE_UNITS
from simulation.scale.load import Load, Outage
from simulation.scale.log import Capacity, Log
from simulation.scale.rules import Rules
from simulation.scale.scenarios import Setting, through_committer, with_commit_batch
from simulation.scale.simulate import Result, simulate
from simulation.scale.timeline import Timeline
from simulation.scale.work import read_works
from simulation.scale.world import World
from sleeper.properties.instance import (
    COMPACTION_TASKS_MAX,
    STATE_COPIES_MAX,
    TASK_IDLE_STOP_SECONDS,
)
from tests.simulation.scale.plain_rules import plain_rules, with_queue

WORKS = read_works()
_HOUR = 3600.0


def _run(rules: Rules, load: Load, seconds: float, outage: Outage | None = None) -> Result:
    return simulate(rules, WORKS, load, seconds, outage=outage)


def _idle(rules: Rules, tables: int) -> Result:
    return _run(rules, Load(tables, max(1, tables // 20)), 2 * _HOUR)


def _commits_a_second(rules: Rules, rate: float) -> float:
    result = _run(rules, Load(ingests_second=rate), 300.0)
    first = next(s for s in result.samples if s.seconds >= 200)
    return (result.last.commits - first.commits) / (result.last.seconds - first.seconds)


def test_a_seed_gives_one_result() -> None:
    load = Load(100, 5, ingests_second=2.0)
    results = [simulate(plain_rules(), WORKS, load, _HOUR, seed=seed) for seed in (1, 1, 2)]

    assert results[0].samples == results[1].samples
    assert results[0].dollars_month == results[1].dollars_month
    assert results[0].samples != results[2].samples


def test_a_round_of_few_tables_ends_within_its_period() -> None:
    result = _idle(plain_rules(), 100)

    assert 0 < result.round_seconds("compaction_job_creation") < 10
    assert result.operations.skipped == 0


def test_a_round_takes_as_long_as_the_functions_need_for_it() -> None:
    """Ten runs at once handle a table in the time of its work and a poll."""
    tables, rules = 4_000, plain_rules()
    result = _idle(rules, tables)
    world = World(rules, WORKS, ESTABLISHED, Load(tables), 0)
    each = world.work("compaction_job_creation").seconds(2048) + POLL_SECONDS
    period = rules.schedules["compaction-job-creation"].period_seconds
    capacity = rules.queues["compaction_job_creation"].at_once_max / each  # type: ignore[operator]

    assert tables / capacity == pytest.approx(period, rel=0.2)
    rounds = [_idle(rules, int(capacity * period * share)) for share in (0.5, 1.5)]
    assert [each.operations.skipped > 0 for each in rounds] == [False, True]
    assert rounds[0].round_seconds("compaction_job_creation") == pytest.approx(period / 2, rel=0.3)
    assert result.world.functions.running_most <= 1_000


def test_more_tables_never_take_less() -> None:
    results = [_idle(plain_rules(), tables) for tables in (20, 200, 2_000, 10_000)]
    rounds = [each.round_seconds("compaction_job_creation") for each in results]
    dollars = [sum(each.dollars_month.values()) for each in results]

    assert rounds == sorted(rounds)
    assert dollars == sorted(dollars)


def test_what_is_sent_is_handled_or_waits() -> None:
    load = Load(200, 10, ingests_second=5.0)
    result = _run(plain_rules(), load, 2 * _HOUR, Outage(1_800.0, 3_600.0))

    for name, queue in result.world.queues.items():
        counts = queue.counts()
        assert queue.sent == queue.deleted + counts.unfinished + counts.dead, name
    waiting = result.world.queues["ingest"].counts().unfinished
    assert result.last.ingested + waiting == pytest.approx(
        result.world.queues["ingest"].sent, abs=load.cohort
    )
    files = sum(table.leaves.files for table in result.world.tables)
    assert 0 < files < result.last.ingested


def test_an_outage_leaves_a_backlog_that_drains() -> None:
    result = _run(
        plain_rules(), Load(200, 10, ingests_second=5.0), 3 * _HOUR, Outage(1_800.0, 3_600.0)
    )
    depths = {sample.seconds: sample.depths["ingest"] for sample in result.samples}

    assert max(depths.values()) == pytest.approx(5 * 1_800, rel=0.3)
    assert result.last.depths["ingest"] < 200
    assert all(sample.tasks["ingest"] <= 200 for sample in result.samples)


@pytest.mark.parametrize("share", [0.5, 0.9, 1.5, 4.0])
def test_one_writer_of_a_log_saturates_its_write_units(share: float) -> None:
    """As a queue with one server and a fixed time of service: 250 small appends a second."""
    timeline = Timeline()
    units = append_units(add_files_bytes(1))
    assert units == 4
    partition = Capacity(timeline, PARTITION_WRITE_UNITS)
    capacity = PARTITION_WRITE_UNITS / units
    waits: list[float] = []
    timeline.every(1 / (capacity * share), lambda: waits.append(partition.wait(units)))
    timeline.run(100.0)

    # Without randomness nothing waits below the capacity. Above it, the backlog grows steadily.
    excess = max(0.0, (share - 1) * 100.0 - 1.0)
    assert waits[-1] == pytest.approx(excess, rel=0.02, abs=0.01)


def test_writers_that_commit_directly_conflict_but_each_commits_once() -> None:
    world = World(plain_rules(), WORKS, ESTABLISHED, Load(), 0)
    log: Log = world.tables[0].log
    done: list[bool] = []
    for _ in range(50):
        log.commit(4, done.append)
    world.timeline.run(120.0)

    assert done == [True] * 50
    assert log.head == 50
    assert log.conflicts > 50


def test_the_committer_takes_what_direct_commits_cannot() -> None:
    rate = 80.0
    direct = _commits_a_second(plain_rules(), rate)
    committed = _commits_a_second(through_committer(plain_rules()), rate)

    assert direct < 0.6 * rate
    assert committed > 0.9 * rate


def test_batches_of_one_commit_move_the_knee_as_far_as_their_work_says() -> None:
    """A group's batches follow one another: a batch takes its work and a poll."""
    rules = with_commit_batch(through_committer(plain_rules()), 1)
    knee = 1 / (WORKS["commit of 1"].seconds() + POLL_SECONDS)

    below = _commits_a_second(rules, 0.5 * knee)
    above = _commits_a_second(rules, 4 * knee)
    assert 0.45 * knee < below
    assert above == pytest.approx(knee, rel=0.15)


def test_a_property_of_the_product_changes_the_result() -> None:
    load = Load(100, 5, ingests_second=10.0)
    usual = _run(plain_rules(), load, _HOUR)
    few_tasks = {COMPACTION_TASKS_MAX.name: "0"}
    stopped = _run(plain_rules(few_tasks), load, _HOUR)
    short = _run(plain_rules({TASK_IDLE_STOP_SECONDS.name: "5"}), load, _HOUR)
    copies = _idle(plain_rules({STATE_COPIES_MAX.name: "5000"}), 5_000)

    assert stopped.last.files_per_leaf > 2 * usual.last.files_per_leaf
    assert short.dollars_month["ingest tasks"] < usual.dollars_month["ingest tasks"]
    assert copies.round_seconds("compaction_job_creation") < _idle(
        plain_rules(), 5_000
    ).round_seconds("compaction_job_creation")


def test_a_larger_maximum_of_runs_at_once_shortens_a_round() -> None:
    rules = plain_rules()
    wide = with_queue(rules, "compaction_job_creation", at_once_max=40)
    few, many = (_idle(each, 8_000) for each in (rules, wide))

    assert few.operations.skipped > 0
    assert many.operations.skipped == 0


def test_a_day_of_a_hundred_tables() -> None:
    setting = Setting(plain_rules(), WORKS)
    result = setting.run(Load(100, 5, ingests_second=0.5), 24 * _HOUR)

    assert result.last.ingested == pytest.approx(0.5 * 24 * _HOUR, rel=0.05)
    assert result.last.files_per_leaf < 60
    assert all(sample.ages["ingest"] < 300 for sample in result.samples)
    functions = result.world.functions
    assert functions.running_most <= ESTABLISHED.lambda_concurrency
    assert 0 < functions.cold_starts < 1_000
