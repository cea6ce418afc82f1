"""Files of leaves: no row is lost, and the planner is the product's."""

from random import Random

import pytest

from simulation.scale.leaves import Jobs, Leaves
from sleeper.compaction.strategy import StrategySettings

SETTINGS = StrategySettings()


def test_twelve_equal_files_are_one_job_of_each_leaf() -> None:
    leaves = Leaves(1_000, SETTINGS)
    leaves.add_file(10, count=12)

    assert leaves.create_jobs(100_000) == [Jobs((10,) * 12, 1_000)]
    assert leaves.create_jobs(100_000) == []
    leaves.finish(Jobs((10,) * 12, 400))
    leaves.finish(Jobs((10,) * 12, 600))
    assert (leaves.files, leaves.jobs) == (1_000, 0)


def test_a_limit_leaves_files_for_later_rounds() -> None:
    leaves = Leaves(1_000, SETTINGS)
    leaves.add_file(10, count=12)

    assert [each.count for each in leaves.create_jobs(300)] == [300]
    assert leaves.create_jobs(300) == []
    leaves.finish(Jobs((10,) * 12, 300))
    assert [each.count for each in leaves.create_jobs(1_000)] == [700]


def test_the_size_of_a_job_is_that_of_the_settings() -> None:
    leaves = Leaves(1, StrategySettings(files_per_job_max=4))
    leaves.add_file(10, count=12)

    assert leaves.create_jobs(10) == [Jobs((10,) * 4, 3)]


@pytest.mark.parametrize("seed", range(5))
def test_files_and_jobs_add_up_in_any_order(seed: int) -> None:
    random = Random(seed)
    leaves, running = Leaves(50, SETTINGS), []
    added = removed = 0
    for _ in range(300):
        if random.random() < 0.6:
            leaves.add_file(10)
            added += 50
        elif running and random.random() < 0.5:
            jobs = running.pop(random.randrange(len(running)))
            leaves.finish(jobs)
            removed += (len(jobs.inputs) - 1) * jobs.count
        else:
            running += leaves.create_jobs(random.randrange(1, 100))
        assert leaves.files == added - removed
        assert leaves.jobs == sum(jobs.count for jobs in running)


def test_jobs_that_do_not_exist_cannot_finish() -> None:
    with pytest.raises(ValueError, match="no job has 2 inputs"):
        Leaves(1, SETTINGS).finish(Jobs((1, 1), 1))
