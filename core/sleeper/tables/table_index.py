"""The port of the table index, and changes of its rows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError
from sleeper.retries import Backoff, retry
from sleeper.tables.table_ref import TableId, TableRef, TableState, check_table_name

_CONFLICTS_MAX = 20


class TableIndex(Protocol):
    """The tables of an instance. Every call is atomic and durable on return."""

    def create(self, table: TableRef) -> None:
        """Adds the table. ConflictError if its name is in use, or its id was used before."""

    def by_name(self, name: str) -> TableRef:
        """Returns the active table of that name, or NotFoundError."""

    def by_id(self, table_id: TableId) -> TableRef:
        """Returns the table of that id, active or deleting, or NotFoundError."""

    def list(self, state: TableState = TableState.ACTIVE) -> tuple[TableRef, ...]:
        """Returns all tables in that state, ordered by name."""

    def replace(self, before: TableRef, after: TableRef) -> None:
        """Replaces the row `before` by `after`, of the same id.

        ConflictError if the row is no longer `before`, or if an active table has the new name.
        """

    def remove(self, table_id: TableId) -> None:
        """Removes the row of a deleting table. Idempotent.

        InvalidRequestError if the table is active.
        """


def rename_table(index: TableIndex, name: str, new_name: str) -> TableRef:
    """Renames the table. ConflictError if the name is taken."""
    check_table_name(new_name)
    if name != new_name and _has_name(index, new_name):
        raise ConflictError(f"table {new_name!r} exists already")
    return _change(index, name, lambda table: replace(table, name=new_name))


def set_table_online(index: TableIndex, name: str, online: bool) -> TableRef:
    """Sets the table online or offline."""
    return _change(index, name, lambda table: replace(table, online=online))


def mark_table_deleting(index: TableIndex, name: str) -> TableRef:
    """Marks the table as deleting and frees its name. Garbage collection deletes its data."""
    return _change(index, name, lambda table: replace(table, state=TableState.DELETING))


def find_table(index: TableIndex, name: str | None, table_id: str | None) -> TableRef:
    """Returns the active table of a message, by name or by id. NotFoundError if there is none."""
    if name is not None:
        return index.by_name(name)
    if table_id is None:
        raise InvalidRequestError("the table is not named: give tableName or tableId")
    table = index.by_id(TableId(table_id))
    if table.state is not TableState.ACTIVE:
        raise NotFoundError(f"no table has id {table_id!r}: it is being deleted")
    return table


def _change(index: TableIndex, name: str, change: Callable[[TableRef], TableRef]) -> TableRef:
    def attempt() -> TableRef:
        before = index.by_name(name)
        after = change(before)
        try:
            index.replace(before, after)
        except ConflictError as error:
            if after.name != name and _has_name(index, after.name):
                raise
            raise _ChangedError(
                f"table {name!r} was changed by others {_CONFLICTS_MAX} times in a row"
            ) from error
        return after

    return retry(attempt, on=_ChangedError, backoff=Backoff(_CONFLICTS_MAX - 1))


class _ChangedError(ConflictError):
    """Another writer changed the table between its read and its replacement."""


def _has_name(index: TableIndex, name: str) -> bool:
    try:
        index.by_name(name)
    except NotFoundError:
        return False
    return True
