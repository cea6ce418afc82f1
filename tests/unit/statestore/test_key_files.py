"""Key files of deletes in the state: added once, and collected with the last delete."""

from dataclasses import replace

import pytest

from sleeper.files import KeyFile
from sleeper.partitions.region import Range, Region
from sleeper.statestore.transactions.collection import BarRuns, CollectFiles, FilesCollected
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.table_definition import AcceptTime
from sleeper.statestore.transactions.transaction import Outcome, Status
from tests.clock import DAY_MS, START_MS
from tests.tables.state_table import ROOT, StateTable, data_file

PATH = f"t/data/deletes/{START_MS}-00000000000000aa.parquet"
FILE = KeyFile(PATH, 2, 90, Region((Range(3, 8),)), (".checksum",))
DELETE = DeleteRows((), FILE, START_MS, "keys of a job", id="d")


@pytest.fixture
def table(table: StateTable) -> StateTable:
    table.ingest("a", "b")
    return table


def key_files(table: StateTable) -> list[KeyFile | None]:
    with table.store.reading() as state:
        return [each.keys for each in state.deletes.overlapping(FILE.region)]


def collect(table: StateTable, *paths: str) -> Outcome:
    with table.store.reading() as state:
        number = state.number
    return table.commit(CollectFiles(paths, number))


def test_a_delete_names_its_key_file(table: StateTable) -> None:
    assert table.commit(DELETE).status is Status.APPLIED
    assert key_files(table) == [FILE]
    with table.store.reading() as state:
        assert state.deletes.overlapping(Region((Range(8, None),))) == []
        assert state.files.known(["b", "c", PATH]) == {"b", PATH}


def test_a_second_run_of_the_request_is_already_done(table: StateTable) -> None:
    number = table.commit(DELETE).number
    other = replace(FILE, path=PATH.replace("aa", "bb"))
    again = table.commit(replace(DELETE, keys=other))
    assert (again.status, again.number) == (Status.ALREADY_DONE, number)
    assert table.commit(replace(DELETE, keys=other, request="others")).refused
    assert key_files(table) == [FILE]


@pytest.mark.parametrize(
    "keys",
    [
        replace(FILE, keys=0),
        replace(FILE, region=Region((Range("a", "b"),))),
        replace(FILE, path="a"),
    ],
    ids=["empty", "of another type", "a data file"],
)
def test_an_invalid_key_file_is_refused(table: StateTable, keys: KeyFile) -> None:
    assert table.commit(replace(DELETE, keys=keys)).refused
    assert key_files(table) == []


def test_a_key_file_is_not_added_twice(table: StateTable) -> None:
    table.commit(DELETE)
    assert table.commit(replace(DELETE, id="e", request="others")).refused
    assert table.commit(table.ingest_job(PATH)).refused


def test_a_run_that_is_barred_cannot_commit_its_key_file(table: StateTable) -> None:
    table.clock.now_ms = START_MS + 15 * DAY_MS
    table.commit(AcceptTime(table.clock.now_ms))
    assert table.commit(BarRuns(START_MS + 1)).status is Status.APPLIED
    outcome = table.commit(DELETE)
    assert outcome.refused
    assert "barred" in outcome.reason


def test_a_key_file_is_collected_after_its_delete_is_forgotten(table: StateTable) -> None:
    table.commit(DELETE)
    table.assign("j", "a", "b")
    table.commit(CommitCompaction("j", ROOT, ("a", "b"), data_file("c"), START_MS))
    assert table.commit(FilesCollected((PATH,))).refused
    with table.store.reading() as state:
        assert state.collection.collecting_key_files(9) == []
    assert collect(table, "a", "b").status is Status.APPLIED
    assert key_files(table) == []
    with table.store.reading() as state:
        (found,) = state.collection.collecting_key_files(9)
        assert (found.path, found.sidecars, found.bytes) == (PATH, (".checksum",), 90)
        assert state.files.known([PATH]) == {PATH}
    assert table.commit(FilesCollected((PATH,))).status is Status.APPLIED
    with table.store.reading() as state:
        assert state.files.known([PATH]) == set()
    assert table.commit(FilesCollected((PATH,))).status is Status.ALREADY_DONE


def test_a_delete_that_a_file_needs_keeps_its_key_file(table: StateTable) -> None:
    table.ingest("z", keys=(20, 30))
    table.commit(DELETE)
    table.assign("j", "z")
    table.commit(CommitCompaction("j", ROOT, ("z",), data_file("c", (20, 30)), START_MS))
    collect(table, "z")
    assert key_files(table) == [FILE]
    with table.store.reading() as state:
        assert state.collection.collecting_key_files(9) == []
