"""The tables of an instance: ids, names, and the port of the table index.

A table has an id, which never changes and begins the paths of its objects, and a name, which can
be changed. A table exists if it is in the index: its creation writes state and properties first
and the index row last. A clone begins with a row in the state *creating*, without a claim on the
name, because other tables keep files for it. Deletion marks the row as *deleting*, which frees the
name; garbage collection then removes the objects and at last the row.

A row in that state with the time of the deletion is that of a table that can be brought back.
Garbage collection removes the time before it removes anything else. Both are conditional changes of
the row, so only one of them succeeds.

A creation that stands still for long is given up. Its files are removed after its id was claimed by
a row in the state *abandoned*, so its own row is refused if it goes on.

Invariants: two active tables never share a name, an id is never reused, and a concurrent change is
never overwritten.
"""

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NewType, Protocol

from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError, did_you_mean
from sleeper.retries import Backoff, retry

TableId = NewType("TableId", str)
"""Eight lower-case hexadecimal digits."""

TABLE_NAME_LENGTH_MAX = 200


class TableState(Enum):
    """Whether a table is active, a clone in creation, waits for its deletion, or was given up."""

    ACTIVE = "active"
    CREATING = "creating"
    DELETING = "deleting"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class TableRef:
    """A row of the table index. Offline tables are not split or compacted.

    `deleted_ms` is the time of the deletion of a table that can be brought back, and the time at
    which a creation was given up.
    """

    id: TableId
    name: str
    online: bool = True
    state: TableState = TableState.ACTIVE
    deleted_ms: int | None = None


def new_table_id() -> TableId:
    """Returns a new random id. The index rejects duplicates."""
    return TableId(secrets.token_hex(4))


def is_table_id(text: str) -> bool:
    """Returns whether the text is a valid id."""
    return re.fullmatch("[0-9a-f]{8}", text) is not None


def check_table_name(name: str) -> str:
    """Returns the name. InvalidRequestError if it is invalid.

    Paths, SQL and JSON contain names, so slashes, control characters, and leading or trailing
    white space are invalid.
    """
    if not name or len(name) > TABLE_NAME_LENGTH_MAX:
        raise InvalidRequestError(
            f"table name {name[:40]!r} has {len(name)} characters: "
            f"1 to {TABLE_NAME_LENGTH_MAX} are allowed"
        )
    if name != name.strip() or name in {".", ".."}:
        raise InvalidRequestError(
            f"table name {name!r} is a dot name or begins or ends with white space"
        )
    for character in name:
        if character in '/\\"' or not character.isprintable():
            raise InvalidRequestError(
                f"table name {name!r} has {character!r}: slashes, double quotes and control "
                "characters are not allowed"
            )
    return name


_CONFLICTS_MAX = 20


class TableIndex(Protocol):
    """The tables of an instance. Every call is atomic and durable on return."""

    def create(self, table: TableRef) -> None:
        """Adds the table. ConflictError if its name is in use, or its id was used before."""

    def find(self, name: str) -> TableRef:
        """Returns the active table of that name, or NotFoundError."""

    def get(self, table_id: TableId) -> TableRef:
        """Returns the table of that id, in any state, or NotFoundError."""

    def get_all(self, table_ids: Collection[TableId]) -> Mapping[TableId, TableRef]:
        """Returns those tables of these ids that exist, in any state."""

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
        raise ConflictError(f"table {new_name!r} already exists")
    return _change(index, name, lambda table: replace(table, name=new_name))


def set_table_online(index: TableIndex, name: str, online: bool) -> TableRef:
    """Sets the table online or offline."""
    return _change(index, name, lambda table: replace(table, online=online))


def mark_table_deleting(index: TableIndex, name: str, deleted_ms: int | None = None) -> TableRef:
    """Marks the table as deleting and frees its name. Garbage collection deletes its data.

    With the time of the deletion, `restore_deleted` can bring it back. If no active table has the
    name, it marks unfinished clones of that name, which cannot be brought back.
    """
    if not _has_name(index, name):
        unfinished = [mark_clone_deleting(index, table) for table in find_clones(index, name)]
        if unfinished:
            return unfinished[0]
    return _change(
        index,
        name,
        lambda table: replace(table, state=TableState.DELETING, deleted_ms=deleted_ms),
    )


def list_deleted(index: TableIndex) -> tuple[TableRef, ...]:
    """Returns the deleted tables that can be brought back, by name."""
    return tuple(t for t in index.list(TableState.DELETING) if t.deleted_ms is not None)


def find_deleted(index: TableIndex, name: str) -> TableRef:
    """Returns the deleted table with the name or id. NotFoundError if none can be brought back.

    InvalidRequestError if several have the name.
    """
    deleted = list_deleted(index)
    matches = [table for table in deleted if name in (table.name, table.id)]
    if not matches:
        near = did_you_mean(name, (table.name for table in deleted))
        raise NotFoundError(f"no deleted table {name!r} can be brought back{near}")
    if len(matches) > 1:
        ids = ", ".join(table.id for table in matches)
        raise InvalidRequestError(
            f"several deleted tables are named {name!r} (expected an id: {ids})"
        )
    return matches[0]


def restore_deleted(index: TableIndex, name: str) -> TableRef:
    """Brings a deleted table back, by its name or id, under its name.

    ConflictError if another table has the name, or if garbage collection begins to delete it.
    """
    before = find_deleted(index, name)
    after = replace(before, state=TableState.ACTIVE, deleted_ms=None)
    index.replace(before, after)
    return after


def end_retention(index: TableIndex, table: TableRef) -> TableRef:
    """Makes a deletion final. ConflictError if the table was brought back."""
    after = replace(table, deleted_ms=None)
    index.replace(table, after)
    return after


def find_clones(index: TableIndex, name: str) -> tuple[TableRef, ...]:
    """Returns the clones in creation that are to have the name: unfinished or interrupted ones."""
    return tuple(table for table in index.list(TableState.CREATING) if table.name == name)


def mark_clone_deleting(index: TableIndex, table: TableRef) -> TableRef:
    """Marks a clone in creation as deleting. ConflictError if it was changed, perhaps completed."""
    after = replace(table, state=TableState.DELETING)
    index.replace(table, after)
    return after


def claim_abandoned(index: TableIndex, table_id: TableId, now_ms: int) -> bool:
    """Claims the id of a creation that is given up, which fails if it goes on.

    Returns False if the table was created meanwhile.
    """
    try:
        index.create(TableRef(table_id, table_id, state=TableState.ABANDONED, deleted_ms=now_ms))
    except ConflictError:
        return False
    return True


def find_table(index: TableIndex, name: str | None, table_id: str | None) -> TableRef:
    """Returns the active table of a message, by name or by id. NotFoundError if there is none."""
    if name is not None:
        return index.find(name)
    if table_id is None:
        raise InvalidRequestError("the table is missing (expected tableName or tableId)")
    return check_active(index.get(TableId(table_id)))


def check_active(table: TableRef) -> TableRef:
    """Returns the table. NotFoundError if it is not active."""
    if table.state is not TableState.ACTIVE:
        doing = "deleted" if table.state is TableState.DELETING else "created"
        raise NotFoundError(f"table with id {table.id!r} is being {doing}")
    return table


def _change(index: TableIndex, name: str, change: Callable[[TableRef], TableRef]) -> TableRef:
    def attempt() -> TableRef:
        before = index.find(name)
        after = change(before)
        try:
            index.replace(before, after)
        except ConflictError as error:
            if after.name != name and _has_name(index, after.name):
                raise
            raise _ChangedError(
                f"table {name!r} was changed by other processes {_CONFLICTS_MAX} times in a row"
            ) from error
        return after

    return retry(attempt, on=_ChangedError, backoff=Backoff(_CONFLICTS_MAX - 1))


class _ChangedError(ConflictError):
    """Another writer changed the table between its read and its replacement."""


def _has_name(index: TableIndex, name: str) -> bool:
    try:
        index.find(name)
    except NotFoundError:
        return False
    return True
