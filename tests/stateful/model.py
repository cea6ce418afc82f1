"""A model of a table in plain Python."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

Row = tuple[int, int, str]

DELETE = "z"
"""The value of a row that deletes its key, in a table of latest rows."""


@dataclass
class ModelJob:
    """An ingest: its rows, and the transaction that committed it."""

    rows: list[Row]
    files: tuple[str, ...] = ()
    number: int | None = None
    committed_ms: int = 0


@dataclass
class ModelDelete:
    """A delete of the rows with `low <= k < high`, or one of the keys, from before it."""

    low: int
    high: int | None
    number: int | None = None
    keys: frozenset[int] = frozenset()

    def hides(self, key: int) -> bool:
        """Returns whether the delete hides earlier rows of that key."""
        if key in self.keys:
            return True
        return self.low <= key and (self.high is None or key < self.high)


@dataclass
class ModelRestore:
    """The rows of a version became the newest; those of version 0 are none."""

    to: int
    number: int | None = None


@dataclass
class ModelUndo:
    """The rows of a job were taken back."""

    job_id: str
    number: int | None = None


@dataclass
class ModelField:
    """A field was added with a default, or dropped."""

    name: str
    default: int | None = None
    is_dropped: bool = False
    number: int | None = None


@dataclass
class ModelCopy:
    """A copy of the table's rows at `number`, which a consumer of the change feed maintains."""

    number: int
    rows: Counter[Row]

    def insert(self, rows: list[Row]) -> None:
        """Adds the rows of a change."""
        self.rows.update(rows)

    def upsert(self, rows: list[Row]) -> None:
        """Replaces the rows of the same keys."""
        self.remove([row[:2] for row in rows])
        self.insert(rows)

    def remove(self, keys: list[tuple[int, ...]]) -> None:
        """Removes the rows of the keys, with or without the sort key."""
        for row in list(self.rows):
            if row[:1] in keys or row[:2] in keys:
                del self.rows[row]

    def delete(self, low: int, high: int | None) -> None:
        """Removes the rows with `low <= k < high`."""
        for row in list(self.rows):
            if low <= row[0] and (high is None or row[0] < high):
                del self.rows[row]


@dataclass
class ModelClone:
    """A clone: the rows and fields of the version that it began with, and rows of its own jobs.

    The rows have their numbers, and include those that newer rows of their keys hide. A clone of a
    snapshot table may have no snapshot.
    """

    id: str
    content: list[tuple[int, Row]]
    fields: dict[str, int | None]
    has_snapshot: bool = True


@dataclass
class ModelTable:
    """Jobs, deletes, restores and undos, and the versions that holds and followers rely on.

    `choice` is the choice of rows: append, latest, or latest by the value. A snapshot table has all
    rows of its newest load. `expired` has the versions that expired, with the number of the expiry.
    """

    id: str
    choice: str = "append"
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    deletes: dict[str, ModelDelete] = field(default_factory=dict)
    replacements: dict[str, ModelRestore | ModelUndo] = field(default_factory=dict)
    field_changes: dict[str, ModelField] = field(default_factory=dict)
    holds: dict[str, tuple[int, int]] = field(default_factory=dict)
    follower: int | None = None
    copy: ModelCopy | None = None
    expired: dict[int, int] = field(default_factory=dict)

    @property
    def is_snapshot(self) -> bool:
        return self.choice == "snapshot"

    def published(self) -> list[int]:
        """Returns the numbers of all versions of a snapshot table, oldest first."""
        if not self.is_snapshot:
            return []
        publications = [*self.jobs.values(), *self.replacements.values()]
        return sorted(each.number for each in publications if each.number is not None)

    def live(self) -> list[int]:
        """Returns the versions of a snapshot table that have not expired, newest first."""
        return [n for n in reversed(self.published()) if n not in self.expired]

    def covering(self, version: int) -> int | None:
        """Returns the version of a snapshot table that was the newest at the number."""
        return max((n for n in self.published() if n <= version), default=None)

    def end(self, published: int) -> int | None:
        """Returns the number that ended the version of a snapshot table, None for the newest."""
        return min((n for n in self.published() if n > published), default=None)

    def is_expired(self, version: int) -> bool:
        """Returns whether the number is within an expired version."""
        covering = self.covering(version)
        return covering in self.expired and not self.is_in_gap(version)

    def is_in_gap(self, version: int) -> bool:
        """Returns whether the newest version had expired at the number."""
        covering = self.covering(version)
        return covering in self.expired_newest and version >= self.expired_newest[covering]

    @property
    def expired_newest(self) -> dict[int | None, int]:
        """The versions that expired while they were the newest, with the number of the expiry."""
        ends = {number: self.end(number) for number in self.expired}
        return {n: at for n, at in self.expired.items() if (ends[n] or at) >= at}

    def has_snapshot(self, version: int) -> bool:
        """Returns whether the table has rows, or none, to read at the number."""
        if not self.is_snapshot:
            return True
        return self.covering(version) is not None and not self.is_in_gap(version)

    def rows(self, version: int | None = None) -> Counter[Row]:
        """Returns the rows after all changes up to the version.

        Of a table of latest rows, only the newest of each key, unless it deletes its key.
        """
        return self.visible(self.numbered(version))

    def visible(self, numbered: list[tuple[int, Row]]) -> Counter[Row]:
        """Returns the rows that are seen if the table's content is these rows."""
        if self.choice in ("append", "snapshot"):
            return Counter(row for _, row in numbered)
        return Counter(row for _, row in self.newest(numbered) if row[2] != DELETE)

    def numbered(self, version: int | None = None) -> list[tuple[int, Row]]:
        """Returns the rows that are not deleted at the version, with their numbers."""
        return [(self.jobs[job].number or 0, row) for job, row in self._content(version)]

    def undeleted(self) -> set[Row]:
        """Returns the rows that are not deleted, also those that newer rows of their keys hide."""
        return {row for _, row in self.numbered()}

    def _content(self, version: int | None) -> list[tuple[str, Row]]:
        """Returns each row with its job."""
        content: list[tuple[str, Row]] = []
        expiries = [(number, None) for number in self.expired_newest.values()]
        changes: list[tuple[int | None, Any]] = [
            *expiries,
            *((job.number, (job_id, job)) for job_id, job in self.jobs.items()),
            *((each.number, each) for each in self.deletes.values()),
            *((each.number, each) for each in self.replacements.values()),
        ]
        committed = sorted(((n, c) for n, c in changes if n is not None), key=itemgetter(0))
        for number, change in committed:
            if version is not None and number > version:
                break
            match change:
                case None:
                    content = []
                case job_id, job:
                    before = [] if self.is_snapshot else content
                    content = before + [(job_id, row) for row in job.rows]
                case ModelDelete():
                    content = [(job, row) for job, row in content if not change.hides(row[0])]
                case ModelRestore():
                    content = self._content(change.to)
                case ModelUndo():
                    content = [(job, row) for job, row in content if job != change.job_id]
        return content

    def newest(self, numbered: Iterable[tuple[int, Row]]) -> list[tuple[int, Row]]:
        """Returns the newest row of each key, of rows in the order of their input."""
        newest: dict[tuple[int, int], tuple[int, Row]] = {}
        for number, row in numbered:
            before = newest.get(row[:2])
            is_older = before is not None and (self._rank(*before) > self._rank(number, row))
            if not is_older:
                newest[row[:2]] = (number, row)
        return list(newest.values())

    def _rank(self, number: int, row: Row) -> tuple[bytes, int]:
        return (row[2].encode() if self.choice == "latest by" else b"", number)

    def written(self, rows: list[Row]) -> Counter[Row]:
        """Returns the rows that a job with these rows writes."""
        if self.choice in ("append", "snapshot"):
            return Counter(rows)
        return Counter(row for _, row in self.newest((0, row) for row in rows))

    def added_fields(self, version: int) -> dict[str, int | None]:
        """Returns the defaults of the fields that the version has beside those of its rows."""
        fields: dict[str, int | None] = {}
        committed = [(c.number, c) for c in self.field_changes.values() if c.number is not None]
        for number, change in sorted(committed, key=itemgetter(0)):
            if number > version:
                break
            if change.is_dropped:
                del fields[change.name]
            else:
                fields[change.name] = change.default
        return fields

    def rows_between(self, start: int, end: int) -> Counter[Row]:
        """Returns the rows added after one version, up to another, deleted since or not."""
        counts: Counter[Row] = Counter()
        for job in self.jobs.values():
            if job.number is not None and start < job.number <= end:
                counts.update(self.written(job.rows))
        return counts
