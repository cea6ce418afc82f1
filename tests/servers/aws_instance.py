"""An AWS instance without a deployment: its resources, created on test servers."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3

from sleeper.jobs.queue import QueueSettings
from sleeper.properties.deployed import (
    BILLED_PARTS,
    CONFIG_BUCKET,
    DATA_BUCKET,
    DEPLOYED_QUEUES,
    QUERY_RESULTS_BUCKET,
    SCHEDULE_ALARMS,
    SCHEDULE_RULES,
)
from sleeper.properties.instance import ACCOUNT, ID, INGEST_SOURCE_BUCKETS, REGION
from sleeper.properties.values import instance_properties
from tests.servers.aws_clients import forget_clients
from tests.servers.dynoxide import DynamoServer
from tests.servers.ministack import ACCOUNT as MINISTACK_ACCOUNT
from tests.servers.ministack import Ministack
from tests.servers.seaweedfs import S3Server
from tests.servers.sqs import make_queue


@dataclass(frozen=True)
class AwsServers:
    """Where the services are: S3, DynamoDB, and an emulator of the others."""

    s3: S3Server
    dynamo: DynamoServer
    others: Ministack

    def environment(self, folder: Path) -> dict[str, str]:
        """Returns the environment of a process that uses the servers, with state in a folder."""
        return {
            "AWS_ENDPOINT_URL": self.others.url,
            "AWS_ENDPOINT_URL_S3": self.s3.endpoint,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamo.url,
            "AWS_ACCESS_KEY_ID": self.s3.credentials.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.s3.credentials.secret_access_key,
            "AWS_REGION": self.s3.region,
            "AWS_DEFAULT_REGION": self.s3.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "SLEEPER_STATE_FOLDER": str(folder / "state"),
        }


@dataclass(frozen=True)
class AwsInstance:
    """An instance on test servers. Its rules are in EventBridge."""

    id: str
    servers: AwsServers
    environment: Mapping[str, str]
    source_bucket: str

    @property
    def where(self) -> str:
        """The value for `--instance`."""
        return f"aws:{self.id}"

    def s3(self) -> Any:
        """A client of S3."""
        return s3_client(self.servers.s3)


def s3_client(server: S3Server) -> Any:
    """A client of the server."""
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.credentials.access_key_id,
        aws_secret_access_key=server.credentials.secret_access_key,
    )


@contextmanager
def aws_instance(
    servers: AwsServers,
    folder: Path,
    values: Mapping[str, str] | None = None,
    settings: QueueSettings | None = None,
) -> Iterator[AwsInstance]:
    """Makes one under a fresh id; this process's own environment leads to it meanwhile."""
    instance_id = f"t-{uuid.uuid4().hex[:12]}"
    s3 = s3_client(servers.s3)
    prefix = f"sleeper-{instance_id}"
    names = ("config", "table-data", "query-results", "source")
    config, data, results, source = (f"{prefix}-{name}-{MINISTACK_ACCOUNT}" for name in names)
    for bucket in (config, data, results, source):
        s3.create_bucket(Bucket=bucket)
    variables = {
        ID.name: instance_id,
        ACCOUNT.name: MINISTACK_ACCOUNT,
        REGION.name: servers.s3.region,
        CONFIG_BUCKET.name: config,
        DATA_BUCKET.name: data,
        QUERY_RESULTS_BUCKET.name: results,
        INGEST_SOURCE_BUCKETS.name: source,
        SCHEDULE_RULES.name: ",".join(_make_rules(servers.others, prefix)),
        SCHEDULE_ALARMS.name: _make_alarm(servers.others, prefix),
        BILLED_PARTS.name: "function:collect-garbage:512,task:ingest:2048:4096,alarms:1",
        **servers.dynamo.make_tables().names,
        **_make_queues(servers.others, prefix, settings or QueueSettings()),
        "sleeper.engine.threads": "1",
        **(values or {}),
    }
    text = instance_properties(variables).to_text()
    s3.put_object(Bucket=config, Key="instance.properties", Body=text.encode())
    environment = servers.environment(folder)
    with patch.dict("os.environ", environment):
        forget_clients()
        try:
            yield AwsInstance(instance_id, servers, environment, source)
        finally:
            forget_clients()


def _make_queues(server: Ministack, prefix: str, settings: QueueSettings) -> dict[str, str]:
    client = server.client("sqs")
    environment: dict[str, str] = {}
    for queue in DEPLOYED_QUEUES.values():
        name = f"{prefix}-{queue.name.removesuffix('.fifo')}"
        queue_ = make_queue(
            client,
            name,
            QueueSettings(settings.visibility_timeout_seconds, settings.receives_max, queue.fifo),
        )
        environment |= {
            queue.url.name: queue_.url,
            queue.dead_letters_url.name: queue_.dead_letters_url,
        }
    return environment


def _make_rules(server: Ministack, prefix: str) -> list[str]:
    names = [f"{prefix}-compaction-job-creation", f"{prefix}-garbage-collection"]
    client = server.client("events")
    for name in names:
        client.put_rule(Name=name, ScheduleExpression="rate(1 minute)", State="ENABLED")
    return names


def _make_alarm(server: Ministack, prefix: str) -> str:
    name = f"{prefix}-watch-stopped"
    server.client("cloudwatch").put_metric_alarm(
        AlarmName=name,
        Namespace="AWS/Lambda",
        MetricName="Errors",
        Statistic="Sum",
        Period=900,
        EvaluationPeriods=2,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="breaching",
    )
    return name
