"""Registrations of export queues in their DynamoDB table."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sleeper.aws.dynamo import DynamoItems, Item
from sleeper.aws.errors import RefusedError
from sleeper.errors import ConflictError, NotFoundError, did_you_mean
from sleeper.export_queue.aws.keys import QUEUES, registration_key
from sleeper.export_queue.store import Position, RegisteredQueue

_RECENT_SECONDS = 1.0
_PRESENT = "attribute_exists(#item)"
_ACTIVE = f"{_PRESENT} AND attribute_not_exists(#removed)"
_BEHIND = "(#number < :number OR (#number = :number AND #bucket < :bucket))"


@dataclass(frozen=True, slots=True)
class Registrations:
    """The registrations. One that is marked as removed does not exist for most methods."""

    items: DynamoItems
    _recent: dict[str, tuple[float, RegisteredQueue]] = field(default_factory=dict)

    def add(self, name: str, table_id: str) -> RegisteredQueue:
        """Adds a queue, or returns the one of that name. ConflictError if another table has it."""
        new: Item = {**registration_key(name), "tableId": table_id, "generation": 0}
        with suppress(RefusedError):
            self.items.put({**new, "number": 0, "bucket": 0}, "attribute_not_exists(#item)")
        queue = self.find(name)
        if queue.table_id != table_id:
            raise ConflictError(f"export queue {name!r} already exists, of another table")
        return queue

    def find(self, name: str) -> RegisteredQueue:
        """Returns the queue of that name. NotFoundError if there is none."""
        item = self.items.get(registration_key(name))
        if item is None or "removed" in item:
            near = did_you_mean(name, [queue.name for queue in self.list()])
            raise NotFoundError(f"export queue {name!r} does not exist{near}")
        return _registered(item)

    def find_recent(self, name: str) -> RegisteredQueue:
        """Returns the queue as it was at most a second ago, to save a request for each method.

        If it was removed meanwhile, no worker has a claim, and a new queue has other keys.
        """
        read_at, queue = self._recent.get(name, (0.0, None))
        if queue is None or time.monotonic() - read_at >= _RECENT_SECONDS:
            read_at, queue = time.monotonic(), self.find(name)
            self._recent[name] = read_at, queue
        return queue

    def find_generation(self, name: str, generation: int) -> RegisteredQueue:
        """Returns the queue. NotFoundError if the one of that name has another generation."""
        queue = self.find(name)
        if queue.generation != generation:
            raise NotFoundError(
                f"export queue {name!r} of transaction {generation} does not exist any more"
            )
        return queue

    def list(self) -> Sequence[RegisteredQueue]:
        """Returns all queues, by name."""
        items = self.items.query("#queue = :queue", {"queue": QUEUES})
        return [_registered(item) for item in items if "removed" not in item]

    def begin(self, name: str, generation: int, position: Position) -> None:
        """Sets generation and position of a queue with generation 0."""
        self.find(name)
        self._recent.pop(name, None)
        change = "SET #generation = :generation, #number = :number, #bucket = :bucket"
        condition = f"{_ACTIVE} AND #generation = :none"
        values: Item = {"generation": generation, "none": 0, **_position(position)}
        with suppress(RefusedError):
            self.items.update(registration_key(name), change, condition, values)

    def advance(self, name: str, generation: int, to: Position) -> None:
        """Moves the position of a queue, never back."""
        condition = f"{_ACTIVE} AND #generation = :generation AND {_BEHIND}"
        values: Item = {"generation": generation, **_position(to)}
        try:
            change = "SET #number = :number, #bucket = :bucket"
            self.items.update(registration_key(name), change, condition, values)
        except RefusedError:
            self.find_generation(name, generation)

    def pause(self, name: str, paused: bool) -> None:
        """Pauses or resumes a queue."""
        self.find(name)
        change, values = ("SET #paused = :yes", {"yes": 1}) if paused else ("REMOVE #paused", {})
        with suppress(RefusedError):
            self.items.update(registration_key(name), change, _ACTIVE, values)

    def find_removed(self, name: str) -> RegisteredQueue | None:
        """Returns the queue if its removal has begun and not ended."""
        item = self.items.get(registration_key(name))
        return None if item is None or "removed" not in item else _registered(item)

    def begin_removal(self, name: str, generation: int | None) -> RegisteredQueue | None:
        """Marks the registration as removed, and returns it. None if there is none to remove."""
        key, condition, values = registration_key(name), _PRESENT, {"yes": 1}
        if generation is not None:
            condition = f"{_PRESENT} AND #generation = :generation"
            values["generation"] = generation
        self._recent.pop(name, None)
        try:
            return _registered(self.items.update(key, "SET #removed = :yes", condition, values))
        except RefusedError:
            return None

    def end_removal(self, name: str) -> None:
        """Deletes the registration."""
        self.items.delete([registration_key(name)])


def _position(position: Position) -> Item:
    return {"number": position.number, "bucket": position.bucket}


def _registered(item: Item) -> RegisteredQueue:
    position = Position(item["number"], item["bucket"])
    return RegisteredQueue(
        item["item"], item["tableId"], item["generation"], position, "paused" in item
    )
