"""Tests of file requests that apply to DynamoDB only: their expiry."""

from sleeper.aws.file_requests import DynamoFileRequests
from sleeper.jobs.file_requests import FileRequest
from sleeper.properties.deployed import INGEST_BATCHER_TABLE
from sleeper.tables import TableId
from tests.servers.dynoxide import DynamoTables

TABLE = TableId("0000000a")
RECEIVED_MS = 1_767_225_600_000
MONTH_SECONDS = 30 * 86_400


def test_sent_and_discarded_requests_expire_after_a_month(
    tables: DynamoTables,
) -> None:
    name = tables.name(INGEST_BATCHER_TABLE)
    requests = DynamoFileRequests(tables.client, name)
    requests.add([FileRequest(TABLE, f"r{n}", f"bucket/{n}", 1, RECEIVED_MS) for n in range(3)])
    discarded, message, _ = requests.waiting(TABLE)
    requests.discard([discarded])
    requests.assign("job", [message])
    requests.mark_sent([item for item in requests.waiting(TABLE) if item.job_id])
    kept_seconds = {
        item["requestId"]["S"]: int(item["expiryDate"]["N"]) - RECEIVED_MS // 1000
        for item in tables.client.scan(TableName=name)["Items"]
        if "expiryDate" in item
    }
    assert kept_seconds == {"r0": MONTH_SECONDS, "r1": MONTH_SECONDS}
