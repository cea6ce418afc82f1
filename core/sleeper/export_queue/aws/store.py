"""The storage of export queues on DynamoDB.

Each change of a bucket's items is one transaction with the change of the bucket's counts, so counts
are exact and are read without the items. The state of a bucket is deleted with its last item.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from obstore.store import ObjectStore

from sleeper.aws.clients import aws_client
from sleeper.aws.config_bucket import deployed_value
from sleeper.aws.dynamo import DynamoItems, Item
from sleeper.aws.errors import RefusedError
from sleeper.clock import Clock, system_clock
from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.export_queue.aws.buckets import (
    ERROR_CHARACTERS_MAX,
    Buckets,
    describe_bucket,
    ended_claim,
)
from sleeper.export_queue.aws.changes import Change, apply_changes, bucket_write
from sleeper.export_queue.aws.contents import INLINE_BYTES_MAX, ExportContents
from sleeper.export_queue.aws.keys import QueueKeys, bucket_number, stored_counts
from sleeper.export_queue.aws.registrations import Registrations
from sleeper.export_queue.properties import EXPORT_QUEUES_TABLE
from sleeper.export_queue.store import (
    BucketStatus,
    DeadExports,
    ExportCounts,
    NewDeadLetter,
    NewItem,
    PendingItem,
    Position,
    RegisteredQueue,
)
from sleeper.properties.instance import OPTIONAL_STACKS
from sleeper.properties.values import InstanceProperties

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_THREADS = 8
_ITEMS_PER_DELETION = 100
# A writer finishes an item within this time of its object.
_ORPHAN_MS = 24 * 3_600_000
_MISSING = "attribute_not_exists(#item)"
_PRESENT = "attribute_exists(#item)"


class DynamoExportStore:
    """Implements `sleeper.export_queue.store.ExportStore`. Safe for threads.

    Large contents go to `objects`.
    """

    def __init__(
        self,
        client: "DynamoDBClient",
        table_name: str,
        objects: ObjectStore,
        clock: Clock = system_clock,
    ) -> None:
        self._items = DynamoItems(client, table_name, "export queues")
        self._queues = Registrations(self._items)
        self._contents = ExportContents(objects)
        self._clock = clock

    def vacuum(self) -> bool:
        """Returns true: DynamoDB keeps nothing of deleted items."""
        return True

    def close(self) -> None:
        """Does nothing: the clients are those of the process."""

    def register(self, name: str, table_id: str) -> RegisteredQueue:
        """See the port."""
        if (removed := self._queues.find_removed(name)) is not None:
            self.remove(name, removed.generation)
        return self._queues.add(name, table_id)

    def begin(self, name: str, generation: int, position: Position) -> None:
        """See the port."""
        self._queues.begin(name, generation, position)

    def find(self, name: str) -> RegisteredQueue:
        """See the port."""
        return self._queues.find(name)

    def list(self) -> Sequence[RegisteredQueue]:
        """See the port."""
        return self._queues.list()

    def remove(self, name: str, generation: int | None = None) -> None:
        """See the port. A removal that died is finished by the next, or by a registration."""
        removed = self._queues.begin_removal(name, generation)
        if removed is None:
            return
        buckets = Buckets(self._items, QueueKeys.find(removed))
        for state in buckets.states():
            self._delete_all(buckets.rows(bucket_number(state)))
            self._items.delete([_key(state)])
        self._delete_all(buckets.dead_rows())
        self._contents.sweep(name, (), self._clock() + _ORPHAN_MS)
        self._queues.end_removal(name)

    def pause(self, name: str, paused: bool) -> None:
        """See the port."""
        self._queues.pause(name, paused)

    def add(self, name: str, generation: int, items: Sequence[NewItem], to: Position) -> None:
        """See the port."""
        queue = self._queues.find_generation(name, generation)
        buckets, chosen = Buckets(self._items, QueueKeys.find(queue)), _by_bucket(items)
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(lambda bucket: self._add(buckets, bucket, chosen[bucket]), chosen))
        self._queues.advance(name, generation, to)

    def _add(self, buckets: Buckets, bucket: int, items: Sequence[NewItem]) -> None:
        keys, now = buckets.keys, self._clock()
        puts: list[Item] = []
        changes: list[Change] = []
        for each in items:
            content = self._contents.write(keys.name, each.content)
            puts.append({**keys.item(bucket, each.stored_id), "at": now, **content})
            put = self._items.put_write(puts[-1], _MISSING)
            changes.append(Change(put, 1, each.exports, len(each.content)))
        done = apply_changes(self._items, buckets.adding(bucket, now), changes)
        self._contents.delete([puts[i] for i in done])

    def counts(self, name: str) -> ExportCounts:
        """See the port."""
        states = list(self._buckets(name).states())
        pending, size, dead = (
            sum(state.get(count, 0) for state in states) for count in ("exports", "bytes", "dead")
        )
        return ExportCounts(pending, size, dead)

    def buckets(self, name: str) -> Sequence[BucketStatus]:
        """See the port."""
        now = self._clock()
        states = self._buckets(name).states()
        return [describe_bucket(state, now) for state in states if state.get("items", 0)]

    def claim(self, name: str, bucket: int, owner: str, seconds: float) -> bool:
        """See the port."""
        now = self._clock()
        return self._recent_buckets(name).claim(bucket, owner, now + int(seconds * 1000), now)

    def release(self, name: str, bucket: int, owner: str) -> None:
        """See the port."""
        with suppress(NotFoundError):
            self._recent_buckets(name).release(bucket, owner)

    def read(self, name: str, bucket: int, bytes_max: int) -> Sequence[PendingItem]:
        """See the port."""
        chosen: list[Item] = []
        size = 0
        for item in self._recent_buckets(name).rows(bucket):
            size += stored_counts(item["item"])[1]
            if chosen and size > bytes_max:
                break
            chosen.append(item)
        with ThreadPoolExecutor(_THREADS) as threads:
            contents = list(threads.map(self._content, chosen))
        return [
            PendingItem(item["item"], stored_counts(item["item"])[0], content)
            for item, content in zip(chosen, contents, strict=True)
            if content is not None
        ]

    def settle(
        self,
        name: str,
        bucket: int,
        owner: str,
        removed: Sequence[str],
        dead: Sequence[NewDeadLetter] = (),
    ) -> None:
        """See the port. More than 90 dead letters and items are several transactions.

        Dead letters are the first, so a process that dies in between loses none.
        """
        buckets = self._recent_buckets(name)
        keys = buckets.keys
        large = [each for each in removed if stored_counts(each)[1] > INLINE_BYTES_MAX]
        objects = self._items.get_all([keys.item(bucket, each) for each in large], ["object"])
        puts = [self._dead_row(keys, bucket, each) for each in dead]
        changes = [
            Change(self._items.put_write(put, _MISSING), dead=each.exports)
            for put, each in zip(puts, dead, strict=True)
        ]
        for each in removed:
            delete = self._items.delete_write(keys.item(bucket, each), _PRESENT, {})
            exports, size = stored_counts(each)
            changes.append(Change(delete, -1, -exports, -size))
        try:
            done = apply_changes(self._items, buckets.settling(bucket, owner), changes)
        except RefusedError as error:
            raise ended_claim(name, bucket) from error
        self._contents.delete([*objects, *(puts[i] for i in done if i < len(puts))])
        buckets.set_oldest(bucket)

    def record_failure(
        self, name: str, bucket: int, owner: str, error: str, is_refusal: bool, due_ms: int
    ) -> None:
        """See the port."""
        self._recent_buckets(name).fail(bucket, owner, error, is_refusal, due_ms)

    def retry_now(self, name: str) -> int:
        """See the port."""
        return self._buckets(name).make_due()

    def dead_letters(self, name: str, limit: int = 100) -> Sequence[DeadExports]:
        """See the port. Those with the smallest ids."""
        return [
            DeadExports(
                row["bucket"],
                row["id"],
                row["exports"],
                self._contents.read(row),
                row["error"],
                row["at"],
            )
            for row in islice(self._buckets(name).dead_rows(limit), limit)
        ]

    def redrive(self, name: str) -> int:
        """See the port."""
        buckets = self._buckets(name)
        rows = buckets.dead_rows()
        with ThreadPoolExecutor(_THREADS) as threads:
            return sum(threads.map(partial(self._redrive, buckets), rows))

    def _redrive(self, buckets: Buckets, dead: Item) -> int:
        """Makes a dead letter an item, with its object. Returns the number of its exports."""
        now, bucket, exports = self._clock(), dead["bucket"], dead["exports"]
        again = NewItem(bucket, f"{dead['id']}~{now}", exports, self._contents.read(dead))
        content: Item = {each: dead[each] for each in ("content", "object") if each in dead}
        item: Item = {**buckets.keys.item(bucket, again.stored_id), "at": now, **content}
        delete = self._items.delete_write(_key(dead), _PRESENT, {})
        change = Change(delete, 1, exports, dead["bytes"], -exports)
        state = bucket_write(self._items, buckets.adding(bucket, now), [change])
        writes = [state, delete, self._items.put_write(item)]
        try:
            self._items.retry_conflicts(partial(self._items.transact, writes))
        except RefusedError:
            return 0  # another process has made it an item
        return int(exports)

    def sweep(self, name: str) -> int:
        """See the port. Reads all items."""
        buckets = self._buckets(name)
        before_ms = self._clock() - _ORPHAN_MS
        rows = (buckets.rows(bucket_number(state)) for state in list(buckets.states()))
        items = chain(buckets.dead_rows(), *rows)
        used = {item["object"] for item in items if "object" in item}
        return self._contents.sweep(name, used, before_ms)

    def _buckets(self, name: str) -> Buckets:
        return Buckets(self._items, QueueKeys.find(self._queues.find(name)))

    def _recent_buckets(self, name: str) -> Buckets:
        return Buckets(self._items, QueueKeys.find(self._queues.find_recent(name)))

    def _dead_row(self, keys: QueueKeys, bucket: int, dead: NewDeadLetter) -> Item:
        return {
            **keys.dead(bucket, dead.id),
            "id": dead.id,
            "bucket": bucket,
            "exports": dead.exports,
            "bytes": len(dead.content),
            "error": dead.error[:ERROR_CHARACTERS_MAX],
            "at": self._clock(),
            **self._contents.write(keys.name, dead.content),
        }

    def _content(self, item: Item) -> bytes | None:
        """Returns the content, or None if another process has deleted the item."""
        try:
            return self._contents.read(item)
        except NotFoundError as error:
            if self._items.get(_key(item)) is None:
                return None
            raise DataError(f"item {item['queue']} {item['item']} is damaged: {error}") from error

    def _delete_all(self, items: Iterator[Item]) -> None:
        """Deletes items with their objects."""
        while page := list(islice(items, _ITEMS_PER_DELETION)):
            self._items.delete([_key(item) for item in page])
            self._contents.delete(page)


def _by_bucket(items: Iterable[NewItem]) -> dict[int, list[NewItem]]:
    buckets: dict[int, list[NewItem]] = {}
    for item in items:
        buckets.setdefault(item.bucket, []).append(item)
    return buckets


def _key(item: Item) -> Item:
    return {"queue": item["queue"], "item": item["item"]}


def open_aws_store(
    properties: Callable[[], InstanceProperties], objects: ObjectStore, clock: Clock
) -> DynamoExportStore:
    """Opens the storage of an instance on AWS. InvalidRequestError if it is not deployed."""
    values = properties()
    if values.get(EXPORT_QUEUES_TABLE) is None:
        raise InvalidRequestError(
            "the instance has no export queues (expected ExportQueueStack in "
            f"{OPTIONAL_STACKS.name})"
        )
    table = deployed_value(values, EXPORT_QUEUES_TABLE)
    return DynamoExportStore(aws_client("dynamodb"), table, objects, clock)
