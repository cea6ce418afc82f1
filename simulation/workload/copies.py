"""Operations that copy rows out of the instance: consumers of the change feed, and backups."""

from collections import Counter
from collections.abc import Callable

from simulation.model.journal import Backup, Copy
from simulation.model.tables import TableKind
from simulation.model.values import batch_rows
from simulation.workload.client import Client, CreatedTable
from simulation.workload.registry import has_table, operation
from sleeper.admin.tables import delete_follower
from sleeper.backup.run import back_up
from sleeper.errors import InvalidRequestError
from sleeper.query.changes.read import Change
from sleeper.query.changes.reader import ChangeReader, ChangesRequest
from sleeper.query.changes.service import open_changes
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import Schema

_FOLLOWER = "copy"
_BACKUPS_KEPT = 2
_FOLLOWED = (TableKind.APPEND, TableKind.LATEST, TableKind.AGGREGATED)
"""The kinds of tables that are copied, if their rows do not age off.

A copy of rows that a field orders would have to keep deleted ones, and loads may expire. A query
that begins a copy lacks rows that a compaction has aged off, which the feed still has."""


def followed_tables(client: Client) -> list[CreatedTable]:
    """Returns the tables that a consumer of the change feed can copy."""
    return [
        each
        for each in client.catalogue.active()
        if each.definition.kind in _FOLLOWED and each.definition.age_ms is None
    ]


def has_followed(client: Client) -> bool:
    """The operation needs such a table."""
    return bool(followed_tables(client))


@operation(3, has_followed)
def follow_changes(client: Client) -> None:
    """Applies some or all new changes of a table to a copy, which begins with a query."""
    table = client.random.choice(followed_tables(client))
    copy = client.journal.copies.get(table.id)
    if copy is None:
        client.journal.copies[table.id] = begin_copy(client, table)
        return
    request = ChangesRequest(first=copy.number + 1, follower=_FOLLOWER)
    try:
        with open_changes(client.instance, table.name, request) as changes:
            if not has_same_fields(copy, changes.schema):
                end_copy(client, table, table.id, _FOLLOWER)
                return
            _receive_some(client, copy, changes)
    except InvalidRequestError:
        # The changes are past the table's retention.
        end_copy(client, table, table.id, _FOLLOWER)
        raise


def has_same_fields(copy: Copy, schema: Schema) -> bool:
    """Returns whether changes have the fields of the copy."""
    return _names(schema) == _names(copy.schema)


def _names(schema: Schema) -> list[tuple[int, str, object]]:
    return [(each.id, each.name, each.type) for each in schema.fields]


def begin_copy(client: Client, table: CreatedTable) -> Copy:
    """Returns a copy of the newest rows, as they are stored."""
    with client.instance.table(table.name).state.reading() as state:
        number, schema = state.number, state.schema
    query = Query(version=number, raw=True)
    with open_query(client.instance, table.name, query) as result:
        rows = Counter(row for batch in result for row in batch_rows(batch))
    return Copy(table.id, number, schema, rows)


def end_copy(client: Client, table: CreatedTable, key: str, follower: str) -> None:
    """Ends a copy, whose rows have another schema or miss changes, and its follower."""
    client.journal.copies.pop(key, None)
    delete_follower(client.instance, table.name, follower)


def _receive_some(client: Client, copy: Copy, changes: ChangeReader) -> None:
    """Receives some changes, or all until the end."""
    left, turn = client.random.choice((2, 5, 1_000)), copy.begin_reading()
    for change in changes:
        if copy.turn != turn:
            return  # another client has begun
        receive(copy, change)
        left -= 1
        if left < 0:
            return
    if copy.turn == turn:
        receive_end(copy, changes)


def receive(copy: Copy, change: Change) -> None:
    """Keeps a change, and applies the transaction before it if that is complete.

    A reader that is resumed may repeat a transaction, which replaces what was kept of it.
    """
    if copy.pending and copy.pending[0].number < change.number:
        _apply_pending(copy)
    elif copy.is_resumed:
        copy.pending.clear()
    copy.is_resumed = False
    copy.pending.append(change)


def receive_end(copy: Copy, changes: ChangeReader) -> None:
    """Applies the last transaction, and those without changes after it."""
    _apply_pending(copy)
    copy.number = max(copy.number, changes.position)
    copy.is_checked = False


def _apply_pending(copy: Copy) -> None:
    for part in copy.pending:
        if part.number > copy.number:
            _apply_part(copy, part)
    copy.number = max(copy.number, *(part.number for part in copy.pending), 0)
    copy.pending.clear()
    copy.is_checked = False


def _apply_part(copy: Copy, part: Change) -> None:
    if part.operation == "replace":
        copy.rows.clear()
    if part.operation in ("upsert", "delete"):
        names = set(part.rows.schema.names)
        count = sum(each.name in names for each in copy.schema.keys)
        keys = {row[:count] for row in batch_rows(part.rows)}
        _remove(copy, lambda row: row[:count] in keys)
    if part.deleted:
        fields = copy.schema.row_keys

        def is_deleted(row: tuple[object, ...]) -> bool:
            values = zip(fields, row[: len(fields)], strict=True)
            key = tuple(check_key_value(field, value) for field, value in values)
            return any(region.contains(key) for region in part.deleted)

        _remove(copy, is_deleted)
    if part.operation in ("upsert", "insert"):
        copy.rows.update(batch_rows(part.rows))


def _remove(copy: Copy, is_removed: Callable[[tuple[object, ...]], bool]) -> None:
    for row in [each for each in copy.rows if is_removed(each)]:
        del copy.rows[row]


@operation(1, has_table)
def make_backup(client: Client) -> None:
    """Backs up all tables, or one."""
    location = client.environment.destination("backups")
    names = [client.choose_table().name] if client.random.random() < 0.5 else []
    result = back_up(client.instance, location, names, keep=_BACKUPS_KEPT)
    numbers = {each.name: each.number for each in result.tables}
    client.journal.backups.append(Backup(location, result.id, numbers))
    del client.journal.backups[:-_BACKUPS_KEPT]
