"""The ids of write requests: remembered with the files, for 30 days."""

from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.record_requests import RecordRequests, WriteRequest
from sleeper.statestore.transactions.transaction import Status
from tests.clock import DAY_MS
from tests.tables.state_table import ROOT, StateTable, data_file


def record(*ids: str) -> RecordRequests:
    return RecordRequests(tuple(WriteRequest(each, b"content") for each in ids))


def add(table: StateTable, job: str) -> AddFiles:
    file = data_file(f"{job}.parquet", (0, 9))
    return AddFiles(job, table.clock.now_ms, (NewFile(file, ((ROOT, file.rows),)),))


def find(table: StateTable, *ids: str) -> dict[str, tuple[bytes, int]]:
    with table.store.reading() as state:
        found = state.jobs.requests(ids)
    return {each: (known.fingerprint, known.number) for each, known in found.items()}


def test_ids_are_remembered_under_the_number_of_the_files(table: StateTable) -> None:
    recorded, added = table.store.commit_together(record("a", "b"), add(table, "one"))
    assert (recorded.status, added.status) == (Status.APPLIED, Status.APPLIED)
    assert find(table, "a", "b", "c") == {
        "a": (b"content", added.number),
        "b": (b"content", added.number),
    }


def test_a_known_id_refuses_the_files_of_all(table: StateTable) -> None:
    table.store.commit_together(record("a"), add(table, "one"))
    before = table.number()
    outcomes = table.store.commit_together(record("b", "a"), add(table, "two"))
    assert all(outcome.refused for outcome in outcomes)
    assert "request a was committed" in outcomes[-1].reason
    assert table.number() == before
    assert find(table, "b") == {}
    twice = table.store.commit_together(record("c", "c"), add(table, "three"))
    assert "occurs twice" in twice[-1].reason


def test_a_repeated_commit_of_the_same_files_is_already_done(table: StateTable) -> None:
    changes = (record("a"), add(table, "one"))
    first = table.store.commit_together(*changes)
    again = table.store.commit_together(*changes)
    assert [outcome.status for outcome in again] == [Status.ALREADY_DONE] * 2
    assert again[-1].number == first[-1].number


def test_ids_are_forgotten_after_thirty_days(table: StateTable) -> None:
    table.store.commit_together(record("a"), add(table, "one"))
    table.clock.now_ms += 15 * DAY_MS
    table.store.commit_together(record("b"), add(table, "two"))
    table.clock.now_ms += 15 * DAY_MS + 1
    table.store.commit_together(record("c"), add(table, "three"))
    assert set(find(table, "a", "b", "c")) == {"b", "c"}
