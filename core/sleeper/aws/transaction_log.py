"""The transaction log on DynamoDB.

One DynamoDB table holds the logs of all tables of an instance. A log is a *head* (the numbers of
the last and the last trimmed transaction), an item for each *entry*, and one for each follower's
*cursor*. An append moves the head and puts the entry in one transaction of DynamoDB, which appends
to the logs of other tables may share. The token of one that is not shared is the entry's write id:
a repetition within ten minutes does nothing.

Trimming raises the head's `trimmed`, which hides the entries, then deletes their bodies in the
object store, then their items. So the next trim finishes one that died.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import obstore
import zstandard
from obstore.store import ObjectStore

from sleeper.aws.dynamo import DynamoItems, Item, Write
from sleeper.aws.errors import RefusedError
from sleeper.aws.shared_appends import SharedAppends
from sleeper.errors import ConflictError, DataError, NotFoundError, UnavailableError
from sleeper.retries import Backoff, retry
from sleeper.statestore.log import LogEntry
from sleeper.storage.bucket_folder import store_errors

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_LEVEL = 3
_NAME = re.compile(r"/log/(\d{19})-[0-9a-f]+\.json\.zst$")


class LogBodies:
    """The objects of one table's log, `<table id>/log/<first, 19 digits>-<write id>.json.zst`."""

    def __init__(self, objects: ObjectStore, table_id: str) -> None:
        self._objects = objects
        self._folder = f"{table_id}/log"

    def put(self, first_number: int, write_id: str, compressed: bytes) -> str:
        """Stores a body, before the entry that names it; returns its path."""
        path = f"{self._folder}/{first_number:019d}-{write_id}.json.zst"
        with store_errors(path):
            obstore.put(self._objects, path, compressed)
        return path

    def get(self, path: str) -> bytes:
        """Returns a stored body. NotFoundError names a missing object."""
        with store_errors(path):
            return bytes(obstore.get(self._objects, path).bytes())

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes bodies. Missing ones are no error."""
        for path in paths:
            with suppress(NotFoundError), store_errors(path):
                obstore.delete(self._objects, path)


def compress_body(body: str) -> bytes:
    """Returns the body as an entry holds it."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(body.encode())


def decompress_body(first_number: int, compressed: bytes) -> str:
    """Returns the body of an entry. DataError names a damaged one."""
    try:
        return zstandard.ZstdDecompressor().decompress(compressed).decode()
    except (zstandard.ZstdError, UnicodeDecodeError) as error:
        raise DataError(f"log entry {first_number} is damaged: {error}") from error


def body_number(path: str) -> int | None:
    """Returns the first number of the object's entry, or None if the path is not a body's."""
    match = _NAME.search(path)
    return int(match[1]) if match else None


_HEAD = "head"
_ENTRY = "entry#"
_CURSOR = "cursor#"
_DIGITS = 19
_INLINE_BYTES_MAX = 300 * 1024
# A read stops after this size of bodies, to bound its memory.
_READ_CHARACTERS = 16 * 1024**2
# A range query may return an entry later than the head names it.
_VISIBILITY_BACKOFF = Backoff(retries=10, seconds_first=0.02, seconds_max=2.0, jitter=0)


class _MissingEntryError(UnavailableError):
    """The head names an entry that a range query does not return yet."""


class DynamoTransactionLog:
    """Implements `sleeper.statestore.log.TransactionLog` for one table. Safe for threads.

    Big bodies go to `objects`, below `<table id>/log/`. Logs with the same `appends` share
    transactions.
    """

    def __init__(
        self,
        client: "DynamoDBClient",
        table_name: str,
        table_id: str,
        objects: ObjectStore,
        appends: SharedAppends | None = None,
    ) -> None:
        self._table_id = table_id
        self._items = DynamoItems(client, table_name, f"transaction log of table {table_id}")
        self._appends = appends or SharedAppends(self._items)
        self._bodies = LogBodies(objects, table_id)

    def head(self) -> int:
        return self._head()[0]

    def begin(self, after: int) -> None:
        head: Item = {**self._key(_HEAD), "head": after, "trimmed": after}
        try:
            self._items.put(head, "attribute_not_exists(#head)")
        except RefusedError as error:
            if self._head() != (after, after):
                raise ConflictError(
                    f"{self._items.label} is at {self._head()[0]} (expected an empty log, to begin "
                    f"after {after})"
                ) from error

    def read(self, after: int, limit: int = 100) -> Sequence[LogEntry]:
        return retry(
            lambda: self._read(after, limit), on=_MissingEntryError, backoff=_VISIBILITY_BACKOFF
        )

    def _read(self, after: int, limit: int) -> Sequence[LogEntry]:
        head, trimmed = self._head()
        if after > head:
            raise NotFoundError(f"transaction {after} is beyond the log, which ends at {head}")
        if after == head:
            return []
        _check_trimmed(after, trimmed)
        try:
            entries = self._entries_after(after, limit)
        except NotFoundError as error:
            # Trimmed after the read of the head, or lost.
            _check_trimmed(after, self._head()[1])
            raise DataError(f"{self._items.label}: {error}") from error
        if not entries:
            raise _MissingEntryError(
                f"{self._items.label}: entry {after + 1} is missing, and the head is {head}; if "
                "the error persists, the log is damaged"
            )
        return entries

    def append(self, entry: LogEntry) -> None:
        self.start_append(entry)()

    def start_append(self, entry: LogEntry) -> Callable[[], None]:
        item: Item = {
            **self._key(_entry_key(entry.first_number)),
            "last": entry.last_number,
            "time": entry.time_ms,
            "writeId": entry.write_id,
            "format": entry.format_version,
            "previous": entry.previous_write_id,
        }
        body = compress_body(entry.body)
        if len(body) <= _INLINE_BYTES_MAX:
            item["body"] = body
        else:
            item["bodyObject"] = self._bodies.put(entry.first_number, entry.write_id, body)
        put = self._items.put_write(item, "attribute_not_exists(#item)")
        finish = self._appends.start([self._move_head(entry), put], entry.write_id, len(body))

        def finish_append() -> None:
            try:
                finish()
            except ConflictError as error:
                raise ConflictError(
                    f"transaction {entry.first_number} is taken: {error}"
                ) from error

        return finish_append

    def trim(self, up_to: int) -> None:
        for page in self._pages(_entry_key(0), _entry_key(up_to)):
            old = [item for item in page if item["last"] <= up_to]
            if old:
                self._raise(_HEAD, "trimmed", max(item["last"] for item in old))
                self._delete_entries(old)

    def cursor(self, follower: str) -> int:
        return int(self._get(_CURSOR + follower).get("position", 0))

    def advance(self, follower: str, to: int) -> None:
        self._raise(_CURSOR + follower, "position", to)

    def used_bodies(self, paths: Sequence[str]) -> set[str]:
        return {path for path in paths if self._is_in_use(path)}

    def delete(self) -> None:
        """Deletes the log of a deleted table. It can be repeated after a crash."""
        for page in self._pages("!", "~"):
            self._delete_entries(page)

    def _is_in_use(self, path: str) -> bool:
        number = body_number(path)
        head, trimmed = self._head()
        if number is None or number <= trimmed:
            return False
        if number > head:
            return True  # an append in progress may name it
        item = self._get(_entry_key(number))
        return bool(item.get("bodyObject") == path)

    def _head(self) -> tuple[int, int]:
        item = self._get(_HEAD)
        return item.get("head", 0), item.get("trimmed", 0)

    def _move_head(self, entry: LogEntry) -> Write:
        before = entry.first_number - 1
        values: Item = {"last": entry.last_number, "writeId": entry.write_id}
        condition = "#head = :before" if before else "attribute_not_exists(#head)"
        if before:
            values["before"] = before
        if entry.previous_write_id is not None:
            # An older version moves the head without `writeAt` and `writeId`.
            condition += (
                " AND (attribute_not_exists(#writeAt) OR #writeAt <> :before"
                " OR #writeId = :previous)"
            )
            values["previous"] = entry.previous_write_id
        change = "SET #head = :last, #writeAt = :last, #writeId = :writeId"
        return self._items.update_write(self._key(_HEAD), change, condition, values)

    def _raise(self, item: str, attribute: str, to: int) -> None:
        """Sets the number unless it is as high or higher."""
        condition = f"attribute_not_exists(#{attribute}) OR #{attribute} < :to"
        with suppress(RefusedError):
            self._items.update(self._key(item), f"SET #{attribute} = :to", condition, {"to": to})

    def _entries_after(self, after: int, limit: int) -> list[LogEntry]:
        """Returns entries, fewer than the limit if they are big, none if the next is missing."""
        entries: list[LogEntry] = []
        characters = 0
        for item in self._items_after(after, limit):
            entries.append(self._entry(item))
            characters += len(entries[-1].body)
            if characters >= _READ_CHARACTERS:
                break
        if not entries:
            # A range query may return an entry later than a read by its key does.
            item = self._get(_entry_key(after + 1))
            return [self._entry(item)] if item else []
        return entries

    def _items_after(self, after: int, limit: int) -> Iterator[Item]:
        """Yields consecutive entries up to a gap, because a trim may be in progress."""
        expected, left = after + 1, limit
        for page in self._pages(_entry_key(expected), _ENTRY + "~", limit):
            for item in page:
                if left == 0 or _first_number(item) != expected:
                    return
                yield item
                expected, left = item["last"] + 1, left - 1

    def _entry(self, item: Item) -> LogEntry:
        first = _first_number(item)
        if "bodyObject" in item:
            body = self._bodies.get(item["bodyObject"])
        else:
            body = item["body"]
        return LogEntry(
            first,
            item["last"],
            item["time"],
            item["writeId"],
            decompress_body(first, body),
            item["format"],
            item.get("previous"),
        )

    def _delete_entries(self, items: Sequence[Item]) -> None:
        self._bodies.delete([i["bodyObject"] for i in items if "bodyObject" in i])
        keys = [{name: item[name] for name in ("tableId", "item")} for item in items]
        self._items.delete(keys)

    def _pages(self, low: str, high: str, limit: int | None = None) -> Iterator[list[Item]]:
        """Yields the items between, in order."""
        condition = "#tableId = :tableId AND #item BETWEEN :low AND :high"
        values = {"tableId": self._table_id, "low": low, "high": high}
        return self._items.query_pages(condition, values, page_size=limit)

    def _get(self, item: str) -> Item:
        """Returns the item, empty if it does not exist."""
        return self._items.get(self._key(item)) or {}

    def _key(self, item: str) -> Item:
        return {"tableId": self._table_id, "item": item}


def _check_trimmed(after: int, trimmed: int) -> None:
    if after < trimmed:
        raise NotFoundError(f"the log after {after} is trimmed: it begins after {trimmed}")


def _entry_key(number: int) -> str:
    return f"{_ENTRY}{number:0{_DIGITS}d}"


def _first_number(item: Item) -> int:
    return int(item["item"].removeprefix(_ENTRY))
