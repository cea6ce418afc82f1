"""Checks accept what is right and name the rule that is broken."""

import pytest

from simulation.checks.state import check_references, check_tree
from simulation.checks.violation import Violation
from simulation.model.journal import Answer, Ingest
from sleeper.files import FileReference
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Range, Region

WHOLE = Region((Range(-100, None), Range("", None)))


def leaf(name: str, low: int, high: int | None) -> Partition:
    region = Region((Range(low, high), Range("", None)))
    return Partition(PartitionId(name), region, PartitionId("root"))


ROOT = Partition(PartitionId("root"), WHOLE, None, is_leaf=False)


def test_children_that_tile_their_parent_are_accepted() -> None:
    check_tree([ROOT, leaf("a", -100, 3), leaf("b", 3, None)], WHOLE)


@pytest.mark.parametrize(
    "leaves",
    [
        [leaf("a", -100, 2), leaf("b", 3, None)],
        [leaf("a", -100, 4), leaf("b", 3, None)],
        [leaf("a", -100, 3), leaf("b", 3, 9)],
        [],
    ],
)
def test_a_gap_or_an_overlap_of_children_is_a_violation(leaves: list[Partition]) -> None:
    with pytest.raises(Violation, match="tile"):
        check_tree([ROOT, *leaves], WHOLE)


def test_a_file_in_a_partition_and_in_one_inside_is_a_violation() -> None:
    inside = leaf("a", -100, 3)
    regions = {each.id: each.region for each in (ROOT, inside)}
    references = [FileReference("f", each, 1) for each in regions]
    check_references(references[:1], regions)
    with pytest.raises(Violation, match="overlap"):
        check_references(references, regions)


def test_a_refusal_after_an_unknown_outcome_leaves_it_unknown() -> None:
    first, second = (Ingest(id=each, table_id="t", rows=()) for each in "ab")
    first.refuse("invalid")
    second.leave_open("the response was lost")
    second.refuse("another request has its id")
    assert (first.answer, second.answer) == (Answer.REFUSED, Answer.UNKNOWN)
