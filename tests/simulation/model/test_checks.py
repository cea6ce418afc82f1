"""Checks accept what is right and name the rule that is broken."""

from types import SimpleNamespace
from typing import Any

import pytest

from simulation.checks.reads import check_reads
from simulation.checks.retention import check_retention
from simulation.checks.state import check_references, check_tree
from simulation.checks.violation import Violation
from simulation.model.fold import LoggedTransaction, TableModel
from simulation.model.journal import Answer, Ingest, Journal, LostRead
from simulation.model.observer import Observer
from sleeper.files import FileReference
from sleeper.garbage_collection.collection import Retention
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.statestore.log import LogEntry
from sleeper.statestore.transactions.codec import encode
from sleeper.statestore.transactions.collection import BarRuns, CollectFiles
from sleeper.tables import TableId

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


def model() -> TableModel:
    return TableModel(TableId("t"), Journal())


def test_an_entry_with_more_numbers_than_transactions_is_a_violation() -> None:
    entry = LogEntry(1, 2, 0, "w", encode(BarRuns(1)).line)
    state = SimpleNamespace(read_entries=lambda _after, _limit: [entry])
    instance: Any = SimpleNamespace(tables=SimpleNamespace(state=lambda _id: state))
    observer = Observer(instance, Journal())
    observer.models[TableId("t")] = model()
    with pytest.raises(Violation, match="holds 1 transaction"):
        observer.read_before_trim(TableId("t"))


def test_a_version_that_was_lost_while_it_was_held_is_a_violation() -> None:
    journal = Journal(lost_reads=[LostRead("other", 3, "collected")])
    check_reads(model(), journal)
    journal.lost_reads.append(LostRead("t", 3, "collected"))
    with pytest.raises(Violation, match="held"):
        check_reads(model(), journal)


@pytest.mark.parametrize(
    ("retention", "passed"), [(Retention(versions_ms=50), ()), (Retention(None, 50), ("f@1",))]
)
def test_a_horizon_that_rises_before_the_retention_is_a_violation(
    retention: Retention, passed: tuple[str, ...]
) -> None:
    table = model()
    table._times.set(1, 1_000)
    table._times.set(2, 1_010)
    table.log.append(LoggedTransaction(3, 1_050, CollectFiles((), 1, passed=passed), ()))
    check_retention(table, retention)
    table.log.append(LoggedTransaction(4, 1_055, CollectFiles((), 2, passed=passed), ()))
    with pytest.raises(Violation, match="retention"):
        check_retention(table, retention)
