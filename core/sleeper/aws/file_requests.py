"""The files that wait for the ingest batcher, on DynamoDB.

An item a request. `waiting` holds the table's id until the request is sent, so that the
index of that name holds those that wait and nothing else; then the item expires.
"""

from collections.abc import Sequence
from typing import Any

from sleeper.aws.dynamo_batches import Item, query_pages, scan_pages, write_together
from sleeper.aws.errors import RefusedError, translated
from sleeper.errors import ConflictError
from sleeper.jobs.file_requests import FILES_PER_JOB_MAX, FileRequest
from sleeper.properties.dynamo_tables import TIME_TO_LIVE, WAITING
from sleeper.tables.table_ref import TableId

_WHAT = "files that wait for the ingest batcher"
# Queues keep messages for two weeks, and as long again among dead letters.
_REMEMBERED_SECONDS = 30 * 86_400


class DynamoFileRequests:
    """Implements `sleeper.jobs.file_requests.FileRequests`. Safe for threads."""

    def __init__(self, client: Any, table_name: str) -> None:
        self._client = client
        self._table_name = table_name

    def add(self, requests: Sequence[FileRequest]) -> None:
        """See the port. One by one: a message that comes again adds what is missing."""
        for request in requests:
            self._put(request)

    def tables(self) -> tuple[TableId, ...]:
        """See the port. The index holds nothing but requests that wait."""
        scan = {
            "TableName": self._table_name,
            "IndexName": WAITING.name,
            "ProjectionExpression": "waiting",
        }
        with translated(_WHAT):
            found = {i["waiting"]["S"] for page in scan_pages(self._client, scan) for i in page}
        return tuple(TableId(each) for each in sorted(found))

    def waiting(self, table_id: TableId) -> tuple[FileRequest, ...]:
        """See the port."""
        query = {
            "TableName": self._table_name,
            "IndexName": WAITING.name,
            "KeyConditionExpression": "waiting = :table",
            "ExpressionAttributeValues": {":table": {"S": table_id}},
        }
        with translated(_WHAT):
            found = [_request(i) for page in query_pages(self._client, query) for i in page]
        return tuple(sorted(found, key=lambda r: (r.received_ms, r.id)))

    def assign(self, job_id: str, requests: Sequence[FileRequest]) -> None:
        """See the port."""
        values = {":job": {"S": job_id}, ":files": {"N": str(len(requests))}}
        change = {
            "UpdateExpression": "SET jobId = :job, jobFiles = :files",
            "ConditionExpression": "attribute_exists(waiting) AND attribute_not_exists(jobId)",
            "ExpressionAttributeValues": values,
        }
        self._change(requests, change)

    def mark_sent(self, requests: Sequence[FileRequest]) -> None:
        """See the port."""
        change = _end_of(requests)
        change["ConditionExpression"] = "jobId = :job"
        change["ExpressionAttributeValues"][":job"] = {"S": requests[0].job_id if requests else ""}
        self._change(requests, change)

    def discard(self, requests: Sequence[FileRequest]) -> None:
        """See the port. A hundred at a time."""
        for start in range(0, len(requests), FILES_PER_JOB_MAX):
            some = requests[start : start + FILES_PER_JOB_MAX]
            self._change(some, _end_of(some))

    def remove_before(self, time_ms: int) -> int:  # noqa: ARG002
        """See the port. They expire by themselves."""
        return 0

    def _put(self, request: FileRequest) -> None:
        item = {
            **_key(request),
            "path": {"S": request.path},
            "size": {"N": str(request.size_bytes)},
            "received": {"N": str(request.received_ms)},
            "waiting": {"S": request.table_id},
        }
        try:
            with translated(_WHAT):
                self._client.put_item(
                    TableName=self._table_name,
                    Item=item,
                    ConditionExpression="attribute_not_exists(requestId)",
                )
        except RefusedError:
            return  # it came before

    def _change(self, requests: Sequence[FileRequest], change: Item) -> None:
        updates = [
            {"Update": {"TableName": self._table_name, "Key": _key(request), **change}}
            for request in requests
        ]
        if not updates:
            return
        try:
            write_together(self._client, _WHAT, updates)
        except RefusedError as error:
            paths = ", ".join(requests[i].path for i in error.items[:5])
            raise ConflictError(f"in a job already: {paths}") from error


def _key(request: FileRequest) -> Item:
    return {"tableId": {"S": request.table_id}, "requestId": {"S": request.id}}


def _end_of(requests: Sequence[FileRequest]) -> Item:
    """What takes them off the index, and lets them expire."""
    newest_ms = max((r.received_ms for r in requests), default=0)
    return {
        "UpdateExpression": f"SET {TIME_TO_LIVE} = :expiry REMOVE waiting",
        "ExpressionAttributeValues": {
            ":expiry": {"N": str(newest_ms // 1000 + _REMEMBERED_SECONDS)}
        },
    }


def _request(item: Item) -> FileRequest:
    return FileRequest(
        TableId(item["tableId"]["S"]),
        item["requestId"]["S"],
        item["path"]["S"],
        int(item["size"]["N"]),
        int(item["received"]["N"]),
        item["jobId"]["S"] if "jobId" in item else None,
        int(item["jobFiles"]["N"]) if "jobFiles" in item else 0,
    )
