# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of the properties of export queues."""

from sleeper.properties.deployed import DeployedTable, Key, declare_address
from sleeper.properties.deployment import MEMORY_MB
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import STRING_LIST, byte_count, whole_number

_GROUP = "Export queues"
_MIB = 1024**2

# fmt: off
EXPORT_QUEUE_PENDING_BYTES_MAX = declare("export.queue.pending.bytes.max", byte_count(_MIB), 1024 * _MIB, _GROUP, "The maximum size of the pending exports of a queue. Beyond it nothing more is taken up, and the log and the files of the table are kept until the exporter has caught up.")
EXPORT_FOLLOW_MEMORY_MB = declare("export.queue.follow.memory.mb", MEMORY_MB, 2048, _GROUP, "Memory of the lambda that takes up exports, in MiB.", redeploy=True)
EXPORT_DRAIN_MEMORY_MB = declare("export.queue.drain.memory.mb", MEMORY_MB, 1769, _GROUP, "Memory of the lambda that gives exports to exporters, in MiB. 1769 MiB provide one vCPU.", redeploy=True)
EXPORT_DRAIN_TIMEOUT_SECONDS = declare("export.queue.drain.timeout.seconds", whole_number(60, 900), 300, _GROUP, "The timeout of the lambda that gives exports to exporters. Must exceed the timeout of a queue by 10 s. The buckets of one that is killed wait about this long.", redeploy=True)
EXPORT_DRAINS_MAX = declare("export.queue.max.concurrent.drains", whole_number(2, 1_000), 10, _GROUP, "The maximum number of concurrent lambdas that give exports to exporters, each with up to 5 connections to the receiver of a queue.", redeploy=True)
EXPORT_SECRETS = declare("export.queue.secrets", STRING_LIST, (), _GROUP, "The names or ARNs of the secrets in Secrets Manager that exporters may read on AWS.", redeploy=True)
EXPORT_SQS_QUEUES = declare("export.queue.sqs.arns", STRING_LIST, (), _GROUP, "The ARNs of the SQS queues that exporters may send to on AWS.", redeploy=True)
EXPORT_SUBNETS = declare("export.queue.subnets", STRING_LIST, (), _GROUP, "The subnets that exporters run in on AWS, from which receivers and the services of AWS can be reached. Default: no network of the account.", redeploy=True)
EXPORT_SECURITY_GROUPS = declare("export.queue.security.groups", STRING_LIST, (), _GROUP, "The security groups of exporters on AWS. Required with sleeper.export.queue.subnets.", redeploy=True)
EXPORT_ALARM_MINUTES = declare("export.queue.alarm.minutes", whole_number(0, 7 * 24 * 60), 60, _GROUP, "On AWS, the age of the oldest pending export that raises an alarm, in minutes. 0: no alarm.", redeploy=True)
EXPORT_QUEUES_TABLE = declare_address("export.queues.table", "The DynamoDB table of export queues and their pending exports.")
# A queue, a bucket, an item: by key. The queues, the buckets of one, the items of one, in order: ranges.
EXPORT_QUEUES = DeployedTable("export-queues", EXPORT_QUEUES_TABLE, Key("queue", "item"), lasting=True)
# fmt: on
