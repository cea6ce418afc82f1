"""The table index on DynamoDB, in the form that existing clients read.

An active table is the same item in three tables: by name, by id, and by online and name
(docs/formats.md, "Table index"). A table that is being deleted is only in the one by id, with
`State`, so that clients that look for a name or list tables do not see it. A change is one
transaction over all its items, on the condition that none changed after it was read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sleeper.aws.dynamo import DynamoItems, Item, Write
from sleeper.aws.errors import RefusedError
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError
from sleeper.tables.table_ref import TableId, TableRef, TableState, check_table_name

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_IS_TABLE = "#TableId = :TableId"


@dataclass(frozen=True, slots=True)
class TableIndexNames:
    """The names of the three DynamoDB tables."""

    by_name: str
    by_id: str
    by_online: str


class DynamoTableIndex:
    """Implements `sleeper.tables.table_index.TableIndex`. Safe for threads."""

    def __init__(self, client: "DynamoDBClient", names: TableIndexNames) -> None:
        self._by_name, self._by_id, self._by_online = (
            DynamoItems(client, name, "table index")
            for name in (names.by_name, names.by_id, names.by_online)
        )

    def create(self, table: TableRef) -> None:
        """See the port."""
        check_table_name(table.name)
        self._change(None, table)

    def by_name(self, name: str) -> TableRef:
        """See the port."""
        item = self._by_name.get({"TableName": name})
        if item is None:
            raise NotFoundError(f"no table is named {name!r}")
        return _table(item)

    def by_id(self, table_id: TableId) -> TableRef:
        """See the port."""
        table = self._find(table_id)
        if table is None:
            raise NotFoundError(f"no table has id {table_id!r}")
        return table

    def list(self, state: TableState = TableState.ACTIVE) -> tuple[TableRef, ...]:
        """See the port."""
        # An item of the table by id keeps its place. In the table by online, a table that goes
        # online or offline during the scan would be missed or listed twice.
        tables = (table for table in map(_table, self._by_id.scan()) if table.state is state)
        return tuple(sorted(tables, key=lambda t: (t.name.encode(), t.id)))

    def replace(self, before: TableRef, after: TableRef) -> None:
        """See the port."""
        check_table_name(after.name)
        if after.id != before.id:
            raise ConflictError(_changed(before))
        self._change(before, after)

    def remove(self, table_id: TableId) -> None:
        """See the port."""
        table = self._find(table_id)
        if table is None:
            return
        if table.state is not TableState.DELETING:
            raise InvalidRequestError(f"table {table.name!r} is not being deleted")
        self._change(table, None)

    def _find(self, table_id: TableId) -> TableRef | None:
        item = self._by_id.get({"TableId": table_id}) if table_id else None
        return None if item is None else _table(item)

    def _change(self, before: TableRef | None, after: TableRef | None) -> None:
        writes = self._writes(before, after)
        try:
            self._by_id.retry_conflicts(lambda: self._by_id.transact([w for w, _ in writes]))
        except RefusedError as error:
            raise ConflictError(writes[error.items[0]][1]) from error

    def _writes(
        self, before: TableRef | None, after: TableRef | None
    ) -> Sequence[tuple[Write, str]]:
        """Returns the writes of a change, each with the meaning of its refusal."""
        old = before if before is not None and before.state is TableState.ACTIVE else None
        new = after if after is not None and after.state is TableState.ACTIVE else None
        writes = [self._write_by_id(before, after)]
        if old is not None and (new is None or new.name != old.name):
            key = {"TableName": old.name}
            delete = self._by_name.delete_write(key, _IS_TABLE, {"TableId": old.id})
            writes.append((delete, _changed(old)))
        if new is not None and old is not None and old.name == new.name:
            put = self._by_name.put_write(_item(new), _IS_TABLE, {"TableId": new.id})
            writes.append((put, _changed(new)))
        elif new is not None:
            put = self._by_name.put_write(_item(new), "attribute_not_exists(#TableName)")
            writes.append((put, f"table {new.name!r} exists already"))
        if old is not None and (new is None or _online_key(old) != _online_key(new)):
            delete = self._by_online.delete_write(_online_key(old), _IS_TABLE, {"TableId": old.id})
            writes.append((delete, _changed(old)))
        if new is not None:
            writes.append((self._by_online.put_write(_item(new)), _changed(new)))
        return writes

    def _write_by_id(self, before: TableRef | None, after: TableRef | None) -> tuple[Write, str]:
        if before is None:
            assert after is not None
            put = self._by_id.put_write(_item(after), "attribute_not_exists(#TableId)")
            return put, f"a table of id {after.id} exists already"
        values = {name: v for name, v in _item(before).items() if name != "TableId"}
        condition = " AND ".join(f"#{name} = :{name}" for name in values)
        if "State" not in values:
            condition += " AND attribute_not_exists(#State)"
        if after is None:
            delete = self._by_id.delete_write({"TableId": before.id}, condition, values)
            return delete, _changed(before)
        return self._by_id.put_write(_item(after), condition, values), _changed(before)


def _changed(table: TableRef) -> str:
    return f"table {table.name!r} was changed by another"


def _online_key(table: TableRef) -> Item:
    return {"Online": _item(table)["Online"], "TableName": table.name}


def _item(table: TableRef) -> Item:
    state = {} if table.state is TableState.ACTIVE else {"State": table.state.value}
    return {
        "TableId": table.id,
        "TableName": table.name,
        "Online": "true" if table.online else "false",
        **state,
    }


def _table(item: Item) -> TableRef:
    state = TableState(item.get("State", TableState.ACTIVE.value))
    return TableRef(TableId(item["TableId"]), item["TableName"], item["Online"] == "true", state)
