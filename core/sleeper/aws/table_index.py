"""The table index on DynamoDB, in the form that existing clients read.

An active table is the same item in three tables: by name, by id, and by online and name
(docs/formats.md, "Table index"). One that is being deleted stands only in the one by id, with
`State`, so that clients that look for a name or list tables do not see it. All items of a
change are one transaction of DynamoDB, on the condition that they are as they were read.
"""

from dataclasses import dataclass
from typing import Any

from sleeper.aws.dynamo_batches import Item, scan_pages, write_together
from sleeper.aws.errors import RefusedError, translated
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError, UnavailableError
from sleeper.retries import Backoff, retry
from sleeper.tables.table_ref import TableId, TableRef, TableState, check_table_name

_BACKOFF = Backoff(retries=7, seconds_first=0.02)
_WHAT = "table index"


@dataclass(frozen=True, slots=True)
class TableIndexNames:
    """The names of the three DynamoDB tables."""

    by_name: str
    by_id: str
    by_online: str


class DynamoTableIndex:
    """Implements `sleeper.tables.table_index.TableIndex`. Safe for threads."""

    def __init__(self, client: Any, names: TableIndexNames) -> None:
        self._client = client
        self._names = names

    def create(self, table: TableRef) -> None:
        """See the port."""
        check_table_name(table.name)
        self._change(None, table)

    def by_name(self, name: str) -> TableRef:
        """See the port."""
        item = self._get(self._names.by_name, {"TableName": {"S": name}})
        if item is None:
            raise NotFoundError(f"no table is named {name!r}")
        return _table(item)

    def by_id(self, table_id: TableId) -> TableRef:
        """See the port."""
        found = self._find(table_id)
        if found is None:
            raise NotFoundError(f"no table has id {table_id!r}")
        return found

    def list(self, state: TableState = TableState.ACTIVE) -> tuple[TableRef, ...]:
        """See the port."""
        # By id, where an item stays in its place: one that moves from offline to online, or
        # the other way, while both are looked through would be missed, or met twice.
        scan = {"TableName": self._names.by_id, "ConsistentRead": True}
        with translated(_WHAT):
            tables = [_table(item) for page in scan_pages(self._client, scan) for item in page]
        found = (table for table in tables if table.state is state)
        return tuple(sorted(found, key=lambda t: (t.name.encode(), t.id)))

    def replace(self, before: TableRef, after: TableRef) -> None:
        """See the port."""
        check_table_name(after.name)
        if after.id != before.id:
            raise ConflictError(f"table {before.name!r} was changed by another")
        self._change(before, after)

    def remove(self, table_id: TableId) -> None:
        """See the port."""
        found = self._find(table_id)
        if found is None:
            return
        if found.state is not TableState.DELETING:
            raise InvalidRequestError(f"table {found.name!r} is not being deleted")
        self._change(found, None)

    def _change(self, before: TableRef | None, after: TableRef | None) -> None:
        """One transaction. Another one under way on the same items is waited for."""
        writes = _writes(self._names, before, after)
        try:
            retry(
                lambda: write_together(self._client, _WHAT, [w.request for w in writes]),
                on=ConflictError,
                unless=RefusedError,
                backoff=_BACKOFF,
            )
        except RefusedError as error:
            raise ConflictError(writes[error.items[0]].if_refused) from error
        except ConflictError as error:
            raise UnavailableError(f"{_WHAT}: other changes were always in progress") from error

    def _find(self, table_id: TableId) -> TableRef | None:
        if not table_id:
            return None
        item = self._get(self._names.by_id, {"TableId": {"S": table_id}})
        return None if item is None else _table(item)

    def _get(self, table_name: str, key: Item) -> Item | None:
        with translated(_WHAT):
            answer = self._client.get_item(TableName=table_name, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item


@dataclass(frozen=True, slots=True)
class _Write:
    """An item's part of a transaction, and what it means if its condition does not hold."""

    request: Item
    if_refused: str


def _writes(
    names: TableIndexNames, before: TableRef | None, after: TableRef | None
) -> list[_Write]:
    old = before if before is not None and before.state is TableState.ACTIVE else None
    new = after if after is not None and after.state is TableState.ACTIVE else None
    writes = [_write_by_id(names.by_id, before, after)]
    if old is not None and (new is None or new.name != old.name):
        writes.append(_delete(names.by_name, old, ("TableName",)))
    if new is not None:
        is_same_name = old is not None and old.name == new.name
        writes.append(_put_by_name(names.by_name, new, is_same_name))
    place = None if new is None else _online_place(new)
    if old is not None and _online_place(old) != place:
        writes.append(_delete(names.by_online, old, ("Online", "TableName")))
    if new is not None:
        request = {"Put": {"TableName": names.by_online, "Item": _item(new)}}
        writes.append(_Write(request, _changed(new)))
    return writes


def _write_by_id(table_name: str, before: TableRef | None, after: TableRef | None) -> _Write:
    subject = after or before
    assert subject is not None
    names, values = {"#id": "TableId"}, {}
    if before is None:
        condition = "attribute_not_exists(#id)"
        if_refused = f"a table of id {subject.id} exists already"
    else:
        # As it was read, member for member.
        item = _item(before)
        names = {f"#{name}": name for name in ("TableName", "Online", "State")}
        values = {f":{name}": item[name] for name in names.values() if name in item}
        condition = "#TableName = :TableName AND #Online = :Online AND " + (
            "#State = :State" if "State" in item else "attribute_not_exists(#State)"
        )
        if_refused = _changed(before)
    request = {
        "TableName": table_name,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
        **({"ExpressionAttributeValues": values} if values else {}),
    }
    if after is None:
        return _Write({"Delete": {**request, "Key": {"TableId": {"S": subject.id}}}}, if_refused)
    return _Write({"Put": {**request, "Item": _item(after)}}, if_refused)


def _put_by_name(table_name: str, table: TableRef, is_same_name: bool) -> _Write:
    request: Item = {"TableName": table_name, "Item": _item(table)}
    if is_same_name:
        request |= _if_it_is(table)
        return _Write({"Put": request}, _changed(table))
    request["ConditionExpression"] = "attribute_not_exists(#name)"
    request["ExpressionAttributeNames"] = {"#name": "TableName"}
    return _Write({"Put": request}, f"table {table.name!r} exists already")


def _delete(table_name: str, table: TableRef, key: tuple[str, ...]) -> _Write:
    item = _item(table)
    request = {"TableName": table_name, "Key": {k: item[k] for k in key}, **_if_it_is(table)}
    return _Write({"Delete": request}, _changed(table))


def _if_it_is(table: TableRef) -> Item:
    return {
        "ConditionExpression": "#id = :id",
        "ExpressionAttributeNames": {"#id": "TableId"},
        "ExpressionAttributeValues": {":id": {"S": table.id}},
    }


def _changed(table: TableRef) -> str:
    return f"table {table.name!r} was changed by another"


def _online_place(table: TableRef) -> tuple[bool, str]:
    return table.online, table.name


def _item(table: TableRef) -> Item:
    item = {
        "TableId": {"S": table.id},
        "TableName": {"S": table.name},
        "Online": {"S": "true" if table.online else "false"},
    }
    if table.state is not TableState.ACTIVE:
        item["State"] = {"S": table.state.value}
    return item


def _table(item: Item) -> TableRef:
    state = TableState(item["State"]["S"]) if "State" in item else TableState.ACTIVE
    return TableRef(
        TableId(item["TableId"]["S"]), item["TableName"]["S"], item["Online"]["S"] == "true", state
    )
