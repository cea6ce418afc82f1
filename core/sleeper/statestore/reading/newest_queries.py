"""Queries of the newest state: compaction jobs, used ids, holds, followers, unreferenced files."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from sleeper.files import DataFile
from sleeper.partitions.partition import PartitionId
from sleeper.statestore.fold import AppliedId
from sleeper.statestore.fold_tables import NOT_PINNED, path_hash
from sleeper.statestore.holds import Hold
from sleeper.statestore.reading.delete_queries import may_have_deleted_sql
from sleeper.statestore.reading.version_reader import VersionReader
from sleeper.statestore.rows import (
    data_file_columns,
    data_file_from_columns,
    sidecars_from_column,
)
from sleeper.statestore.snapshot_versions import IN_EXPIRED
from sleeper.statestore.transactions.record_requests import REQUEST_KIND


@dataclass(frozen=True, slots=True)
class AssignedJob:
    """A compaction job that holds its partition's references to the inputs."""

    id: str
    partition_id: PartitionId
    inputs: tuple[str, ...]
    lease_expiry_ms: int
    assigned_number: int
    assigned_time_ms: int


@dataclass(frozen=True, slots=True)
class JobQueries(VersionReader):
    def applied(self, job_id: str, kind: str | None = None) -> AppliedId | None:
        """Returns the transaction that was applied under the id within the last 30 days, if any.

        The assignment of a compaction job does not count: only its commit does.
        """
        row = self.row(
            "SELECT id, kind, fingerprint, number, time FROM applied"
            " WHERE id = :id AND kind <> 'compaction_job' AND (:kind IS NULL OR kind = :kind)",
            id=job_id,
            kind=kind,
        )
        return row and AppliedId(*row)

    def added_files(self, job_id: str) -> AppliedId | None:
        """Returns the transaction that committed the files of the ingest, import or load."""
        return self.applied(job_id, "add_files") or self.applied(job_id, "publish_snapshot")

    def requests(self, ids: Sequence[str]) -> dict[str, AppliedId]:
        """Returns the write requests among the ids whose rows were committed in 30 days."""
        rows = self.rows(
            "SELECT id, kind, fingerprint, number, time FROM applied"
            " WHERE kind = :kind AND id IN (SELECT value FROM json_each(:ids))",
            kind=REQUEST_KIND,
            ids=json.dumps(ids),
        )
        return {row[0]: AppliedId(*row) for row in rows}

    def assigned(self) -> Iterator[AssignedJob]:
        """Returns every job that holds files, oldest first."""
        return self._jobs("1")

    def count(self) -> int:
        """Returns the number of jobs that hold files."""
        return int(self.row("SELECT count(*) FROM jobs")[0])

    def get(self, job_id: str) -> AssignedJob | None:
        """Returns the job, if it holds files."""
        return next(self._jobs("j.id = :id", id=job_id), None)

    def expired(self, time_ms: int) -> list[AssignedJob]:
        """Returns jobs whose lease had expired at that time."""
        return list(self._jobs("j.lease_expiry <= :time", time=time_ms))

    def _jobs(self, condition: str, **parameters: object) -> Iterator[AssignedJob]:
        rows = self.stream(
            "SELECT j.id, p.id, j.lease_expiry, j.assigned, j.assigned_time, f.path FROM jobs j"
            " CROSS JOIN partitions p ON p.key = j.partition"
            " CROSS JOIN refs r ON r.partition = j.partition AND r.job = j.key"
            f" CROSS JOIN files f ON f.key = r.file WHERE {condition} ORDER BY j.key, r.file",
            **parameters,
        )
        for (job_id, partition_id, expiry, number, time_ms), group in groupby(
            rows, lambda row: row[:5]
        ):
            inputs = tuple(row[5] for row in group)
            yield AssignedJob(job_id, partition_id, inputs, expiry, number, time_ms)


Versions = tuple[int, int | None]
"""The first version of a range, and the version after the last, None for all since the first."""


class CollectableFile(NamedTuple):
    """A file without references; `unreferenced` is the number that removed the last one."""

    path: str
    sidecars: tuple[str, ...]
    bytes: int
    unreferenced: int
    unreferenced_time_ms: int


class UnneededFile(NamedTuple):
    """A file without references, since a number and its time.

    `has_deleted` is true if it may hold deleted rows. The objects of a file that is being
    collected are deleted, or will be by the next collection.
    """

    file: DataFile
    unreferenced: int
    unreferenced_time_ms: int
    is_collecting: bool
    has_deleted: bool


_IS_HELD = (
    "EXISTS (SELECT 1 FROM refs r, json_each(:held) v WHERE r.file = {file}.key"
    " AND (v.value ->> 1 IS NULL OR r.added < v.value ->> 1)"
    " AND (r.removed IS NULL OR r.removed > v.value ->> 0))"
)
_WAITING = f"collecting IS NULL AND unreferenced_time <= :before AND {NOT_PINNED}"


@dataclass(frozen=True, slots=True)
class CollectionQueries(VersionReader):
    def unreferenced(
        self,
        before_ms: int,
        limit: int,
        number_max: int | None = None,
        held: Sequence[Versions] = (),
    ) -> list[CollectableFile]:
        """Returns files whose last reference went at or before that time, longest ago first.

        With a number, those without a reference since the number, and those that only expired
        versions of a snapshot table need. Without files that clones or the `held` versions need.
        """
        return self._unreferenced(
            f"{_WAITING} AND (:number_max IS NULL OR unreferenced <= :number_max"
            f" OR (unreferenced > (SELECT horizon FROM position) AND {IN_EXPIRED}))"
            + (f" AND NOT {_IS_HELD.format(file='files')}" if held else ""),
            before=before_ms,
            number_max=number_max,
            limit=limit,
            held=json.dumps(list(held)),
        )

    def needed(self, paths: Sequence[str], versions: Sequence[Versions]) -> set[str]:
        """Returns those of the files that have rows of any of the versions."""
        rows = self.rows(
            "SELECT f.path FROM json_each(:paths) e JOIN files f"
            " ON f.path_hash = e.value ->> 0 AND f.path = e.value ->> 1"
            f" WHERE {_IS_HELD.format(file='f')}",
            paths=json.dumps([(path_hash(p), p) for p in paths]),
            held=json.dumps(list(versions)),
        )
        return {path for (path,) in rows}

    def has_kept(self, before_ms: int, number_max: int) -> bool:
        """Returns whether the number keeps a file that would be collectable otherwise."""
        return bool(
            self._unreferenced(
                f"{_WAITING} AND unreferenced > :number_max AND NOT {IN_EXPIRED}",
                before=before_ms,
                number_max=number_max,
                limit=1,
            )
        )

    def pins(self) -> list[tuple[str, int]]:
        """Returns the ids of clones that need files of the table, with the number of the files."""
        return self.rows("SELECT clone, count(*) FROM pins GROUP BY clone ORDER BY clone")

    def clones_of(self, path: str) -> list[str]:
        """Returns the ids of clones that need the file."""
        sql = "SELECT clone FROM pins WHERE file = :file ORDER BY clone"
        return [clone for (clone,) in self.rows(sql, file=path_hash(path))]

    def pinned(self, paths: Sequence[str]) -> set[str]:
        """Returns those of the files that clones need."""
        rows = self.rows(
            "SELECT e.value ->> 1 FROM json_each(:paths) e WHERE EXISTS ("
            "SELECT 1 FROM pins WHERE pins.file = e.value ->> 0)",
            paths=json.dumps([(path_hash(p), p) for p in paths]),
        )
        return {path for (path,) in rows}

    def collecting(self, limit: int) -> list[CollectableFile]:
        """Returns files between the two steps of their collection, whose objects may exist."""
        return self._unreferenced("collecting IS NOT NULL", limit=limit)

    def collecting_key_files(self, limit: int) -> list[CollectableFile]:
        """Returns key files whose deletes are forgotten, and whose objects may exist."""
        rows = self.rows(
            "SELECT path, sidecars, bytes, collecting FROM key_files WHERE collecting IS NOT NULL"
            " ORDER BY collecting LIMIT :limit",
            limit=limit,
        )
        return [
            CollectableFile(path, sidecars_from_column(s), size, number, 0)
            for path, s, size, number in rows
        ]

    def unneeded(self, number_max: int) -> Iterator[UnneededFile]:
        """Yields every file without references. `number_max` is that of the newest delete."""
        rows = self.stream(
            "SELECT f.unreferenced, f.unreferenced_time, f.collecting IS NOT NULL,"
            f" EXISTS (SELECT 1 FROM deletes d WHERE {may_have_deleted_sql(self.dimensions)}),"
            f" {data_file_columns(self.dimensions)}"
            " FROM files f WHERE f.unreferenced IS NOT NULL",
            number_max=number_max,
        )
        for unreferenced, time_ms, is_collecting, has_deleted, *columns in rows:
            file = data_file_from_columns(columns)
            yield UnneededFile(file, unreferenced, time_ms, bool(is_collecting), bool(has_deleted))

    def logged_holds(self) -> list[Hold]:
        """Returns the holds that older versions of Sleeper wrote into the log."""
        rows = self.rows("SELECT id, owner, version, expiry FROM holds ORDER BY version, id")
        return [Hold(*row) for row in rows]

    def follower_starts(self) -> list[tuple[str, str, int]]:
        """Returns name, cursor key and start of every follower."""
        return self.rows("SELECT name, cursor_key, start FROM followers ORDER BY name")

    def _unreferenced(
        self, condition: str, **parameters: int | str | None
    ) -> list[CollectableFile]:
        rows = self.rows(
            "SELECT path, sidecars, bytes, unreferenced, unreferenced_time FROM files"
            f" WHERE unreferenced IS NOT NULL AND {condition}"
            " ORDER BY unreferenced_time LIMIT :limit",
            **parameters,
        )
        return [CollectableFile(path, sidecars_from_column(s), *more) for path, s, *more in rows]
