from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError
from sleeper.tables import (
    TableId,
    TableIndex,
    TableRef,
    TableState,
    claim_abandoned,
    end_retention,
    find_clones,
    find_table,
    list_deleted,
    mark_table_deleting,
    rename_table,
    restore_deleted,
    set_table_online,
)
from tests.contracts.conftest import Store

A = TableRef(TableId("0000000a"), "apples")
B = TableRef(TableId("0000000b"), "bananas", online=False)


def test_other_processes_find_a_created_table_by_name_and_id(index: Store[TableIndex]) -> None:
    index.port.create(A)
    index.port.create(B)
    other = index.again()
    assert other.find("apples") == A
    assert other.get(B.id) == B
    assert other.list() == (A, B)
    assert index.list_stored() == [(A.id, "apples", "active"), (B.id, "bananas", "active")]


def test_missing_tables_are_not_found(index: Store[TableIndex]) -> None:
    with pytest.raises(NotFoundError, match="'apples'"):
        index.port.find("apples")
    with pytest.raises(NotFoundError, match="0000000a"):
        index.port.get(A.id)


def test_tables_are_found_by_several_ids(index: Store[TableIndex]) -> None:
    index.port.create(A)
    index.port.create(B)
    mark_table_deleting(index.port, B.name)
    deleting = replace(B, state=TableState.DELETING)
    missing = [TableId(each) for each in ("0000000c", "", "x" * 3000, "é")]
    assert index.port.get_all([A.id, B.id, *missing]) == {A.id: A, B.id: deleting}
    assert index.port.get_all([]) == index.port.get_all(missing) == {}


def test_names_and_ids_are_unique(index: Store[TableIndex]) -> None:
    index.port.create(A)
    with pytest.raises(ConflictError, match="table 'apples' already exists"):
        index.port.create(replace(B, name="apples"))
    with pytest.raises(ConflictError, match="0000000a"):
        index.port.create(replace(A, name="other"))
    assert len(index.list_stored()) == 1


@pytest.mark.parametrize("name", ["", " a", "a/b", "a\nb", "..", "x" * 201, 'a"b'])
def test_an_invalid_name_is_refused(index: Store[TableIndex], name: str) -> None:
    with pytest.raises(InvalidRequestError):
        index.port.create(replace(A, name=name))
    index.port.create(B)
    with pytest.raises(InvalidRequestError):
        rename_table(index.port, "bananas", name)
    assert index.list_stored() == [(B.id, "bananas", "active")]


def test_renaming_keeps_the_id_and_frees_the_old_name(index: Store[TableIndex]) -> None:
    index.port.create(A)
    assert rename_table(index.port, "apples", "pears") == replace(A, name="pears")
    assert index.again().get(A.id).name == "pears"
    index.port.create(replace(B, name="apples"))


def test_a_table_cannot_take_the_name_of_another(index: Store[TableIndex]) -> None:
    index.port.create(A)
    index.port.create(B)
    with pytest.raises(ConflictError, match="table 'bananas' already exists"):
        rename_table(index.port, "apples", "bananas")
    with pytest.raises(ConflictError, match="table 'bananas' already exists"):
        index.port.replace(A, replace(A, name="bananas"))
    assert index.port.list() == (A, B)


def test_renaming_to_its_own_name_changes_nothing(index: Store[TableIndex]) -> None:
    index.port.create(A)
    assert rename_table(index.port, "apples", "apples") == A


def test_a_table_goes_offline_and_back(index: Store[TableIndex]) -> None:
    index.port.create(A)
    set_table_online(index.port, "apples", online=False)
    assert not index.again().find("apples").online
    set_table_online(index.port, "apples", online=True)
    assert index.again().find("apples") == A


def test_deleting_frees_the_name_and_keeps_the_row_until_it_is_removed(
    index: Store[TableIndex],
) -> None:
    index.port.create(A)
    mark_table_deleting(index.port, "apples")
    with pytest.raises(NotFoundError):
        index.port.find("apples")
    with pytest.raises(NotFoundError, match="being deleted"):
        find_table(index.port, None, A.id)
    assert index.port.list() == ()
    assert [t.id for t in index.again().list(TableState.DELETING)] == [A.id]
    index.port.create(replace(B, name="apples"))
    index.port.remove(A.id)
    index.port.remove(A.id)
    assert index.list_stored() == [(B.id, "apples", "active")]


def test_deleted_tables_are_brought_back_until_their_deletion_is_final(
    index: Store[TableIndex],
) -> None:
    index.port.create(A)
    index.port.create(B)
    for _ in range(2):
        deleted = mark_table_deleting(index.port, "apples", 5_000)
        assert list_deleted(index.again()) == (deleted,)
        assert index.again().get(A.id).deleted_ms == 5_000
        assert dict(index.again().get_all([A.id]))[A.id] == deleted
        assert restore_deleted(index.port, A.id) == A
        assert index.again().find("apples") == A
    deleted = mark_table_deleting(index.port, "apples", 6_000)
    final = end_retention(index.port, deleted)
    assert (final.state, final.deleted_ms) == (TableState.DELETING, None)
    with pytest.raises(ConflictError, match="was changed"):
        index.port.replace(deleted, A)
    with pytest.raises(ConflictError, match="was changed"):
        end_retention(index.port, deleted)
    with pytest.raises(NotFoundError):
        restore_deleted(index.port, "apples")
    assert index.again().get(A.id) == final


def test_two_deleted_tables_may_share_a_name(index: Store[TableIndex]) -> None:
    index.port.create(A)
    mark_table_deleting(index.port, "apples")
    index.port.create(replace(B, name="apples"))
    mark_table_deleting(index.port, "apples")
    assert len(index.port.list(TableState.DELETING)) == 2


def test_a_clone_in_creation_claims_its_name_when_it_becomes_active(
    index: Store[TableIndex],
) -> None:
    clones = [
        TableRef(TableId(f"0000000{i}"), "apples", state=TableState.CREATING) for i in (1, 2, 3)
    ]
    for clone in clones:
        index.port.create(clone)
    other = index.again()
    assert other.list() == other.list(TableState.DELETING) == ()
    assert other.list(TableState.CREATING) == tuple(clones)
    assert find_clones(other, "apples") == tuple(clones)
    assert other.get(clones[0].id) == clones[0]
    with pytest.raises(NotFoundError):
        other.find("apples")
    with pytest.raises(NotFoundError, match="being created"):
        find_table(other, None, clones[0].id)
    with pytest.raises(InvalidRequestError, match="is not being deleted"):
        other.remove(clones[0].id)
    active = [replace(clone, state=TableState.ACTIVE) for clone in clones]
    other.replace(clones[0], active[0])
    assert index.port.find("apples") == active[0]
    with pytest.raises(ConflictError, match="table 'apples' already exists"):
        index.port.replace(clones[1], active[1])
    assert mark_table_deleting(index.port, "apples").id == clones[0].id
    assert mark_table_deleting(index.port, "apples").id == clones[1].id
    with pytest.raises(ConflictError, match="was changed"):
        index.port.replace(clones[2], active[2])
    with pytest.raises(NotFoundError):
        mark_table_deleting(index.port, "apples")


def test_an_abandoned_creation_has_no_table(index: Store[TableIndex]) -> None:
    assert claim_abandoned(index.port, A.id, 5_000)
    other = index.again()
    with pytest.raises(ConflictError, match=A.id):
        other.create(A)
    assert other.list() == other.list(TableState.DELETING) == list_deleted(other) == ()
    (claim,) = other.list(TableState.ABANDONED)
    assert (claim.id, claim.deleted_ms) == (A.id, 5_000)
    other.create(B)
    assert not claim_abandoned(other, B.id, 5_000)
    assert other.find(B.name) == B


def test_an_active_table_is_not_removed(index: Store[TableIndex]) -> None:
    index.port.create(A)
    with pytest.raises(InvalidRequestError, match="is not being deleted"):
        index.port.remove(A.id)
    assert len(index.list_stored()) == 1


def test_a_change_by_another_is_not_overwritten(index: Store[TableIndex]) -> None:
    index.port.create(A)
    set_table_online(index.again(), "apples", online=False)
    with pytest.raises(ConflictError, match="changed by another"):
        index.port.replace(A, replace(A, name="pears"))
    renamed = rename_table(index.port, "apples", "pears")
    assert renamed == replace(A, name="pears", online=False)


@pytest.mark.usefixtures("parallel_server")
def test_one_of_many_concurrent_creations_wins(index: Store[TableIndex]) -> None:
    def create(number: int) -> bool:
        try:
            index.port.create(TableRef(TableId(f"{number:08x}"), "apples"))
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(create, range(12))) == 1
    assert len(index.list_stored()) == 1


def test_a_message_names_its_table_by_name_or_id(index: Store[TableIndex]) -> None:
    index.port.create(A)
    assert find_table(index.port, "apples", None) == A
    assert find_table(index.port, None, A.id) == A
    with pytest.raises(InvalidRequestError, match="tableName or tableId"):
        find_table(index.port, None, None)
