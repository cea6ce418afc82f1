"""Clones of tables: a new table on the files of a version of another (design note 13).

The steps of a clone, each of which may be the last of a process that dies:

1. A hold keeps the version of the source.
2. The clone's row is in the index, in the state *creating*.
3. The owners of the files pin them for the clone.
4. The clone has a state: that of the source, cut to the version.
5. The clone has properties, and its row becomes active.

What an interrupted clone leaves is deleted like a table: by the next clone of that name, or by
`sleeper table delete`.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sleeper.admin.properties import describe_document, format_processing
from sleeper.errors import ConflictError, NotFoundError, SleeperError, StateMovedOnError
from sleeper.files import owner_id
from sleeper.instance import Instance, OpenTable
from sleeper.processing.restriction import restrict_callers
from sleeper.properties.table import NAME, QUERY_CALLERS, SCHEMA, TABLE_ID
from sleeper.schema.model import schema_to_json
from sleeper.statestore.holds import Hold
from sleeper.statestore.snapshots import temporary_folder
from sleeper.statestore.transactions.pins import PinFiles
from sleeper.statestore.version import Version
from sleeper.tables import (
    TableId,
    TableRef,
    TableState,
    check_table_name,
    find_clones,
    mark_clone_deleting,
    new_table_id,
)

_HOLD_MS = 3_600_000
_PINNED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class CloneResult:
    """The new table, the source's version that it begins with, and the size of that."""

    name: str
    id: TableId
    version: int
    files: int
    bytes: int


def clone_table(
    instance: Instance, source: str, name: str, as_of: Version | None = None
) -> CloneResult:
    """Creates a table on the files of a version of another. Copies no data.

    The clone has schema, processing, partitions, rows and deletes of the version, and the source's
    other properties; its transactions continue the source's numbers. Both tables change
    independently. ConflictError if a table has the name; InvalidRequestError for an invalid name
    and for a version that is not readable. A clone that was interrupted is deleted and made again.
    """
    check_table_name(name)
    table = instance.table(source)
    _check_name_free(instance, name)
    for unfinished in find_clones(instance.tables.index, name):
        mark_clone_deleting(instance.tables.index, unfinished)
    ref = replace(table.ref, id=new_table_id(), name=name, state=TableState.CREATING)
    with table.state.reading(as_of) as state:
        version, extent = state.version, state.files.extent()
    hold_id = uuid.uuid4().hex
    expiry_ms = instance.clock() + _HOLD_MS
    hold = Hold(hold_id, f"clone {name}", version, expiry_ms)
    table.state.holds.take(hold, is_new=True)
    try:
        instance.tables.index.create(ref)
        try:
            _fill(instance, table, ref, version)
            # ConflictError if the name was taken, or if another clone of that name began.
            instance.tables.index.replace(ref, replace(ref, state=TableState.ACTIVE))
        except BaseException as error:
            with suppress(SleeperError):
                mark_clone_deleting(instance.tables.index, ref)
            if isinstance(error, NotFoundError):
                table.check_active()  # a clearer error if its state is already deleted
            raise
    finally:
        with suppress(SleeperError):  # it expires
            table.state.holds.release([hold_id])
    return CloneResult(name, ref.id, version, extent.files, extent.bytes)


def _check_name_free(instance: Instance, name: str) -> None:
    try:
        instance.tables.index.find(name)
    except NotFoundError:
        return
    raise ConflictError(f"table {name!r} already exists")


def _fill(instance: Instance, table: OpenTable, ref: TableRef, version: int) -> None:
    """Pins the files of the version, and creates the clone's state and properties."""
    instance.tables.create(ref.id)
    with table.state.reading(version) as state:
        for owner, paths in _group_by_owner(state.files.paths()):
            _pin(instance, owner, ref.id, paths)
        properties = table.properties()
        callers = properties.get(QUERY_CALLERS)
        mapped = callers and restrict_callers(callers, state.schema, state.newest_schema)
        properties = properties.with_values(
            {
                **({QUERY_CALLERS.name: mapped} if mapped and mapped != callers else {}),
                NAME.name: ref.name,
                TABLE_ID.name: ref.id,
                SCHEMA.name: schema_to_json(replace(state.schema, latest=None)),
                **describe_document(state.schema),
                **format_processing(state.processing),
            }
        )
    # The deletion of the table may have begun before it had pins.
    table.check_active()
    with temporary_folder(None) as folder:
        file = Path(folder, "state.db")
        table.state.copy_version(version, file)
        instance.tables.install(ref.id, file)
    instance.tables.properties.write(ref.id, properties)


def _group_by_owner(paths: Iterable[str]) -> Iterator[tuple[TableId, list[str]]]:
    groups: dict[TableId, list[str]] = {}
    for path in paths:
        owner = TableId(owner_id(path))
        group = groups.setdefault(owner, [])
        group.append(path)
        if len(group) == _PINNED_AT_ONCE:
            yield owner, groups.pop(owner)
    yield from groups.items()


def _pin(instance: Instance, owner: TableId, clone: TableId, paths: list[str]) -> None:
    try:
        instance.tables.index.get(owner)
    except NotFoundError as error:
        raise StateMovedOnError(f"table {owner} with {len(paths):,} files was deleted") from error
    instance.tables.state(owner).commit_or_raise(PinFiles(clone, tuple(paths)))
