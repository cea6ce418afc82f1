"""The journal: what the workload submitted, and what it was told.

A *submission* is a change that a client asked for, under the id by which the table's log names it.
Its *answer* says what the client learned: nothing (*unknown*, also if its process died), that the
change is made (*acknowledged*, with its transaction number), that it is queued (*accepted*), or
that it can never be made (*refused*).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from simulation.model.values import Value
from simulation.systems.records import AdapterSource, StoreRead
from sleeper.query.changes.read import Change
from sleeper.schema.model import Schema
from sleeper.storage.source_options import DEFAULT_OPTIONS, SourceOptions

SourceRow = Mapping[str, Value]
"""A submitted row, by field name."""

Key = tuple[Value, ...]
"""One value per row key field."""

KeyRange = tuple[Value, Value]
"""The values of a row key field from the first, included, to the second. None is no end."""


class Answer(StrEnum):
    """What the client of a submission learned of it."""

    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"


@dataclass(slots=True, kw_only=True)
class Submission:
    """A change that a client asked for. `kinds` are the names that the log may give it."""

    id: str
    table_id: str
    kinds: tuple[str, ...]
    answer: Answer = Answer.UNKNOWN
    number: int | None = None
    reason: str = ""

    def acknowledge(self, number: int | None) -> None:
        """Records that the client was told of the commit. No number: nothing was to be changed."""
        self.answer = Answer.ACKNOWLEDGED
        self.number = number if self.number is None else self.number

    def accept(self) -> None:
        """Records that the change is queued, durably."""
        if self.answer is Answer.UNKNOWN:
            self.answer = Answer.ACCEPTED

    def refuse(self, reason: str) -> None:
        """Records a refusal, unless an earlier attempt may have been committed."""
        if self.answer is Answer.UNKNOWN and not self.reason:
            self.answer = Answer.REFUSED
        self.reason = reason

    def leave_open(self, reason: str) -> None:
        """Records an error after which the change may have been made."""
        self.reason = reason


@dataclass(slots=True, kw_only=True)
class Ingest(Submission):
    """A job with its rows, in order. `deletes` are the positions of rows that delete their key.

    `options` say how its files are read, if it has files. `is_bulk`: it is a bulk import.
    """

    rows: Sequence[SourceRow]
    deletes: frozenset[int] = frozenset()
    kinds: tuple[str, ...] = ("add_files", "publish_snapshot")
    files: tuple[str, ...] = ()
    options: SourceOptions = DEFAULT_OPTIONS
    is_bulk: bool = False


@dataclass(slots=True, kw_only=True)
class Deletion(Submission):
    """A delete of the rows within the ranges of one of the regions, and of those with the keys."""

    regions: Sequence[Sequence[KeyRange]] = ()
    keys: frozenset[Key] = frozenset()
    kinds: tuple[str, ...] = ("delete_rows",)

    def hides(self, key: Key) -> bool:
        """Returns whether the delete hides earlier rows of the row key."""
        return key in self.keys or any(_contains(region, key) for region in self.regions)


@dataclass(slots=True, kw_only=True)
class Other(Submission):
    """A restore, undo, schema change or removal of all rows, which the log describes itself."""

    argument: Any = None


@dataclass(frozen=True, slots=True)
class Clone:
    """The origin of a table: a version of another one."""

    source_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Pin:
    """A version that a reader keeps, until the time."""

    table_id: str
    version: int
    expiry_ms: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The rows that a client has read, at one version of the numbers from `first` to `last`.

    `time_ms` is given if it read the version of that time instead. `keys` and `columns` are those
    that it asked for, None for all. `is_of_now`: filters took the time of the read.
    """

    table_id: str
    what: str
    first: int
    last: int
    rows: Counter[tuple[Value, ...]]
    time_ms: int | None = None
    keys: frozenset[Key] | None = None
    columns: tuple[str, ...] | None = None
    is_of_now: bool = False


@dataclass(frozen=True, slots=True)
class LostRead:
    """A version that a client held all the time, and that it could not read to the end."""

    table_id: str
    version: int
    error: str


@dataclass(frozen=True, slots=True, eq=False)
class HeldRead:
    """A version that an open reader holds, as long as no fault keeps it from renewing the hold."""

    table_id: str
    version: int
    is_kept: Callable[[], bool]


@dataclass(slots=True)
class Copy:
    """A copy of a table's rows at `number`, which a consumer of the change feed keeps.

    The rows have the schema; of a table of latest rows there is one for each key. `pending` are
    the changes so far of the transaction after it. `is_resumed`: a reader has begun since. `turn`
    counts readers, of which only the last one may add changes.
    """

    table_id: str
    number: int
    schema: Schema
    rows: Counter[tuple[Value, ...]]
    is_checked: bool = False
    pending: list[Change] = field(default_factory=list)
    is_resumed: bool = False
    turn: int = 0

    def begin_reading(self) -> int:
        """Begins the turn of another reader."""
        self.is_resumed = True
        self.turn += 1
        return self.turn


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup: its location and id, and the number of each table in it, by name."""

    location: str
    id: str
    numbers: Mapping[str, int]


@dataclass
class Journal:
    """All submissions of a history, by the log's name of them, and what its clients have read.

    `released` are the ids of holds whose release was acknowledged, `accepted_files` has the table
    of each file that the batcher has accepted, `deleted_tables` the tables that were ever deleted,
    and `batches` the paths of each job of the batcher in their order.
    """

    ingests: dict[str, Ingest] = field(default_factory=dict)
    deletions: dict[str, Deletion] = field(default_factory=dict)
    others: dict[str, Other] = field(default_factory=dict)
    clones: dict[str, Clone] = field(default_factory=dict)
    files: dict[str, Sequence[SourceRow]] = field(default_factory=dict)
    accepted_files: dict[str, str] = field(default_factory=dict)
    batches: dict[str, Sequence[str]] = field(default_factory=dict)
    deleted_tables: set[str] = field(default_factory=set)
    pins: dict[str, Pin] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    reads: list[Read] = field(default_factory=list)
    lost_reads: list[LostRead] = field(default_factory=list)
    held_reads: list[HeldRead] = field(default_factory=list)
    copies: dict[str, Copy] = field(default_factory=dict)
    backups: list[Backup] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    destinations: list[str] = field(default_factory=list)
    adapters: dict[str, AdapterSource] = field(default_factory=dict)
    store_reads: list[StoreRead] = field(default_factory=list)

    def submissions(self) -> Iterable[Submission]:
        """Returns every submission, in the order of kinds and then of their begin."""
        return [*self.ingests.values(), *self.deletions.values(), *self.others.values()]

    def newest_number(self, table_id: str) -> int:
        """Returns the largest number of the table that a client was told, which reads must see."""
        numbers = (each.number or 0 for each in self.submissions() if each.table_id == table_id)
        return max(numbers, default=0)


def _contains(region: Sequence[KeyRange], key: Key) -> bool:
    return all(
        (low is None or low <= value) and (high is None or value < high)
        for (low, high), value in zip(region, key, strict=True)
    )
