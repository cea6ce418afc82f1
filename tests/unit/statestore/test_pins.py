"""Pins of clones: pinned files and key files are not collected."""

import pytest

from sleeper.files import KeyFile
from sleeper.partitions.region import Range, Region
from sleeper.statestore.transactions.collection import CollectFiles, FilesCollected
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.pins import PinFiles, UnpinFiles
from sleeper.statestore.transactions.restore import ReinitialiseTable
from sleeper.statestore.transactions.transaction import Status
from tests.tables.state_table import StateTable, read_tables


def collectable(table: StateTable) -> list[str]:
    with table.store.reading() as state:
        return [f.path for f in state.collection.unreferenced(table.clock.now_ms, 100)]


def pins(table: StateTable) -> list[tuple[str, int]]:
    with table.store.reading() as state:
        return state.collection.pins()


@pytest.fixture
def unreferenced(table: StateTable) -> StateTable:
    table.ingest("a")
    table.ingest("b")
    table.commit(ReinitialiseTable())
    return table


def test_pinned_files_are_not_collected_until_the_last_pin_is_gone(
    unreferenced: StateTable,
) -> None:
    table = unreferenced
    table.commit(PinFiles("x", ("a",)))
    table.commit(PinFiles("y", ("a", "b")))
    assert (pins(table), collectable(table)) == ([("x", 1), ("y", 2)], [])
    refused = table.commit(CollectFiles(("a",), table.number()))
    assert refused.reason == "file a is needed by clone x"
    table.commit(UnpinFiles("x", ("a", "b")))
    assert collectable(table) == []
    table.commit(UnpinFiles("y", ("b",)))
    assert collectable(table) == ["b"]
    table.commit(UnpinFiles("y"))
    assert (pins(table), collectable(table)) == ([], ["a", "b"])


def test_repeated_pins_are_already_done(unreferenced: StateTable) -> None:
    table = unreferenced
    assert table.commit(PinFiles("x", ("a",))).status is Status.APPLIED
    assert table.commit(PinFiles("x", ("a",))).status is Status.ALREADY_DONE
    assert table.commit(PinFiles("x", ("a", "b"))).status is Status.APPLIED
    assert pins(table) == [("x", 2)]
    assert table.commit(UnpinFiles("x", ("a",))).status is Status.APPLIED
    for repeated in (UnpinFiles("x", ("a",)), UnpinFiles("x", ("none",)), UnpinFiles("y")):
        assert table.commit(repeated).status is Status.ALREADY_DONE


def test_a_file_that_is_collected_or_unknown_is_not_pinned(unreferenced: StateTable) -> None:
    table = unreferenced
    table.commit(CollectFiles(("a",), table.number()))
    assert "already collected" in table.commit(PinFiles("x", ("b", "a"))).reason
    table.commit(FilesCollected(("a",)))
    assert "already collected" in table.commit(PinFiles("x", ("a",))).reason
    assert pins(table) == []


def test_a_pinned_key_file_is_collected_when_it_is_unpinned(table: StateTable) -> None:
    table.ingest("a")
    region = Region((Range(0, 5),))
    delete = DeleteRows((), KeyFile("k", 3, 9, region), table.clock.now_ms, "request")
    assert table.commit(delete).status is Status.APPLIED
    with table.store.reading() as state:
        assert sorted(state.files.paths()) == ["a", "k"]
    table.commit(PinFiles("x", ("a", "k")))
    table.commit(ReinitialiseTable())
    table.commit(UnpinFiles("x", ("a",)))
    table.commit(CollectFiles(("a",), table.number()))
    assert read_tables(table.folder / "state.db")["deletes"] == []
    with table.store.reading() as state:
        assert state.collection.collecting_key_files(9) == []
        assert state.collection.pinned(["a", "k", "z"]) == {"k"}
    table.commit(UnpinFiles("x", ("k",)))
    with table.store.reading() as state:
        assert [f.path for f in state.collection.collecting_key_files(9)] == ["k"]


@pytest.mark.parametrize("is_backup", [False, True])
def test_the_state_of_a_version_has_no_pins(unreferenced: StateTable, is_backup: bool) -> None:
    """A restored table has no clones: restored clones have files of their own."""
    table = unreferenced
    table.commit(PinFiles("x", ("a",)))
    table.ingest("c")
    before = table.number()
    table.ingest("d")
    table.commit(PinFiles("x", ("d",)))
    file = table.folder / "cut.db"
    table.store.copy_version(before, file, keeps_ids=is_backup)
    found = read_tables(file)
    assert {row[1] for row in found["files"]} == {"c"}
    assert found["pins"] == []
