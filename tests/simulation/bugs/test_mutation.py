"""One-line mutations of the product's code."""

from importlib import import_module
from typing import Any

import pytest

from simulation.bugs.catalogue import BUGS, planted
from simulation.bugs.mutation import Mutation, MutationError
from sleeper.partitions.region import Region
from sleeper.statestore import fold
from sleeper.statestore.rows import PartitionRow
from sleeper.statestore.transactions import restore

_FOLD = "sleeper.statestore.fold"
_JUMP = "return now_ms - log_time_ms > LOG_TIME_JUMP_MS_MAX"


@pytest.mark.parametrize("name", BUGS)
def test_each_planted_bug_applies_to_the_product(name: str) -> None:
    assert BUGS[name].rules
    with planted(name):
        pass


def test_a_function_is_mutated_in_the_block_only() -> None:
    is_jump = fold.is_jump
    assert not is_jump(1, 0)
    with Mutation(f"{_FOLD}:is_jump", _JUMP, "return now_ms > log_time_ms").applied():
        assert is_jump(1, 0)
    assert not is_jump(1, 0)


def test_a_property_is_mutated() -> None:
    leaf = PartitionRow(1, None, Region(()))
    target = "sleeper.statestore.rows:PartitionRow.is_leaf"
    with Mutation(target, "return self.split is None", "return self.split == 7").applied():
        assert not leaf.is_leaf
    assert leaf.is_leaf


def test_a_constant_is_mutated_in_each_module_that_has_it() -> None:
    orphans: Any = import_module("sleeper.garbage_collection.orphans")
    with Mutation(f"{_FOLD}:DAY_MS", "DAY_MS = 24 * 3600 * 1000", "DAY_MS = 5").applied():
        assert fold.DAY_MS == orphans.DAY_MS == 5
    assert fold.DAY_MS == orphans.DAY_MS == 86_400_000


def test_a_line_of_a_text_constant_is_mutated() -> None:
    before = restore._REMOVALS
    line = '" ORDER BY r.removed, r.partition"'
    target = "sleeper.statestore.transactions.restore:_REMOVALS"
    with Mutation(target, line, '" ORDER BY r.partition"').applied():
        assert restore._REMOVALS.endswith("ORDER BY r.partition")
    assert before == restore._REMOVALS


@pytest.mark.parametrize(
    "line", ["return now_ms", "number: int"], ids=["a line that is not there", "another function's"]
)
def test_a_line_that_the_target_does_not_have_is_an_error(line: str) -> None:
    with (
        pytest.raises(MutationError, match="0 lines"),
        Mutation(f"{_FOLD}:is_jump", line, "").applied(),
    ):
        pass


def test_a_target_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(MutationError, match="does not exist"):
        Mutation(f"{_FOLD}:Fold.forget", "pass", "return").mutated_source()
