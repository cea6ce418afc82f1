"""The file requests of the ingest batcher on DynamoDB.

Each request is an item. `waiting` holds the table's id until the request is sent, so the index of
that name lists waiting requests only. A sent request expires.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sleeper.aws.dynamo import DynamoItems, Item
from sleeper.aws.errors import RefusedError
from sleeper.errors import ConflictError
from sleeper.jobs.file_requests import FILES_PER_JOB_MAX, FileRequest
from sleeper.properties.deployed import TIME_TO_LIVE, WAITING
from sleeper.tables import TableId

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# A queue keeps a message for two weeks, and its dead-letter queue for two more.
_RETENTION_SECONDS = 30 * 86_400
# Removes a request from the index and lets it expire.
_END = f"SET #{TIME_TO_LIVE} = :expiry REMOVE #waiting"


class DynamoFileRequests:
    """Implements `sleeper.jobs.file_requests.FileRequests`. Safe for threads."""

    def __init__(self, client: "DynamoDBClient", table_name: str) -> None:
        self._items = DynamoItems(client, table_name, "ingest batcher's files")

    def add(self, requests: Sequence[FileRequest]) -> None:
        """See the port. Requests are added one by one, so a repeated message adds missing ones."""
        for request in requests:
            item = {
                **_key(request),
                "path": request.path,
                "size": request.size_bytes,
                "received": request.received_ms,
                "waiting": request.table_id,
            }
            with suppress(RefusedError):
                self._items.put(item, "attribute_not_exists(#requestId)")

    def tables(self) -> tuple[TableId, ...]:
        tables = {item["waiting"] for item in self._items.scan(WAITING.name, "waiting")}
        return tuple(TableId(each) for each in sorted(tables))

    def waiting(self, table_id: TableId) -> tuple[FileRequest, ...]:
        items = self._items.query("#waiting = :table", {"table": table_id}, WAITING.name)
        return tuple(sorted(map(_request, items), key=lambda r: (r.received_ms, r.id)))

    def assign(self, job_id: str, requests: Sequence[FileRequest]) -> None:
        self._update(
            requests,
            "SET #jobId = :job, #jobFiles = :files",
            "attribute_exists(#waiting) AND attribute_not_exists(#jobId)",
            {"job": job_id, "files": len(requests)},
        )

    def mark_sent(self, requests: Sequence[FileRequest]) -> None:
        job_id = requests[0].job_id if requests else None
        self._update(requests, _END, "#jobId = :job", {"job": job_id or "", **_expiry(requests)})

    def discard(self, requests: Sequence[FileRequest]) -> None:
        """See the port. It discards a hundred at a time."""
        for start in range(0, len(requests), FILES_PER_JOB_MAX):
            some = requests[start : start + FILES_PER_JOB_MAX]
            self._update(some, _END, None, _expiry(some))

    def remove_before(self, time_ms: int) -> int:  # noqa: ARG002
        """See the port. Requests expire."""
        return 0

    def _update(
        self, requests: Sequence[FileRequest], change: str, condition: str | None, values: Item
    ) -> None:
        if not requests:
            return
        updates = [self._items.update_write(_key(r), change, condition, values) for r in requests]
        try:
            self._items.transact(updates)
        except RefusedError as error:
            paths = ", ".join(requests[i].path for i in error.items[:5])
            raise ConflictError(f"already in a job: {paths}") from error


def _expiry(requests: Sequence[FileRequest]) -> Item:
    newest_ms = max((r.received_ms for r in requests), default=0)
    return {"expiry": newest_ms // 1000 + _RETENTION_SECONDS}


def _key(request: FileRequest) -> Item:
    return {"tableId": request.table_id, "requestId": request.id}


def _request(item: Item) -> FileRequest:
    return FileRequest(
        TableId(item["tableId"]),
        item["requestId"],
        item["path"],
        item["size"],
        item["received"],
        item.get("jobId"),
        item.get("jobFiles", 0),
    )
