"""Deploys an instance to simulated services: its tables, queues, buckets and properties.

The resources are those that the product declares. Queues have the settings of the templates of a
default deployment (`functions.json`), except for those that the instance's properties set.
"""

import json
from collections.abc import Mapping, Sequence

from simulation.services.control import ACCOUNT
from simulation.services.lambdas import DECLARED
from simulation.services.world import Services
from sleeper.export_queue.properties import EXPORT_QUEUES
from sleeper.properties.declaration import Property
from sleeper.properties.deployed import (
    CONFIG,
    CONFIG_BUCKET,
    DEPLOYED_QUEUES,
    DEPLOYED_TABLES,
    QUERY_RESULTS,
    TABLE_DATA,
    TASK_CLUSTER,
    TASK_DEFINITIONS,
    TASK_SECURITY_GROUP,
    TIME_TO_LIVE,
    DeployedTable,
    Key,
)
from sleeper.properties.instance import (
    ACCOUNT as ACCOUNT_PROPERTY,
)
from sleeper.properties.instance import (
    ID,
    INGEST_SOURCE_BUCKETS,
    QUEUE_RECEIVES_MAX,
    REGION,
)
from sleeper.properties.values import InstanceProperties, instance_properties
from sleeper.stash.properties import STASHES
from sleeper.systems import load, queues

_REGION = "eu-west-2"
_KEPT_SECONDS = 14 * 86_400


def deploy(services: Services, instance_id: str, values: Mapping[str, str]) -> InstanceProperties:
    """Creates the resources of an instance and its properties; `values` are its settings.

    Its account has the bucket `sources`, whose objects it may ingest.
    """
    prefix = f"sleeper-{instance_id}"
    settings = instance_properties({ID.name: instance_id, **values})
    buckets = {
        bucket.place.name: f"{prefix}-{bucket.name}-{ACCOUNT}"
        for bucket in (CONFIG, TABLE_DATA, QUERY_RESULTS, STASHES)
    }
    for name in (*buckets.values(), "sources"):
        services.s3.create(name)
    properties = instance_properties(
        {
            ID.name: instance_id,
            ACCOUNT_PROPERTY.name: ACCOUNT,
            REGION.name: _REGION,
            INGEST_SOURCE_BUCKETS.name: "sources",
            **buckets,
            **_create_tables(services, prefix, (*DEPLOYED_TABLES, EXPORT_QUEUES)),
            **_create_queues(services, prefix, settings, values),
            TASK_CLUSTER.name: prefix,
            TASK_SECURITY_GROUP.name: "sg-1",
            **{p.name: f"{prefix}-{kind}-task:1" for kind, p in TASK_DEFINITIONS.items()},
            **values,
        }
    )
    config = services.s3.bucket(buckets[CONFIG_BUCKET.name])
    config.put("instance.properties", properties.to_text().encode(), services.s3.now_ms())
    return properties


def _create_tables(
    services: Services, prefix: str, tables: Sequence[DeployedTable]
) -> dict[str, str]:
    """Returns the names of the tables by the names of their properties."""
    names: dict[str, str] = {}
    for table in tables:
        names[table.place.name] = f"{prefix}-{table.name}"
        created = services.dynamo.create(_request(names[table.place.name], table))
        created.expiry_attribute = TIME_TO_LIVE if table.expires else None
    return names


def _request(name: str, table: DeployedTable) -> dict[str, object]:
    keys = [table.key] + ([table.index.key] if table.index else [])
    types = {k.hash: "S" for k in keys} | {k.range: k.range_type for k in keys if k.range}
    indexes = []
    if table.index is not None:
        projection = "ALL" if table.index.holds_all else "KEYS_ONLY"
        indexes.append(
            {
                "IndexName": table.index.name,
                "KeySchema": _key_schema(table.index.key),
                "Projection": {"ProjectionType": projection},
            }
        )
    return {
        "TableName": name,
        "KeySchema": _key_schema(table.key),
        "AttributeDefinitions": [
            {"AttributeName": n, "AttributeType": kind} for n, kind in types.items()
        ],
        "GlobalSecondaryIndexes": indexes,
    }


def _key_schema(key: Key) -> list[dict[str, str]]:
    schema = [{"AttributeName": key.hash, "KeyType": "HASH"}]
    if key.range is not None:
        schema.append({"AttributeName": key.range, "KeyType": "RANGE"})
    return schema


def _create_queues(
    services: Services, prefix: str, settings: InstanceProperties, values: Mapping[str, str]
) -> dict[str, str]:
    """Returns the URLs of queues and their dead letters by the names of their properties.

    Of the `settings`, `values` are those that the instance does not have by default.
    """
    urls: dict[str, str] = {}
    for key, queue in DEPLOYED_QUEUES.items():
        throughput = {"FifoThroughputLimit": "perMessageGroupId"}
        fifo = {"FifoQueue": "true", **throughput} if queue.fifo else {}
        kept = {"MessageRetentionPeriod": str(_KEPT_SECONDS)}
        dead = services.sqs.create(f"{prefix}-{queue.dead_letters_name}", {**fifo, **kept})
        visibility: Property[int] = load(queues()[key].visibility)
        declared = DECLARED["queues"].get(queue.name, {})
        # A minimum of a queue, which the instance's property may exceed.
        receives_max = max(declared.get("receives_max", 0), settings.get(QUEUE_RECEIVES_MAX))
        seconds = settings.get(visibility)
        if visibility.name not in values:
            seconds = declared.get("visibility_seconds", seconds)
        policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": receives_max}
        attributes = {
            **fifo,
            **kept,
            "VisibilityTimeout": str(seconds),
            "RedrivePolicy": json.dumps(policy),
        }
        created = services.sqs.create(f"{prefix}-{queue.name}", attributes)
        urls |= {queue.url.name: created.url, queue.dead_letters_url.name: dead.url}
    return urls
