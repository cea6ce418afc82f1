"""Export queues in the log and the state, and transactions that are committed together."""

import threading

import pytest

from sleeper.errors import NotFoundError
from sleeper.export_queue.sources import LoggedExport, read_exports
from sleeper.export_queue.table_queries import queues_in
from sleeper.export_queue.transactions import (
    ChangeExportQueue,
    CreateExportQueue,
    DeleteExportQueue,
    ExportRows,
    QueueExports,
)
from sleeper.garbage_collection.collection import Retention, find_claims
from sleeper.partitions.region import Range, Region
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.check_unchanged import CheckUnchanged
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.restore import ReinitialiseTable
from sleeper.statestore.transactions.transaction import Status
from tests.clock import DAY_MS
from tests.tables.state_table import ROOT, StateTable, data_file


def create(table: StateTable, name: str = "q", source: str = "transaction") -> int:
    number = table.store.commit_or_raise(CreateExportQueue(name, source, f'{{"name":"{name}"}}'))
    assert number is not None
    return number


def export(generation: int, content: bytes = b"x", queue: str = "q", **more: str) -> ExportRows:
    return ExportRows((QueueExports(queue, generation, 1, content),), **more)


def add(table: StateTable, job: str, keys: tuple[int, int] = (0, 9)) -> AddFiles:
    file = data_file(f"{job}.parquet", keys)
    return AddFiles(job, table.clock.now_ms, (NewFile(file, ((ROOT, file.rows),)),))


def region(low: int, high: int) -> Region:
    return Region((Range(low, high),))


def test_a_queue_is_a_follower_from_its_creation_on(table: StateTable) -> None:
    number = create(table, source="ingest")
    (follower,) = table.store.followers()
    assert (follower.name, follower.position) == ("export-queue:q", number)
    with table.store.reading() as state:
        assert queues_in(state).find("q") == ("q", number, "ingest", '{"name":"q"}', number)
        with pytest.raises(NotFoundError, match="the table has no export queue"):
            queues_in(state).find("p")
    table.store.commit_or_raise(DeleteExportQueue("q"))
    assert table.store.followers() == []
    with table.store.reading() as state:
        assert queues_in(state).all() == []


def test_creation_is_repeatable_but_not_with_another_definition(table: StateTable) -> None:
    create(table)
    again, other = table.store.commit(
        CreateExportQueue("q", "transaction", '{"name":"q"}'),
        CreateExportQueue("q", "transaction", "{}"),
    )
    assert again.status is Status.ALREADY_DONE
    assert "already exists" in other.reason


def test_a_definition_changes_only_of_the_same_queue(table: StateTable) -> None:
    number = create(table)
    table.store.commit_or_raise(ChangeExportQueue("q", number, '{"tries":3}'))
    with table.store.reading() as state:
        assert queues_in(state).find("q").definition == '{"tries":3}'
    (outcome,) = table.store.commit(ChangeExportQueue("q", number - 1, "{}"))
    assert outcome.refused


def test_exports_are_read_from_the_log_under_their_numbers(table: StateTable) -> None:
    start = create(table)
    table.store.commit_together(add(table, "a"), export(start, b"1"))
    (outcome,) = table.store.commit(export(start, b"2"))
    read = read_exports(table.store, start)
    assert read.end == outcome.number == start + 3
    assert read.exports == (
        LoggedExport(start + 2, (QueueExports("q", start, 1, b"1"),)),
        LoggedExport(start + 3, (QueueExports("q", start, 1, b"2"),)),
    )
    assert read_exports(table.store, read.end).exports == ()


def test_a_queue_that_is_created_within_an_entry_begins_before_it(table: StateTable) -> None:
    before = table.number()
    table.store.commit_together(
        add(table, "a"), CreateExportQueue("q", "transaction", "{}"), export(before + 2)
    )
    (follower,) = table.store.followers()
    assert follower.position == before
    assert [each.number for each in read_exports(table.store, before).exports] == [before + 3]


@pytest.mark.parametrize(
    ("queue", "reason"),
    [("p", "export queue p does not exist"), ("files", "exports the rows of each ingest")],
)
def test_exports_to_other_queues_refuse_the_whole_transaction(
    table: StateTable, queue: str, reason: str
) -> None:
    create(table)
    generation = create(table, "files", "ingest")
    before = table.number()
    outcomes = table.store.commit_together(add(table, "a"), export(generation, queue=queue))
    assert [outcome.refused for outcome in outcomes] == [True, True]
    assert reason in outcomes[0].reason
    assert table.number() == before
    assert table.files() == []


def test_exports_for_a_queue_that_was_created_anew_are_refused(table: StateTable) -> None:
    generation = create(table)
    table.store.commit_or_raise(DeleteExportQueue("q"))
    create(table)
    (outcome,) = table.store.commit(export(generation))
    assert outcome.refused


def test_a_repeated_group_is_done_already_whatever_its_condition(table: StateTable) -> None:
    generation = create(table)
    check = CheckUnchanged(table.number(), (region(0, 10),))
    group = (check, add(table, "a"), export(generation, id="a"))
    first = table.store.commit_together(*group)
    again = table.store.commit_together(*group)
    assert [o.status for o in first] == [Status.APPLIED] * 3
    assert [o.status for o in again] == [Status.ALREADY_DONE] * 3
    assert [o.number for o in again[1:]] == [o.number for o in first[1:]]


def test_a_group_of_a_used_and_a_new_id_is_refused(table: StateTable) -> None:
    generation = create(table)
    table.store.commit_together(add(table, "a"), export(generation, id="e"))
    before = table.number()
    outcomes = table.store.commit_together(add(table, "b"), export(generation, id="e"))
    assert all(outcome.refused for outcome in outcomes)
    assert table.number() == before


@pytest.mark.parametrize(
    ("change", "is_conflict"),
    [
        (lambda table: add(table, "b", (5, 9)), True),
        (lambda table: add(table, "b", (10, 19)), False),
        (lambda table: DeleteRows((region(4, 6),)), True),
        (lambda table: DeleteRows((region(10, 12),)), False),
        (lambda table: ReinitialiseTable(), True),
        (lambda table: CreateExportQueue("other", "ingest", "{}"), False),
    ],
)
def test_rows_that_were_read_must_be_unchanged(table: StateTable, change, is_conflict) -> None:
    version = table.number()
    table.store.commit_or_raise(change(table))
    outcomes = table.store.commit_together(
        CheckUnchanged(version, (region(0, 10),)), add(table, "mine")
    )
    assert [o.refused for o in outcomes] == [is_conflict] * 2
    if is_conflict:
        assert outcomes[0].reason == f"rows that it read were changed by transaction {version + 1}"


def test_a_refused_group_does_not_affect_those_of_other_threads(table: StateTable) -> None:
    generation = create(table)
    outcomes: dict[int, list[Status]] = {}

    def commit(place: int) -> None:
        queue = "q" if place % 2 else "unknown"
        group = (add(table, f"job-{place}"), export(generation, queue=queue))
        outcomes[place] = [o.status for o in table.store.commit_together(*group)]

    threads = [threading.Thread(target=commit, args=(place,)) for place in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {place: s[0] is Status.APPLIED for place, s in outcomes.items()} == {
        place: place % 2 == 1 for place in range(20)
    }
    assert len(table.files()) == 10
    assert len(read_exports(table.store, generation).exports) == 10


def test_two_transactions_that_export_a_key_have_two_numbers(table: StateTable) -> None:
    generation = create(table)
    numbers: list[int | None] = []

    def commit() -> None:
        numbers.append(table.store.commit(export(generation))[0].number)

    threads = [threading.Thread(target=commit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logged = [each.number for each in read_exports(table.store, generation).exports]
    assert logged == sorted(numbers) == sorted(set(numbers))


def test_a_queue_keeps_versions_longer_than_the_retention_of_followers(table: StateTable) -> None:
    number = create(table, source="ingest")
    table.clock.now_ms += 20 * DAY_MS
    table.store.commit_or_raise(add(table, "a"))
    claims = find_claims(table.store, table.clock.now_ms, Retention(followers_ms=DAY_MS))
    assert claims.horizon_max == number
    assert claims.passed == ()
