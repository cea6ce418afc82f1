"""What roles of an instance can be allowed to change, or to read of its users: *capabilities*.

Each has calls; a role that may do one of them has the capability. The ids, keys and names in the
calls are made up. Condition keys have the values that the calls of the product have, because the
attributes that a request names are what IAM knows of an item.
"""

from collections.abc import Mapping, Sequence

from sleeper.jobs.spark_platform import PlatformName
from tests.infra.roles import ACCOUNT, PREFIX, REGION, SOURCE_ID
from tests.policies import Call

_TABLE_ID = "4d3b"
_ITEM = ("tableId", "item")


def _table(name: str) -> str:
    return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{PREFIX}{name}"


def _object(bucket: str, key: str) -> str:
    return f"arn:aws:s3:::{PREFIX}{bucket}-{ACCOUNT}/{key}"


def _queue(name: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{PREFIX}{name}"


def _put(bucket: str, *keys: str) -> list[Call]:
    return [Call("s3:PutObject", _object(bucket, key)) for key in keys]


def _get(bucket: str, *keys: str) -> list[Call]:
    return [Call("s3:GetObject", _object(bucket, key)) for key in keys]


def _delete(bucket: str, *keys: str) -> list[Call]:
    actions = ("s3:DeleteObject", "s3:DeleteObjectVersion")
    return [Call(action, _object(bucket, key)) for action in actions for key in keys]


def _log(action: str, *attributes: str) -> Call:
    keys = _attributes(*_ITEM, *attributes)
    return Call(f"dynamodb:{action}", _table("transaction-log"), keys)


def _attributes(*names: str) -> dict[str, list[str]]:
    return {"dynamodb:attributes": [*names], "dynamodb:leadingkeys": [_TABLE_ID]}


def _items(actions: Sequence[str], *tables: str) -> list[Call]:
    return [Call(f"dynamodb:{action}", _table(table)) for action in actions for table in tables]


def _send(*queues: str) -> list[Call]:
    return [Call("sqs:SendMessage", _queue(name)) for name in queues]


_CHANGES = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem")
_NAMES = ("table-index-by-name", "table-index-by-online")
_TRACKERS = ("job-tracker", "task-tracker", "query-tracker")
_ENTRY = ("last", "time", "writeId", "format", "previous", "body")
_OWN = f"{_TABLE_ID}/"
_RUNS = [f"runs/{platform.value}/a" for platform in PlatformName]

CAPABILITIES: Mapping[str, Sequence[Call]] = {
    "append to logs": [
        _log("PutItem", *_ENTRY),
        _log("BatchWriteItem", *_ENTRY),
        _log("UpdateItem", "head", "writeAt", "writeId"),
        _log("UpdateItem", "body"),
    ],
    "trim logs": [_log("BatchWriteItem"), _log("DeleteItem"), _log("UpdateItem", "trimmed")],
    "advance cursors": [_log("UpdateItem", "position")],
    "write holds": [
        *_items(("PutItem", "UpdateItem"), "holds"),
        Call("dynamodb:BatchWriteItem", _table("holds"), _attributes("tableId", "id", "version")),
    ],
    "delete holds": [
        *_items(("DeleteItem",), "holds"),
        Call("dynamodb:BatchWriteItem", _table("holds"), _attributes("tableId", "id")),
    ],
    "add tables to the index": _items(("PutItem", "UpdateItem"), *_NAMES),
    "remove tables from the index": _items(("DeleteItem", "BatchWriteItem"), *_NAMES),
    "remove deleted tables": _items(("DeleteItem", "BatchWriteItem"), "table-index-by-id"),
    "write data files": _put("table-data", f"{_OWN}data/a.parquet"),
    "delete data files": _delete("table-data", f"{_OWN}data/a.parquet"),
    "read rows": _get("table-data", f"{_OWN}data/a.parquet"),
    "write snapshots of states": _put("table-data", f"{_OWN}snapshots/1.sqlite"),
    "delete snapshots of states": _delete("table-data", f"{_OWN}snapshots/1.sqlite"),
    "write bodies of entries": _put("table-data", f"{_OWN}log/1.json.zst"),
    "delete bodies of entries": _delete("table-data", f"{_OWN}log/1.json.zst"),
    "write commits": _put("table-data", f"{_OWN}commits/1.json"),
    "delete commits": _delete("table-data", f"{_OWN}commits/1.json"),
    "send commits": _send("transaction-commits.fifo"),
    "create tables": _put("table-data", f"{_OWN}created"),
    "write properties of tables": _put("config", "tables/4d3b"),
    "delete properties of tables": _delete("config", "tables/4d3b"),
    "change properties of the instance": _put("config", "instance.properties"),
    "install user code": _put("config", "code/a.whl"),
    "delete rows by message": _send("row-deletion"),
    "send ingest jobs": _send("ingest-jobs"),
    "upload files": _put("table-data", "for_ingest/a.parquet"),
    "record jobs": _items(("PutItem",), "job-tracker"),
    "record tasks": _items(("PutItem",), "task-tracker"),
    "change records": _items(("UpdateItem",), "job-tracker", "task-tracker"),
    "delete records": _items(("DeleteItem", "BatchWriteItem"), *_TRACKERS, "ingest-batcher"),
    "record queries": _items(("PutItem", "UpdateItem"), "query-tracker"),
    "send queries": _send("query"),
    "read results of queries": _get("query-results", "query-1/a.parquet"),
    "write results of queries": _put("query-results", "query-1/a.parquet"),
    "delete results of queries": _delete("query-results", "query-1/a.parquet"),
    "receive results of queries": [Call("sqs:ReceiveMessage", _queue("query-results"))],
    "write files to ingest together": _items(("PutItem", "UpdateItem"), "ingest-batcher"),
    "change adapters": _put("table-data", "adapters/a.json")
    + _delete("table-data", "adapters/a.json"),
    "mark due adapters": _put("table-data", "adapters/a.due"),
    "change export queues": _items(_CHANGES, "export-queues")
    + _put("table-data", "export-queues/a"),
    "write records of stashes": _put("table-data", "stashes/a.json"),
    "delete records of stashes": _delete("table-data", "stashes/a.json"),
    "write stashes": _put("stashes", "s/a.json"),
    "delete stashes": _delete("stashes", "s/a.json"),
    "publish tables": _put("table-data", f"{_OWN}iceberg/metadata/v1.metadata.json"),
    "delete published metadata": _delete("table-data", f"{_OWN}iceberg/deletes/a.parquet"),
    "write bulk exports": _put("bulk-export-results", "a.parquet"),
    "write spilled rows": _put("athena-spill", "athena/a"),
    "write runs of bulk imports": _put("bulk-import", *_RUNS, "jobs/a.json"),
    "delete runs of bulk imports": _delete("bulk-import", *_RUNS),
    "stage rows of adapters": _put("bulk-import", "staged/a.parquet"),
    "delete dead letters": [
        Call("sqs:DeleteMessage", _queue("transaction-commits-dead-letters.fifo"))
    ],
    "switch polls": [
        Call(
            "lambda:UpdateEventSourceMapping",
            f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{SOURCE_ID}",
        )
    ],
    "pause schedules": [
        *(
            Call(
                f"events:{action}Rule",
                f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{PREFIX}start-tasks-ingest",
            )
            for action in ("Enable", "Disable")
        ),
        *(
            Call(
                f"cloudwatch:{action}AlarmActions",
                f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:{PREFIX}watch-stopped",
            )
            for action in ("Enable", "Disable")
        ),
    ],
    "protect tables": [Call("dynamodb:UpdateTable", _table("transaction-log"))],
    "empty buckets": _delete("athena-spill", "a") + _delete("bulk-export-results", "a"),
    "read secrets": [
        Call("secretsmanager:GetSecretValue", _arn)
        for _arn in (
            "arn:aws:secretsmanager:eu-west-2:123456789012:secret:shop-AbCdEf",
            f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:shop/reader-AbCdEf",
            f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:index/writer-AbCdEf",
        )
    ],
}

FORBIDDEN: Sequence[Call] = [
    *(Call(f"dynamodb:{a}", _table("transaction-log")) for a in ("DeleteTable", "CreateTable")),
    Call("s3:DeleteBucket", f"arn:aws:s3:::{PREFIX}table-data-{ACCOUNT}"),
    Call("s3:PutBucketPolicy", f"arn:aws:s3:::{PREFIX}table-data-{ACCOUNT}"),
    *_delete("table-data", "export-queues", "for_ingest/a.parquet"),
    *_delete("config", "instance.properties", "code/a.whl"),
    Call("iam:PutRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/{PREFIX}role"),
    Call("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/administrator"),
    Call("sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/administrator"),
    Call("lambda:UpdateFunctionCode", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{PREFIX}query"),
    Call(
        "execute-api:ManageConnections",
        f"arn:aws:execute-api:{REGION}:{ACCOUNT}:b/live/POST/@connections/1",
    ),
    Call("execute-api:Invoke", f"arn:aws:execute-api:{REGION}:{ACCOUNT}:b/live/$connect"),
]
"""What no role may do."""


def in_another_instance(call: Call) -> Call:
    """Returns the call on the same resource of another instance."""
    resource = call.resource.replace(PREFIX, "sleeper-examples-")
    return Call(call.action, resource, call.keys)
