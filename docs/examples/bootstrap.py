"""Copies a table into SQLite, from a stash and the change feed, in one of two ways.

    python bootstrap.py follow INSTANCE TABLE COPY
    python bootstrap.py load DESTINATION TABLE COPY

`follow` applies the changes of the feed, at first those of two days. `load` reads the latest stash.
Rows are written with the numbers of their transactions, and a row never replaces one with a larger
number. So both may run at the same time and repeatedly. Every row of the table needs a key of its
own: row and sort keys together.

    python bootstrap.py defer INSTANCE TABLE DESTINATION COPY

`defer` reads the stash, and then applies the changes that are not in it. This suits every table.

Repeat `follow` or `defer` to apply newer changes. Row keys have to be numbers or texts. Filters,
aggregations and `sleeper.table.latest.by` of a table would have to be applied to the copy too.
"""

import json
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

import sleeper
from sleeper.stash import Stash

FOLLOWER = "copy"
SINCE = "2d"
STASH_FIELDS = {
    "~id",
    "~table",
    "~version",
    "~signature",
    "~deleted",
    "~firstUpdateAt",
    "~lastUpdateAt",
}


def follow(instance: str, table_name: str, path: str) -> int:
    """Applies changes up to the newest one. Returns the number of its transaction."""
    with sleeper.open_instance(instance) as opened:
        table = opened.table(table_name)
        # The table keeps the changes that the follower has not read.
        with table.changes(since=SINCE, follower=FOLLOWER) as changes:
            copy = Copy(path, *key_names(table.schema))
            with copy.database:
                copy.set_number("start", changes.start, replaces=False)
            for change in changes:
                with copy.database:
                    if change.operation in ("insert", "upsert"):
                        copy.put(change.rows, [change.number] * change.rows.num_rows)
                    for condition, values in copy.deleted(change):
                        copy.delete(change.number, condition, values)
                        copy.remember_delete(change.number, condition, values)
            return int(changes.position)


def load(destination: str, table_name: str, path: str) -> int:
    """Reads the latest stash unless that is done. Returns the last transaction that is in it."""
    stash, cut, schema = open_stash(destination, table_name)
    copy = Copy(path, *key_names(schema))
    loaded = copy.number("loaded")
    if loaded is not None:
        return loaded
    check_start(copy.number("start"), cut)
    for split in stash.splits(table_name):
        with stash.split(table_name, split) as rows:
            for batch in rows.batches():
                with copy.database:
                    copy.put(fields(batch), batch.column("~version").to_pylist())
                    # The batch may have rows that the feed has deleted meanwhile.
                    copy.repeat_deletes()
    with copy.database:
        copy.set_number("loaded", cut)
        copy.forget_deletes()
    return cut


def defer(instance: str, table_name: str, destination: str, path: str) -> int:
    """Reads the latest stash unless that is done, then applies the changes that are not in it.

    Returns the number of the last transaction that is in the copy.
    """
    with sleeper.open_instance(instance) as opened:
        table = opened.table(table_name)
        with table.changes(since=SINCE, follower=FOLLOWER) as changes:
            copy = Copy(path, *key_names(table.schema))
            cut = copy.number("loaded")
            if cut is None:
                cut = load_at_once(copy, destination, table_name, changes.start)
            applied, current = copy.number("applied") or cut, None
            for change in changes:
                if change.number <= cut or change.number < applied:
                    continue
                with copy.database:
                    if change.number != current:
                        # An interrupted run may have written some rows of the transaction.
                        copy.delete_number(change.number)
                    for condition, values in copy.deleted(change):
                        copy.delete(change.number, condition, values)
                    if change.operation == "insert":
                        copy.add(change.rows, [change.number] * change.rows.num_rows)
                    elif change.operation == "upsert":
                        copy.put(change.rows, [change.number] * change.rows.num_rows)
                    copy.set_number("applied", change.number)
                current = change.number
            return max(int(changes.position), cut)


def load_at_once(copy: "Copy", destination: str, table_name: str, start: int) -> int:
    """Reads the latest stash in one transaction of the copy, which is empty if it fails."""
    stash, cut, _ = open_stash(destination, table_name)
    check_start(start, cut)
    with copy.database, stash.scan(table_name) as rows:
        for batch in rows.batches():
            copy.add(fields(batch), batch.column("~version").to_pylist())
        copy.set_number("loaded", cut)
    return cut


def open_stash(destination: str, table_name: str) -> tuple[Stash, int, Any]:
    """Returns the latest stash, the number at which it has the table, and the table's schema."""
    stash = Stash.open(destination)
    stash.lock()
    for table in stash.describe_tables():
        if table.table == table_name:
            return stash, table.version, table.table_schema
    sys.exit(f"{destination} has no table {table_name}")


def check_start(start: int | None, cut: int) -> None:
    """Ends the program if changes between the stash and the begin of the feed would be lost."""
    if start is None:
        sys.exit("the copy has not begun to follow the feed: run `follow` first")
    if start > cut:
        sys.exit(f"the stash is too old: it ends at {cut}, and the feed begins after {start}")


def key_names(schema: Any) -> tuple[list[str], list[str]]:
    """Returns the names of the row keys and of the sort keys."""
    return [each.name for each in schema.row_keys], [each.name for each in schema.sort_keys]


def fields(documents: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the fields of the table, without those of the stash.

    In documents, the name of a table's field that begins with `~` has a second `~` before it.
    """
    found = documents.select([n for n in documents.schema.names if n not in STASH_FIELDS])
    return found.rename_columns([name.removeprefix("~") for name in found.schema.names])


class Copy:
    """Rows with their keys, and with the numbers of the transactions that wrote them."""

    def __init__(self, path: str, row_keys: list[str], sort_keys: list[str]) -> None:
        self.row_keys = row_keys
        self.keys = row_keys + sort_keys
        columns = ", ".join(f"k{i}" for i in range(len(self.keys)))
        self._is_key = " AND ".join(f"k{i} = ?{i + 1}" for i in range(len(self.keys)))
        self._values = ", ".join("?" * (len(self.keys) + 2))
        self.database = sqlite3.connect(path, timeout=60, isolation_level="IMMEDIATE")
        self.database.executescript(
            f"""PRAGMA journal_mode = wal;
            CREATE TABLE IF NOT EXISTS rows ({columns}, number INTEGER, content TEXT);
            CREATE INDEX IF NOT EXISTS keys ON rows ({columns}, number);
            CREATE TABLE IF NOT EXISTS deletes (number INTEGER, condition TEXT, params TEXT);
            CREATE TABLE IF NOT EXISTS numbers (name TEXT PRIMARY KEY, number INTEGER);"""
        )

    def add(self, rows: pa.RecordBatch, numbers: Sequence[int]) -> None:
        """Adds rows."""
        self.database.executemany(
            f"INSERT INTO rows VALUES ({self._values})", self._rows(rows, numbers)
        )

    def put(self, rows: pa.RecordBatch, numbers: Sequence[int]) -> None:
        """Writes rows, except for those whose keys have a row with a larger number."""
        number, content = (f"?{len(self.keys) + i}" for i in (1, 2))
        keys = ", ".join(f"?{i + 1}" for i in range(len(self.keys)))
        for row in self._rows(rows, numbers):
            self.database.execute(
                f"DELETE FROM rows WHERE {self._is_key} AND number <= {number}", row[:-1]
            )
            self.database.execute(
                f"INSERT INTO rows SELECT {keys}, {number}, {content}"
                f" WHERE NOT EXISTS (SELECT 1 FROM rows WHERE {self._is_key})",
                row,
            )

    def deleted(self, change: Any) -> Iterator[tuple[str, list[Any]]]:
        """Yields conditions on the rows of smaller numbers that the change has deleted."""
        if change.operation == "replace":
            yield "TRUE", []
        if change.operation == "delete":
            # It has row keys, or the keys of one row of a table of latest rows.
            names = [name for name in self.keys if name in change.rows.schema.names]
            for row in change.rows.to_pylist():
                yield (
                    " AND ".join(f"k{self.keys.index(n)} = ?" for n in names),
                    [row[n] for n in names],
                )
        for region in change.regions:
            conditions, values = [], []
            for i, name in enumerate(self.row_keys):
                conditions.append(f"k{i} >= ?")
                values.append(region[name]["min"])
                if region[name]["max"] is not None:
                    conditions.append(f"k{i} < ?")
                    values.append(region[name]["max"])
            yield " AND ".join(conditions), values

    def delete(self, number: int, condition: str, values: Iterable[Any]) -> None:
        """Deletes the rows of smaller numbers that fulfil the condition."""
        self.database.execute(
            f"DELETE FROM rows WHERE number < ? AND {condition}", [number, *values]
        )

    def delete_number(self, number: int) -> None:
        """Deletes the rows of a transaction."""
        self.database.execute("DELETE FROM rows WHERE number = ?", [number])

    def remember_delete(self, number: int, condition: str, values: list[Any]) -> None:
        """Records a delete that is to be repeated for rows of the stash, until that is read."""
        self.database.execute(
            "INSERT INTO deletes SELECT ?, ?, ?"
            " WHERE NOT EXISTS (SELECT 1 FROM numbers WHERE name = 'loaded')",
            [number, condition, json.dumps(values)],
        )

    def repeat_deletes(self) -> None:
        """Deletes what the changes that were applied so far have deleted."""
        for number, condition, values in self.database.execute("SELECT * FROM deletes").fetchall():
            self.delete(number, condition, json.loads(values))

    def forget_deletes(self) -> None:
        """Forgets the recorded deletes."""
        self.database.execute("DELETE FROM deletes")

    def number(self, name: str) -> int | None:
        """Returns a number of the copy's progress, None if there is none yet."""
        found = self.database.execute(
            "SELECT number FROM numbers WHERE name = ?", [name]
        ).fetchone()
        return None if found is None else int(found[0])

    def set_number(self, name: str, number: int, replaces: bool = True) -> None:
        """Sets a number of the copy's progress. Without `replaces`, keeps the first one."""
        way = "REPLACE" if replaces else "IGNORE"
        self.database.execute(f"INSERT OR {way} INTO numbers VALUES (?, ?)", [name, number])

    def _rows(self, rows: pa.RecordBatch, numbers: Sequence[int]) -> Iterator[list[Any]]:
        for row, number in zip(rows.to_pylist(), numbers, strict=True):
            yield [*(row[name] for name in self.keys), number, json.dumps(row, default=str)]


def main() -> None:
    """Runs the command of the first argument."""
    ways: dict[str, Callable[..., int]] = {"follow": follow, "load": load, "defer": defer}
    way, *arguments = sys.argv[1:] or [""]
    if way not in ways or len(arguments) != (4 if way == "defer" else 3):
        sys.exit(__doc__)
    number = ways[way](*arguments)
    with sqlite3.connect(arguments[-1]) as database:
        ((rows,),) = database.execute("SELECT count(*) FROM rows")
    print(f"{way}: up to transaction {number}, the copy has {rows} rows")


if __name__ == "__main__":
    main()
