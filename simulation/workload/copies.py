"""Operations that copy rows out of the instance: consumers of the change feed, and backups."""

from collections import Counter
from collections.abc import Callable, Sequence

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


def _followed(client: Client) -> list[CreatedTable]:
    return [
        each
        for each in client.catalogue.active()
        if each.definition.kind in _FOLLOWED and each.definition.age_ms is None
    ]


def _has_followed(client: Client) -> bool:
    return bool(_followed(client))


@operation(3, _has_followed)
def follow_changes(client: Client) -> None:
    """Applies some or all new changes of a table to a copy, which begins with a query."""
    table = client.random.choice(_followed(client))
    copy = client.journal.copies.get(table.id)
    if copy is None:
        client.journal.copies[table.id] = _begin_copy(client, table)
        return
    request = ChangesRequest(first=copy.number + 1, follower=_FOLLOWER)
    try:
        with open_changes(client.instance, table.name, request) as changes:
            if _names(changes.schema) != _names(copy.schema):
                _end_copy(client, table)
                return
            _apply_changes(client, copy, changes)
    except InvalidRequestError:
        # The changes are past the table's retention.
        _end_copy(client, table)
        raise


def _names(schema: Schema) -> list[tuple[int, str, object]]:
    return [(each.id, each.name, each.type) for each in schema.fields]


def _begin_copy(client: Client, table: CreatedTable) -> Copy:
    with client.instance.table(table.name).state.reading() as state:
        number, schema = state.number, state.schema
    query = Query(version=number, raw=True)
    with open_query(client.instance, table.name, query) as result:
        rows = Counter(row for batch in result for row in batch_rows(batch))
    return Copy(table.id, number, schema, rows)


def _end_copy(client: Client, table: CreatedTable) -> None:
    """Ends the copy, whose rows have another schema or miss changes, and its follower."""
    client.journal.copies.pop(table.id, None)
    delete_follower(client.instance, table.name, _FOLLOWER)


def _apply_changes(client: Client, copy: Copy, changes: ChangeReader) -> None:
    """Applies whole transactions, and stops after some changes or at the end."""
    left = client.random.choice((2, 5, 1_000))
    parts: list[Change] = []
    for change in changes:
        if parts and parts[0].number != change.number:
            _apply_transaction(copy, parts)
            parts = []
        parts.append(change)
        left -= 1
        if left < 0:
            return  # the last transaction may have more parts
    if parts:
        _apply_transaction(copy, parts)
    copy.number = max(copy.number, changes.position)
    copy.is_checked = False


def _apply_transaction(copy: Copy, parts: Sequence[Change]) -> None:
    for part in parts:
        if part.number > copy.number:
            _apply_part(copy, part)
    copy.number = max(copy.number, *(part.number for part in parts))
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


def _has_backups(client: Client) -> bool:
    return client.backup_location is not None and has_table(client)


@operation(1, _has_backups)
def make_backup(client: Client) -> None:
    """Backs up all tables, or one."""
    assert client.backup_location is not None
    names = [client.choose_table().name] if client.random.random() < 0.5 else []
    result = back_up(client.instance, client.backup_location, names, keep=_BACKUPS_KEPT)
    numbers = {each.name: each.number for each in result.tables}
    client.journal.backups.append(Backup(client.backup_location, result.id, numbers))
    del client.journal.backups[:-_BACKUPS_KEPT]
