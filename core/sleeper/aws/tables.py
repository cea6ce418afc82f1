"""The tables of an AWS instance: the index on DynamoDB, objects, logs and property files.

The index has the form that existing clients read. An active table is the same item in three
DynamoDB tables: by name, by id, and by online and name (docs/formats.md, "Table index"). A table
that is being deleted is only in the one by id, with `State`, so that clients that look for a name
or list tables do not see it, and with `DeletedTime` while it can be brought back. A change is one
transaction over all its items, on the condition that none changed after it was read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sleeper.aws.dynamo import DynamoItems, Item, Write
from sleeper.aws.errors import RefusedError
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError
from sleeper.tables import TableId, TableRef, TableState, check_table_name

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import obstore

from sleeper.aws.config_bucket import PropertyFiles
from sleeper.aws.state_copies import StateCopies
from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.statestore.snapshots import SnapshotStore
from sleeper.storage.bucket_folder import store_errors
from sleeper.storage.location import DataRoot
from sleeper.tables import TableIndex

_KEY_BYTES_MAX = 2048
_OPTIONAL = ("State", "DeletedTime")
_ATTRIBUTES = ("TableId", "TableName", "Online", *_OPTIONAL)
_IS_TABLE = "#TableId = :TableId"


@dataclass(frozen=True, slots=True)
class TableIndexNames:
    """The names of the three DynamoDB tables."""

    by_name: str
    by_id: str
    by_online: str


class DynamoTableIndex:
    """Implements `sleeper.tables.TableIndex`. Safe for threads."""

    def __init__(self, client: "DynamoDBClient", names: TableIndexNames) -> None:
        self._by_name, self._by_id, self._by_online = (
            DynamoItems(client, name, "table index")
            for name in (names.by_name, names.by_id, names.by_online)
        )

    def create(self, table: TableRef) -> None:
        check_table_name(table.name)
        self._change(None, table)

    def find(self, name: str) -> TableRef:
        item = self._by_name.get({"TableName": name})
        if item is None:
            raise NotFoundError(f"no table is named {name!r}")
        return _table(item)

    def get(self, table_id: TableId) -> TableRef:
        table = self._find(table_id)
        if table is None:
            raise NotFoundError(f"no table has id {table_id!r}")
        return table

    def get_all(self, table_ids: Collection[TableId]) -> Mapping[TableId, TableRef]:
        # DynamoDB refuses a whole request because of one invalid key. Ids are short and ASCII.
        valid = [each for each in table_ids if each.isascii() and 0 < len(each) <= _KEY_BYTES_MAX]
        keys = [{"TableId": each} for each in valid]
        tables = map(_table, self._by_id.get_all(keys, _ATTRIBUTES))
        return {table.id: table for table in tables}

    def list(self, state: TableState = TableState.ACTIVE) -> tuple[TableRef, ...]:
        # An item of the table by id keeps its place. In the table by online, a table that goes
        # online or offline during the scan would be missed or listed twice.
        tables = (table for table in map(_table, self._by_id.scan()) if table.state is state)
        return tuple(sorted(tables, key=lambda t: (t.name.encode(), t.id)))

    def replace(self, before: TableRef, after: TableRef) -> None:
        check_table_name(after.name)
        if after.id != before.id:
            raise ConflictError(_changed(before))
        self._change(before, after)

    def remove(self, table_id: TableId) -> None:
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
            writes.append((put, f"table {new.name!r} already exists"))
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
            return put, f"a table of id {after.id} already exists"
        values = {name: v for name, v in _item(before).items() if name != "TableId"}
        condition = " AND ".join(f"#{name} = :{name}" for name in values)
        for name in _OPTIONAL:
            if name not in values:
                condition += f" AND attribute_not_exists(#{name})"
        if after is None:
            delete = self._by_id.delete_write({"TableId": before.id}, condition, values)
            return delete, _changed(before)
        return self._by_id.put_write(_item(after), condition, values), _changed(before)


def _changed(table: TableRef) -> str:
    return f"table {table.name!r} was changed by another"


def _online_key(table: TableRef) -> Item:
    return {"Online": _item(table)["Online"], "TableName": table.name}


def _item(table: TableRef) -> Item:
    state: Item = {} if table.state is TableState.ACTIVE else {"State": table.state.value}
    if table.deleted_ms is not None:
        state["DeletedTime"] = table.deleted_ms
    return {
        "TableId": table.id,
        "TableName": table.name,
        "Online": "true" if table.online else "false",
        **state,
    }


def _table(item: Item) -> TableRef:
    state = TableState(item.get("State", TableState.ACTIVE.value))
    return TableRef(
        TableId(item["TableId"]),
        item["TableName"],
        item["Online"] == "true",
        state,
        item.get("DeletedTime"),
    )


_TABLE_ID = re.compile("[0-9a-f]{8}")
_DELETED_AT_ONCE = 1000
# The first object of a table. It marks a creation that a crash left without a row in the index.
_MARKER = "created"


@dataclass(frozen=True, slots=True)
class AwsTables:
    """The tables' objects, logs, property files and copies of states."""

    index: TableIndex
    root: DataRoot
    files: PropertyFiles
    copies: StateCopies
    open_log: Callable[[TableId], DynamoTransactionLog]

    def create(self, table_id: TableId) -> None:
        """Creates the table's first object, before its row in the index."""
        path = f"{table_id}/{_MARKER}"
        with store_errors(path):
            obstore.put(self.root.store, path, b"")

    def install(self, table_id: TableId, state: Path) -> None:
        """Makes a state the table's first snapshot, and begins its log after that."""
        number = SnapshotStore(self.root.store, table_id).save_file(state)
        self.open_log(table_id).begin(number)

    def remove(self, table_id: TableId) -> None:
        """Deletes everything of the table except its row. It can be repeated after a crash."""
        paths = (each.path for each in self.root.list_objects(f"{table_id}/"))
        marker = f"{table_id}/{_MARKER}"
        others = (path for path in paths if path != marker)
        while some := list(islice(others, _DELETED_AT_ONCE)):
            self.root.delete(some)
        # After the data, whose pins are in the log.
        self.copies.forget(table_id)
        self.open_log(table_id).delete()
        self.files.remove(table_id)
        # Last, because `abandoned` finds the other objects by it.
        self.root.delete([marker])

    def abandoned(self, older_than_ms: int) -> tuple[TableId, ...]:
        """Returns tables without a row that were last written before that time."""
        written = self.files.written_ms()
        created = {*written, *self._with_objects()}
        if not created:
            return ()
        # After the files, because a table may get its row in between.
        listed = {ref.id for state in TableState for ref in self.index.list(state)}
        newest = {i: self._written_ms(i, written.get(i)) for i in sorted(created - listed)}
        return tuple(i for i, ms in newest.items() if ms is not None and ms < older_than_ms)

    def _with_objects(self) -> Iterator[TableId]:
        with store_errors(""):
            folders = obstore.list_with_delimiter(self.root.store)["common_prefixes"]
        names = (folder.strip("/") for folder in folders)
        return (TableId(name) for name in names if _TABLE_ID.fullmatch(name))

    def _written_ms(self, table_id: TableId, file_written_ms: int | None) -> int | None:
        """Returns the time of the table's last write, or None if it has no files."""
        times = [each.modified_ms for each in self.root.list_objects(f"{table_id}/")]
        return max([*times, *([] if file_written_ms is None else [file_written_ms])], default=None)
