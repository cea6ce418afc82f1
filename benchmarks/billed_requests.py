"""Requests to AWS by their prices: S3 by class, DynamoDB by units of capacity, SQS by request.

The names are those of `sleeper/billing/prices.json`. DynamoDB counts a unit for each 4 KiB that a
consistent read returns and for each KiB of an item that is written, twice in a transaction, and
once more for an item in an index. Items are measured as their JSON, which is a little larger than
they are.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.counting_proxy import Exchange

S3_READS = "s3_million_reads"
S3_WRITES = "s3_million_writes"
READ_UNITS = "dynamodb_million_read_units"
WRITE_UNITS = "dynamodb_million_write_units"
SQS_REQUESTS = "sqs_million_fifo_requests"

_READ_BYTES = 4096
_WRITE_BYTES = 1024
# The attribute that the indexes of the trackers have as their key.
_INDEXED = "listing"

Counts = Counter[str]


def count_s3(counts: Counts, exchange: Exchange) -> None:
    """Counts a request to S3. Deletes are free, and a list costs as much as a write."""
    query = parse_qs(urlsplit(exchange.path).query, keep_blank_values=True)
    if exchange.method == "DELETE" or (exchange.method == "POST" and "delete" in query):
        return
    is_read = exchange.method in {"GET", "HEAD"} and "list-type" not in query
    counts[S3_READS if is_read else S3_WRITES] += 1


def count_dynamo(counts: Counts, exchange: Exchange) -> None:
    """Counts the units of a request to DynamoDB."""
    operation = exchange.target.rpartition(".")[2]
    request = json.loads(exchange.body)
    if operation in {"GetItem", "Query", "Scan"}:
        counts[READ_UNITS] += _units(len(exchange.response), _READ_BYTES)
    elif operation == "BatchGetItem":
        keys = sum(len(table["Keys"]) for table in request["RequestItems"].values())
        counts[READ_UNITS] += max(keys, _units(len(exchange.response), _READ_BYTES))
    elif operation == "TransactWriteItems":
        for write in request["TransactItems"]:
            counts[WRITE_UNITS] += sum(_write_units(each, 2) for each in write.values())
    elif operation == "BatchWriteItem":
        for writes in request["RequestItems"].values():
            counts[WRITE_UNITS] += sum(_write_units(w, 1) for each in writes for w in each.values())
    elif operation in {"PutItem", "UpdateItem", "DeleteItem"}:
        counts[WRITE_UNITS] += _write_units(request, 1)
    else:
        raise ValueError(f"unknown operation of DynamoDB: {exchange.target}")


def count_sqs(counts: Counts, exchange: Exchange) -> None:
    """Counts a request to SQS. The servers of other services are behind the same proxy."""
    if exchange.target.startswith("AmazonSQS"):
        counts[SQS_REQUESTS] += 1


def _write_units(write: Mapping[str, Any], times: int) -> int:
    """Returns the units of a write. Changed items are small, as heads and counters are."""
    item = write.get("Item")
    if item is None:
        return times
    units = _units(len(json.dumps(item, separators=(",", ":"))), _WRITE_BYTES)
    return units * times + (units if _INDEXED in item else 0)


def _units(size: int, unit: int) -> int:
    return max(-(-size // unit), 1)
