"""The file requests of the ingest batcher in SQLite."""

from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.errors import ConflictError
from sleeper.jobs.file_requests import FileRequest
from sleeper.local.database import InstanceDatabase
from sleeper.tables import TableId

_TABLE = """
CREATE TABLE IF NOT EXISTS file_requests (
    table_id TEXT NOT NULL,
    id TEXT NOT NULL,
    path TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    received_ms INTEGER NOT NULL,
    job_id TEXT,
    job_files INTEGER NOT NULL DEFAULT 0,
    sent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (table_id, id)
) WITHOUT ROWID
"""
_WAITING_INDEX = """
CREATE INDEX IF NOT EXISTS file_requests_waiting ON file_requests (table_id, received_ms, id)
WHERE NOT sent
"""


@dataclass(frozen=True, slots=True)
class LocalFileRequests:
    """Implements `sleeper.jobs.file_requests.FileRequests`."""

    database: InstanceDatabase

    def __post_init__(self) -> None:
        self.database.create_missing("file_requests", (_TABLE, _WAITING_INDEX))

    def add(self, requests: Sequence[FileRequest]) -> None:
        rows = [(r.table_id, r.id, r.path, r.size_bytes, r.received_ms) for r in requests]
        with self.database.write() as transaction:
            transaction.executemany(
                "INSERT INTO file_requests (table_id, id, path, size_bytes, received_ms)"
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                rows,
            )

    def tables(self) -> tuple[TableId, ...]:
        rows = self.database.read(
            "SELECT DISTINCT table_id FROM file_requests WHERE NOT sent ORDER BY table_id", ()
        )
        return tuple(TableId(row["table_id"]) for row in rows)

    def waiting(self, table_id: TableId) -> tuple[FileRequest, ...]:
        rows = self.database.read(
            "SELECT table_id, id, path, size_bytes, received_ms, job_id, job_files"
            " FROM file_requests WHERE table_id = ? AND NOT sent ORDER BY received_ms, id",
            (table_id,),
        )
        return tuple(FileRequest(*row) for row in rows)

    def assign(self, job_id: str, requests: Sequence[FileRequest]) -> None:
        with self.database.write() as transaction:
            for request in requests:
                changed = transaction.execute(
                    "UPDATE file_requests SET job_id = ?, job_files = ?"
                    " WHERE table_id = ? AND id = ? AND job_id IS NULL AND NOT sent",
                    (job_id, len(requests), request.table_id, request.id),
                )
                if changed.rowcount != 1:
                    raise ConflictError(f"file {request.path} is already in a job")

    def mark_sent(self, requests: Sequence[FileRequest]) -> None:
        self._end(requests)

    def discard(self, requests: Sequence[FileRequest]) -> None:
        self._end(requests)

    def remove_before(self, time_ms: int) -> int:
        with self.database.write() as transaction:
            return transaction.execute(
                "DELETE FROM file_requests WHERE sent AND received_ms < ?", (time_ms,)
            ).rowcount

    def _end(self, requests: Sequence[FileRequest]) -> None:
        with self.database.write() as transaction:
            transaction.executemany(
                "UPDATE file_requests SET sent = 1 WHERE table_id = ? AND id = ?",
                [(r.table_id, r.id) for r in requests],
            )
