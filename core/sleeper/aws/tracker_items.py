"""Events of jobs and tasks as items of a tracker's DynamoDB table.

Each event is an item, under its job's or task's key, so that one that comes again meets
itself. All of them stand in the index `recent` as well, by time, so that its newest items tell
of what happened last: the first events of a job that are met there are its newest. The
index is kept in a few *listings* beside each other, because each takes only so many writes a
second. Items expire by themselves, a rejection not before a week, so that whoever sent the job can
still find out why.
"""

import contextlib
import heapq
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sleeper.aws.dynamo_batches import Item, delete_items, query_pages, write_together
from sleeper.aws.errors import RefusedError, translated
from sleeper.errors import ConflictError, UnavailableError
from sleeper.properties.dynamo_tables import RECENT, TIME_TO_LIVE
from sleeper.retries import Backoff, retry

LISTINGS = 4
_TRANSACTION_ITEMS = 100
_BACKOFF = Backoff(retries=7)
_LISTED_AT_ONCE = 250


class TrackerItems:
    """A tracker's table, whose items are keyed by `subject` (`job` or `task`) and `event`."""

    def __init__(self, client: Any, table_name: str, subject: str) -> None:
        self._client = client
        self._table_name = table_name
        self._subject = subject
        self._what = f"{subject} tracker"

    def put(self, items: Sequence[Item]) -> None:
        """Keeps each item, unless the one that stands there `at` an earlier time is better.

        Some hundred become durable at a time. Repeats are no error.
        """
        for start in range(0, len(items), _TRANSACTION_ITEMS):
            self._put_together(list(items[start : start + _TRANSACTION_ITEMS]))

    def put_later(self, item: Item) -> None:
        """Keeps the item, unless one of a later time stands there."""
        put = self._put(item)
        put["ConditionExpression"] = "attribute_not_exists(#at) OR #at < :at"
        del put["ExpressionAttributeNames"]["#found"]
        with contextlib.suppress(RefusedError), translated(self._what):
            self._client.put_item(**put)

    def of(self, subject: str) -> list[Item]:
        """All items of one job or task."""
        query = self._query("#subject = :subject", {":subject": {"S": subject}})
        query |= {"ConsistentRead": True}
        query["ExpressionAttributeNames"] = {"#subject": self._subject}
        with translated(self._what):
            return [item for page in query_pages(self._client, query) for item in page]

    def newest(self, kinds: Sequence[str], is_wanted: Callable[[str], bool]) -> Iterator[str]:
        """Jobs or tasks of these kinds by the time of their newest event, newest first."""
        found = heapq.merge(
            *(self._listed(listing) for listing in _listings(kinds)),
            key=lambda item: (-int(item["at"]["N"]), item[self._subject]["S"]),
        )
        seen: set[str] = set()
        for item in found:
            subject = item[self._subject]["S"]
            if subject not in seen and is_wanted(subject):
                seen.add(subject)
                yield subject

    def remove_before(self, kinds: Sequence[str], time_ms: int) -> int:
        """Deletes all items of those without any event since then."""
        old: set[str] = set()
        for listing in _listings(kinds):
            for item in self._listed(listing, before_ms=time_ms):
                old.add(item[self._subject]["S"])
        removed = 0
        for subject in old:
            items = self.of(subject)
            if items and max(int(item["at"]["N"]) for item in items) < time_ms:
                keys = [{n: item[n] for n in (self._subject, "event")} for item in items]
                with translated(self._what):
                    delete_items(self._client, self._table_name, keys)
                removed += 1
        return removed

    def _put_together(self, items: list[Item]) -> None:
        missing = items

        def attempt() -> None:
            nonlocal missing
            writes = [{"Put": self._put(item)} for item in missing]
            try:
                if len(writes) == 1:
                    with translated(self._what):
                        self._client.put_item(**writes[0]["Put"])
                elif writes:
                    write_together(self._client, self._what, writes)
            except RefusedError as error:
                # The stored item is as new or newer; the other items are still missing.
                missing = [item for i, item in enumerate(missing) if i not in error.items]
                raise

        try:
            retry(attempt, on=ConflictError, backoff=_BACKOFF)
        except ConflictError as error:
            raise UnavailableError(
                f"{self._what}: other writers always changed the items"
            ) from error

    def _put(self, item: Item) -> Item:
        """An end that was found by others gives way to one that was told, whatever the time."""
        later = "#at > :at"
        if "found" in item:
            condition = f"(attribute_exists(#found) AND {later})"
        else:
            condition = f"attribute_exists(#found) OR {later}"
        return {
            "TableName": self._table_name,
            "Item": item,
            "ConditionExpression": f"attribute_not_exists(#at) OR {condition}",
            "ExpressionAttributeNames": {"#at": "at", "#found": "found"},
            "ExpressionAttributeValues": {":at": item["at"]},
        }

    def _listed(self, listing: str, before_ms: int | None = None) -> Iterator[Item]:
        condition, values = "#listing = :listing", {":listing": {"S": listing}}
        names = {"#listing": "listing"}
        if before_ms is not None:
            condition += " AND #at < :before"
            values[":before"] = {"N": str(before_ms)}
            names["#at"] = "at"
        query = self._query(condition, values)
        query |= {"IndexName": RECENT.name, "ScanIndexForward": False, "Limit": _LISTED_AT_ONCE}
        query["ExpressionAttributeNames"] = names
        with translated(self._what):
            for page in query_pages(self._client, query):
                yield from page

    def _query(self, condition: str, values: Item) -> Item:
        return {
            "TableName": self._table_name,
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": values,
        }


def listing_of(kind: str, subject: str) -> Item:
    """The listing of the index that a job's or task's events stand in."""
    return {"S": f"{kind}#{zlib.crc32(subject.encode()) % LISTINGS}"}


def expiry_of(at_ms: int, days: int) -> Item:
    """When an event may go, in seconds."""
    return {TIME_TO_LIVE: {"N": str(at_ms // 1000 + days * 86_400)}}


def number(item: Item, name: str) -> int | None:
    """The number, if the item has it."""
    return int(item[name]["N"]) if name in item else None


def text(item: Item, name: str) -> str | None:
    """The text, if the item has it."""
    return str(item[name]["S"]) if name in item else None


def numbers(values: dict[str, int | None]) -> Item:
    """Attributes of those that are there."""
    return {name: {"N": str(value)} for name, value in values.items() if value is not None}


def texts(values: dict[str, str | None]) -> Item:
    """Attributes of those that are there."""
    return {name: {"S": value} for name, value in values.items() if value is not None}


def _listings(kinds: Sequence[str]) -> list[str]:
    return [f"{kind}#{number}" for kind in kinds for number in range(LISTINGS)]
