"""Captures exports: moves them from a table's log or files into the storage of their queue.

A step stores the exports of some transactions, or a part of those of a large one, and then advances
the queue's position; after that the cursor in the log, so that the table may forget them. A process
that dies in between repeats the step, which stores the same items again.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sleeper.errors import DataError, InvalidRequestError, StateMovedOnError
from sleeper.export_queue.definition import ExportQueue, parse_definition
from sleeper.export_queue.properties import EXPORT_QUEUE_PENDING_BYTES_MAX
from sleeper.export_queue.registration import find_stored
from sleeper.export_queue.rows import make_items
from sleeper.export_queue.sources import QueueSource
from sleeper.export_queue.store import (
    ExportStore,
    NewItem,
    Position,
    RegisteredQueue,
    open_export_store,
)
from sleeper.export_queue.table_queries import StoredQueue
from sleeper.export_queue.transactions import follower_of
from sleeper.instance import Instance, OpenTable
from sleeper.tables import find_table

_STEP_BYTES = 8 * 1024**2
_STEP_BATCHES_MAX = 1_000
_STEP_SECONDS = 0.5
_ADD_BYTES = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What was captured: `exports`, up to the transaction `number`.

    `is_complete` means that nothing was left when it began. `problem` is why something was left,
    or what the queue's owner should know; None if there is nothing.
    """

    exports: int
    number: int
    is_complete: bool
    problem: str | None = None


def first_position(queue: ExportQueue, stored: StoredQueue) -> Position:
    """Returns the position at which a new queue begins."""
    return Position(stored.generation - 1 if queue.existing_rows else stored.start)


def capture_exports(
    instance: Instance, name: str, seconds_max: float | None = None
) -> CaptureReport:
    """Captures the exports of a queue that exist now, for at most about the seconds.

    NotFoundError if there is no such queue, or its table is being deleted. Several processes may do
    it at once. UnavailableError may leave a part, which the next call captures.
    """
    store = open_export_store(instance)
    registered = store.find(name)
    if not registered.generation:
        problem = f"export queue {name!r}: its creation has not ended: create it again"
        return CaptureReport(0, registered.position.number, False, problem)
    table = OpenTable(instance, find_table(instance.tables.index, None, registered.table_id))
    with table.state.reading() as state:
        stored, newest = find_stored(registered, table.ref, state), state.number
    if registered.position >= Position(newest):
        _repair_cursor(table, registered)
        return CaptureReport(0, registered.position.number, True)
    queue = parse_definition(stored.definition)
    source = QueueSource(table, queue, stored.generation)
    return _Capture(store, registered, source, seconds_max).run(newest)


def _repair_cursor(table: OpenTable, registered: RegisteredQueue) -> None:
    """Advances the cursor of a process that died before it did."""
    name, number = follower_of(registered.name), registered.position.number
    if any(each.name == name and each.position < number for each in table.state.followers()):
        table.state.advance_follower(name, number)


class _OvertakenError(Exception):
    """Another process has captured the step."""


class _Capture:
    """One run of `capture_exports`."""

    def __init__(
        self,
        store: ExportStore,
        registered: RegisteredQueue,
        source: QueueSource,
        seconds_max: float | None,
    ) -> None:
        self._store = store
        self._source = source
        self._name = registered.name
        self._position = registered.position
        self._ends_at = None if seconds_max is None else time.monotonic() + seconds_max
        properties = source.table.instance.properties()
        self._pending_bytes_max: int = properties.get(EXPORT_QUEUE_PENDING_BYTES_MAX)
        self._exports = 0
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0
        self._to = self._position
        self._began_at = time.monotonic()

    def run(self, newest: int) -> CaptureReport:
        problem = None
        try:
            problem = self._capture_rest(newest)
        except DataError as error:
            problem = str(error)
            with contextlib.suppress(_OvertakenError):
                self._store_step()
        except (InvalidRequestError, StateMovedOnError) as error:
            # Another process may have captured these transactions, so their files are collected.
            if self._store.find(self._name).position <= self._position:
                problem = f"export queue {self._name!r}: {error}"
        problems = [*([problem] if problem else []), *self._source.problems]
        number = self._position.number
        return CaptureReport(self._exports, number, number >= newest, "; ".join(problems) or None)

    def _capture_rest(self, newest: int) -> str | None:
        """Captures what no other process captures meanwhile."""
        while True:
            try:
                return self._capture(newest)
            except _OvertakenError:
                self._rows, self._bytes = [], 0
                self._position = self._to = self._store.find(self._name).position

    def _capture(self, newest: int) -> str | None:
        """Returns why it ended before the newest transaction, if it did for a reason."""
        with contextlib.closing(self._source.read(self._position, newest)) as read:
            for exports in read:
                if not self._rows and (problem := self._find_overload()):
                    return problem
                self._to = exports.to
                if exports.rows is not None and exports.rows.num_rows:
                    self._rows.append(exports.rows)
                    self._bytes += exports.rows.nbytes
                if self._is_step():
                    before = self._position
                    self._store_step()
                    # The next call begins at the position, so it must have moved.
                    if self._is_late() and self._position > before:
                        return None
        self._store_step()
        return None

    def _is_step(self) -> bool:
        """Whether what was read is stored now: it is large enough, or has waited long enough."""
        is_large = self._bytes >= _STEP_BYTES or len(self._rows) >= _STEP_BATCHES_MAX
        return is_large or self._is_late() or time.monotonic() >= self._began_at + _STEP_SECONDS

    def _is_late(self) -> bool:
        return self._ends_at is not None and time.monotonic() >= self._ends_at

    def _find_overload(self) -> str | None:
        size = self._store.counts(self._name).bytes
        if size <= self._pending_bytes_max:
            return None
        return (
            f"export queue {self._name!r}: the pending exports have {size:,} bytes, so no more are "
            f"taken up ({EXPORT_QUEUE_PENDING_BYTES_MAX.name} allows {self._pending_bytes_max:,})"
        )

    def _store_step(self) -> None:
        """Stores the rows and advances the position, and then the cursor in the log."""
        if not self._rows and self._to == self._position:
            return
        if self._store.find(self._name).position > self._position:
            # Its exports may have left already, and would leave again.
            raise _OvertakenError
        added: list[NewItem] = []
        for item in self._items():
            added.append(item)
            if sum(len(each.content) for each in added) >= _ADD_BYTES:
                self._add(added, self._position)
                added = []
        self._add(added, self._to)
        self._exports += sum(rows.num_rows for rows in self._rows)
        self._rows, self._bytes, self._began_at = [], 0, time.monotonic()
        if self._to.number > self._position.number:
            table = self._source.table
            table.state.advance_follower(follower_of(self._name), self._to.number)
            self._source.hold.release_before(self._to.number)
        self._position = self._to

    def _items(self) -> Iterator[NewItem]:
        return make_items(self._source.queue, self._rows)

    def _add(self, items: list[NewItem], to: Position) -> None:
        self._store.add(self._name, self._source.generation, items, to)
