"""Strategies as functions from file sizes to groups."""

from functools import partial
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.compaction.strategy import (
    FileSize,
    Strategy,
    StrategySettings,
    basic_groups,
    cost_groups,
    size_ratio_groups,
    whole_leaf_groups,
)
from sleeper.errors import InvalidRequestError
from sleeper.user_code.loading import BUILT_IN_CODE
from sleeper.user_code.wheel import CodeKind


def files(*rows: int) -> list[FileSize]:
    return [FileSize(f"f{i:03d}", r) for i, r in enumerate(rows)]


def sizes(groups: list[list[FileSize]]) -> list[list[int]]:
    return [[f.rows for f in g] for g in groups]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([5], []),
        ([5, 5, 5], []),
        ([5, 5, 5, 5], [[5, 5, 5, 5]]),
        ([1000, 5, 5, 5, 5], [[5, 5, 5, 5]]),
        ([100, 30, 10, 3], []),
        ([10] * 14, [[10] * 12]),
        ([10] * 16, [[10] * 12, [10] * 4]),
        ([1, 50, 50, 50, 50], [[1, 50, 50, 50, 50]]),
    ],
)
def test_size_ratio_groups_have_a_small_largest_file(
    rows: list[int], expected: list[list[int]]
) -> None:
    assert sizes(size_ratio_groups(files(*rows), StrategySettings())) == expected


def test_basic_groups_are_full_and_start_with_the_smallest() -> None:
    settings = StrategySettings(files_per_job_max=3)
    assert sizes(basic_groups(files(9, 1, 5, 3, 7, 2, 8), settings)) == [[1, 2, 3], [5, 7, 8]]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([5], []),
        ([5, 5, 5, 5], []),
        ([5, 5, 5, 5, 5], [[5, 5, 5, 5, 5]]),
        ([25, 5, 5, 5], []),
        ([25, 5, 5, 5, 5], [[5, 5, 5, 5]]),
        ([25, 25, 5, 5], []),
        ([25, 20, 15, 15, 5], [[5, 15, 15, 20, 25]]),
    ],
)
def test_cost_groups_wait_until_smaller_files_have_enough_rows(
    rows: list[int], expected: list[list[int]]
) -> None:
    assert sizes(cost_groups(files(*rows), StrategySettings(files_max=5))) == expected


@pytest.mark.parametrize("files_max", [2, 3, 5, 12])
def test_cost_groups_rewrite_rows_as_rarely_as_so_many_files_allow(files_max: int) -> None:
    rewritten = 0
    state: list[int] = []
    for added in range(1, 600):
        state.append(1)
        assert len(state) <= files_max
        for group in cost_groups(files(*state), StrategySettings(files_max=files_max)):
            merged = [f.rows for f in group]
            rewritten += sum(merged)
            for each in merged:
                state.remove(each)
            state.append(sum(merged))
        assert sum(state) == added
        kept = files_max - 1
        most = next(w for w in range(added) if comb(w + kept, kept) >= added)
        assert rewritten <= most * added


def test_many_files_are_merged_in_jobs_of_equal_numbers_of_files() -> None:
    groups = cost_groups(files(*[7] * 250), StrategySettings())
    assert [len(each) for each in groups] == [84, 84, 82]


def test_whole_leaf_group_needs_two_files() -> None:
    assert sizes(whole_leaf_groups(files(9, 1, 5), StrategySettings(2))) == [[1, 5, 9]]
    assert whole_leaf_groups(files(9), StrategySettings()) == []


@given(
    st.sampled_from([basic_groups, cost_groups, size_ratio_groups, whole_leaf_groups]),
    st.lists(st.integers(0, 10**9), max_size=60),
    st.integers(2, 12),
)
def test_groups_are_disjoint_and_have_two_or_more_files(
    strategy: Strategy, rows: list[int], most: int
) -> None:
    groups = strategy(files(*rows), StrategySettings(files_per_job_max=most))
    paths = [f.path for g in groups for f in g]
    assert len(paths) == len(set(paths))
    assert all(len(g) > 1 for g in groups)


def test_strategies_load_by_registered_name_only() -> None:
    load = partial(BUILT_IN_CODE.load, CodeKind.STRATEGY)
    assert load("BasicCompactionStrategy") is basic_groups
    assert load("CostCompactionStrategy") is cost_groups
    assert load("SizeRatioCompactionStrategy") is size_ratio_groups
    with pytest.raises(InvalidRequestError, match=r"no compaction strategy 'os\.system' is reg"):
        load("os.system")
