# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of instance properties that size the resources of a deployment to AWS.

Names are those of gchq/sleeper where it has one for the same thing. Spark's settings are defaults,
which a message's `sparkConf` overrides. Its `platformSpec` overrides the sizes of a cluster that
is created for one job.
"""

from typing import Any

from sleeper.properties.bound_secrets import BOUND_SECRETS
from sleeper.properties.declaration import Group, Property
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import FLAG, STRING_LIST, optional, pattern, text, whole_number

_ARCHITECTURE = pattern("ARM64|X86_64", "ARM64 or X86_64")
_MEMORY_MB = whole_number(128, 10_240)
_TIMEOUT_SECONDS = whole_number(1, 900)
_BUCKET = pattern("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "the name of a bucket, without s3://")
# The maximum of an alarm of CloudWatch.
_ALARM_HOURS = whole_number(0, 7 * 24)

# fmt: off
LAMBDA_CPU_ARCHITECTURE = declare("lambda.cpu.architecture", _ARCHITECTURE, "ARM64", Group.DEPLOYMENT, "The CPU architecture of lambdas.", redeploy=True)
LAMBDA_MEMORY_MB = declare("lambda.memory.mb", _MEMORY_MB, 1024, Group.DEPLOYMENT, "Memory of lambdas without their own property, in MiB. CPU scales with memory.", redeploy=True)
LAMBDA_TIMEOUT_SECONDS = declare("lambda.timeout.seconds", _TIMEOUT_SECONDS, 300, Group.DEPLOYMENT, "The timeout of lambdas without their own property.", redeploy=True)
LAMBDA_DISK_MB = declare("lambda.ephemeral.storage.mb", whole_number(512, 10_240), 2048, Group.DEPLOYMENT, "The disk of a lambda that keeps copies of tables' states, in MiB.", redeploy=True)
TASK_DISK_GIB = declare("task.ephemeral.storage.gib", whole_number(21, 200), 50, Group.DEPLOYMENT, "The local disk of a task for spilling sorts and merges, in GiB.", redeploy=True)
TRACING = declare("tracing", FLAG, True, Group.DEPLOYMENT, "Whether X-Ray traces lambdas.", redeploy=True)

COMMITTER_MEMORY_MB = declare("statestore.committer.lambda.memory.mb", _MEMORY_MB, 1769, Group.STATE, "Memory of the lambda that commits transactions, in MiB. 1769 MiB provide one vCPU.", redeploy=True)
COMMITTER_TIMEOUT_SECONDS = declare("statestore.committer.lambda.timeout.seconds", _TIMEOUT_SECONDS, 60, Group.STATE, "The timeout of the lambda that commits transactions.", redeploy=True)
COMMITTER_CONCURRENCY_RESERVED = declare("statestore.committer.concurrency.reserved", whole_number(0, 10_000), 10, Group.STATE, "The reserved concurrency of the lambda that commits transactions, which is also its limit. 0: no reservation, for accounts with a small quota.", redeploy=True)

INGEST_CPU_ARCHITECTURE = declare("ingest.task.cpu.architecture", _ARCHITECTURE, "ARM64", Group.INGEST, "The CPU architecture of ingest tasks.", redeploy=True)
INGEST_TASK_PERIOD_MINUTES = declare("ingest.task.creation.period.minutes", whole_number(1), 1, Group.INGEST, "The period in which ingest tasks are started if jobs are queued.", redeploy=True)
BATCHER_PERIOD_MINUTES = declare("ingest.batcher.job.creation.period.minutes", whole_number(1), 1, Group.INGEST_BATCHER, "The period in which the ingest batcher creates jobs.", redeploy=True)

COMPACTION_TASK_PERIOD_MINUTES = declare("compaction.task.creation.period.minutes", whole_number(1), 1, Group.COMPACTION, "The period in which compaction tasks are started if jobs are queued.", redeploy=True)
COMPACTION_CREATION_MEMORY_MB = declare("compaction.job.creation.memory.mb", _MEMORY_MB, 2048, Group.COMPACTION, "Memory of the lambda that creates compaction jobs, in MiB.", redeploy=True)
COMPACTION_CREATION_TIMEOUT_SECONDS = declare("compaction.job.creation.timeout.seconds", _TIMEOUT_SECONDS, 300, Group.COMPACTION, "The timeout of the lambda that creates compaction jobs.", redeploy=True)

SPLITTING_MEMORY_MB = declare("partition.splitting.memory.mb", _MEMORY_MB, 2048, Group.SPLITTING, "Memory of the lambda that splits a partition, in MiB.", redeploy=True)
SPLITTING_TIMEOUT_SECONDS = declare("partition.splitting.timeout.seconds", _TIMEOUT_SECONDS, 900, Group.SPLITTING, "The timeout of the lambda that splits a partition.", redeploy=True)

QUERY_MEMORY_MB = declare("query.processor.memory.mb", _MEMORY_MB, 3008, Group.QUERY, "Memory of the lambdas that plan and run queries, in MiB.", redeploy=True)
QUERY_TIMEOUT_SECONDS = declare("query.processor.timeout.seconds", _TIMEOUT_SECONDS, 900, Group.QUERY, "The timeout of lambdas that plan or run queries.", redeploy=True)
API_REQUESTS_PER_SECOND_MAX = declare("query.api.requests.per.second.max", whole_number(1, 10_000), 50, Group.QUERY, "The rate limit of the HTTP API and of the WebSocket, in requests per second.", redeploy=True)
API_BURST_MAX = declare("query.api.burst.max", whole_number(1, 5_000), 100, Group.QUERY, "The burst limit of the HTTP API and of the WebSocket, in requests.", redeploy=True)

ATHENA_MEMORY_MB = declare("athena.handler.memory.mb", _MEMORY_MB, 4096, Group.ATHENA, "Memory of the lambdas that Athena calls, in MiB. Must be more than a query's.", redeploy=True)
ATHENA_TIMEOUT_SECONDS = declare("athena.handler.timeout.seconds", _TIMEOUT_SECONDS, 900, Group.ATHENA, "The timeout of the lambdas that Athena calls.", redeploy=True)
ATHENA_SPILL_EXPIRY_DAYS = declare("athena.spill.bucket.ageoff.days", whole_number(1, 3650), 1, Group.ATHENA, "The retention of data that Athena queries spill, in days.", redeploy=True)

DASHBOARD_WINDOW_MINUTES = declare("dashboard.time.window.minutes", whole_number(1, 1440), 5, Group.STATE, "The interval of the dashboard's charts, in minutes.", redeploy=True)
METRICS_PERIOD_MINUTES = declare("metrics.table.period.minutes", whole_number(1), 5, Group.STATE, "The period of table metrics.", redeploy=True)

ADJUNCT_STORES = declare("adjunct.stores", text(16_384), "", Group.ADJUNCT, "The stores that the service on AWS fills: NAME=INPUT, separated by white space, such as `accounts=table:accounts`.", redeploy=True)
ADJUNCT_TASKS = declare("adjunct.tasks", whole_number(0, 1_000), 1, Group.ADJUNCT, "The number of tasks of the service on AWS. Each has all stores.", redeploy=True)
ADJUNCT_TASK_CPU = declare("adjunct.task.cpu", whole_number(256, 16_384), 1024, Group.ADJUNCT, "CPU units of a task of the service, for both of its containers.", redeploy=True)
ADJUNCT_TASK_MEMORY_MB = declare("adjunct.task.memory.mb", whole_number(512, 122_880), 4096, Group.ADJUNCT, "The memory of a task of the service, for both of its containers, in MiB.", redeploy=True)
ADJUNCT_DISK_GIB = declare("adjunct.task.disk.gib", whole_number(21, 200), 50, Group.ADJUNCT, "The encrypted disk of a task of the service, in GiB. A store needs its size twice while a version is built.", redeploy=True)
ADJUNCT_READER_IMAGE = declare("adjunct.reader.image", optional(text(1_000)), None, Group.ADJUNCT, "The image of a container beside the one that fills the stores, which reads them in the folder SLEEPER_ADJUNCT_PATH. Default: none.", redeploy=True)
ADJUNCT_SECRETS = declare("adjunct.secrets", STRING_LIST, (), Group.ADJUNCT, "The names or ARNs of the secrets in Secrets Manager that inputs of stores may read on AWS.", redeploy=True)
ADJUNCT_ALARM_MINUTES = declare("adjunct.alarm.minutes", whole_number(0, 24 * 60), 30, Group.ADJUNCT, "On AWS, the minutes without all data of its input after which a store raises an alarm. 0: no alarm.", redeploy=True)
# fmt: on


_MEMORY = pattern("[1-9][0-9]{0,4}[gG]", "gibibytes, such as 16G")
_RELEASE = pattern(r"emr-[0-9]+\.[0-9]+\.[0-9]+", "a release of EMR, such as emr-7.9.0")
_MARKET = pattern("SPOT|ON_DEMAND", "SPOT or ON_DEMAND")

_INSTANCES = whole_number(1, 10_000)
_CORES = whole_number(1, 128)

# fmt: off
EMR_RELEASE = declare("bulk.import.emr.release.label", _RELEASE, "emr-7.9.0", Group.BULK_IMPORT, "The release of EMR, and of EMR Serverless, for bulk imports, and the base of their image.", redeploy=True)
ARCHITECTURE = declare("bulk.import.cpu.architecture", _ARCHITECTURE, "ARM64", Group.BULK_IMPORT, "The CPU architecture of bulk imports on all platforms. Instance types must match it.", redeploy=True)
WATCH_PERIOD_MINUTES = declare("bulk.import.watch.period.minutes", whole_number(1), 5, Group.BULK_IMPORT, "The period in which the state of bulk imports on a platform is polled.", redeploy=True)

SERVERLESS_EXECUTOR_CORES = declare("bulk.import.emr.serverless.spark.executor.cores", _CORES, 4, Group.BULK_IMPORT, "Processors of an executor on EMR Serverless: 1, 2, 4, 8 or 16.")
SERVERLESS_EXECUTOR_MEMORY = declare("bulk.import.emr.serverless.spark.executor.memory", _MEMORY, "8G", Group.BULK_IMPORT, "Memory of an executor's JVM on EMR Serverless. The memory of its tasks is added.")
SERVERLESS_EXECUTOR_DISK = declare("bulk.import.emr.serverless.spark.emr-serverless.executor.disk", _MEMORY, "200G", Group.BULK_IMPORT, "Disk of an executor on EMR Serverless, for shuffles and sorts.")
SERVERLESS_EXECUTORS = declare("bulk.import.emr.serverless.spark.executor.instances", _INSTANCES, 36, Group.BULK_IMPORT, "The maximum number of executors of a job on EMR Serverless.")
SERVERLESS_DRIVER_CORES = declare("bulk.import.emr.serverless.spark.driver.cores", _CORES, 4, Group.BULK_IMPORT, "Processors of the driver on EMR Serverless.")
SERVERLESS_DRIVER_MEMORY = declare("bulk.import.emr.serverless.spark.driver.memory", _MEMORY, "8G", Group.BULK_IMPORT, "Memory of the driver's JVM on EMR Serverless.")
SERVERLESS_STOP_MINUTES = declare("bulk.import.emr.serverless.autostop.timeout", whole_number(1, 10_080), 15, Group.BULK_IMPORT, "The idle minutes after which EMR Serverless stops and incurs no cost.", redeploy=True)
SERVERLESS_CORES_MAX = declare("bulk.import.emr.serverless.max.vcpus", _INSTANCES, 400, Group.BULK_IMPORT, "The maximum number of processors of all jobs on EMR Serverless. Further jobs wait.", redeploy=True)

EXECUTOR_CORES = declare("bulk.import.emr.spark.executor.cores", _CORES, 4, Group.BULK_IMPORT, "Processors of an executor on EMR and EKS.")
EXECUTOR_MEMORY = declare("bulk.import.emr.spark.executor.memory", _MEMORY, "8G", Group.BULK_IMPORT, "Memory of an executor's JVM on EMR and EKS. The memory of its tasks is added.")
EXECUTORS = declare("bulk.import.emr.spark.executor.instances", _INSTANCES, 36, Group.BULK_IMPORT, "The maximum number of executors of a job on EMR and EKS.")
DRIVER_CORES = declare("bulk.import.emr.spark.driver.cores", _CORES, 2, Group.BULK_IMPORT, "Processors of the driver on EMR and EKS.")
DRIVER_MEMORY = declare("bulk.import.emr.spark.driver.memory", _MEMORY, "8G", Group.BULK_IMPORT, "Memory of the driver's JVM on EMR and EKS.")

EMR_MAIN_TYPES = declare("bulk.import.emr.master.instance.types", STRING_LIST, ("m7g.xlarge", "m6g.xlarge"), Group.BULK_IMPORT, "The instance types of a cluster's main node on EMR.")
EMR_EXECUTOR_TYPES = declare("bulk.import.emr.executor.instance.types", STRING_LIST, ("m7g.4xlarge", "m6g.4xlarge"), Group.BULK_IMPORT, "The instance types of a cluster's other nodes on EMR.")
EMR_MARKET = declare("bulk.import.emr.executor.market.type", _MARKET, "SPOT", Group.BULK_IMPORT, "The market of the other nodes of a cluster created for a job. Spot nodes that are unavailable for ten minutes are replaced by on-demand nodes.")
EMR_INITIAL_CAPACITY = declare("bulk.import.emr.executor.initial.capacity", _INSTANCES, 2, Group.BULK_IMPORT, "The initial number of other nodes of a cluster created for a job.")
EMR_CAPACITY_MAX = declare("bulk.import.emr.executor.max.capacity", _INSTANCES, 10, Group.BULK_IMPORT, "The maximum number of other nodes of a cluster created for a job.")

PERSISTENT_CAPACITY_MIN = declare("bulk.import.persistent.emr.min.capacity", _INSTANCES, 1, Group.BULK_IMPORT, "The minimum number of other nodes of the persistent cluster.", redeploy=True)
PERSISTENT_CAPACITY_MAX = declare("bulk.import.persistent.emr.max.capacity", _INSTANCES, 10, Group.BULK_IMPORT, "The maximum number of other nodes of the persistent cluster.", redeploy=True)
PERSISTENT_JOBS_MAX = declare("bulk.import.persistent.emr.concurrent.jobs", whole_number(1, 100), 1, Group.BULK_IMPORT, "The maximum number of concurrent jobs on the persistent cluster.", redeploy=True)

EXPORT_TASKS_MAX = declare("bulk.export.max.concurrent.tasks", whole_number(0, 10_000), 10, Group.BULK_EXPORT, "The maximum number of concurrent bulk export tasks on AWS.")
EXPORT_TASK_CPU = declare("bulk.export.task.cpu", whole_number(256, 16_384), 4096, Group.BULK_EXPORT, "CPU units of a bulk export task.", redeploy=True)
EXPORT_TASK_MEMORY_MB = declare("bulk.export.task.memory.mb", whole_number(512, 122_880), 8192, Group.BULK_EXPORT, "The memory of a bulk export task, in MiB.", redeploy=True)

ADAPTER_PERIOD_MINUTES = declare("adapter.start.period.minutes", whole_number(1, 60), 1, Group.ADAPTERS, "The period in which due adapters are started, and tasks for their runs.", redeploy=True)
ADAPTER_TASKS_MAX = declare("adapter.max.concurrent.tasks", whole_number(0, 10_000), 10, Group.ADAPTERS, "The maximum number of concurrent adapter tasks on AWS.")
ADAPTER_TASK_CPU = declare("adapter.task.cpu", whole_number(256, 16_384), 2048, Group.ADAPTERS, "CPU units of an adapter task.", redeploy=True)
ADAPTER_TASK_MEMORY_MB = declare("adapter.task.memory.mb", whole_number(512, 122_880), 4096, Group.ADAPTERS, "The memory of an adapter task, in MiB.", redeploy=True)
ADAPTER_SECRETS = declare("adapter.secrets", BOUND_SECRETS, (), Group.ADAPTERS, "The secrets in Secrets Manager that adapters may read, each with a host to which it may be sent: its name or ARN, `@` and the host, perhaps `:` and a port, such as `shop/reader@db.example:5432`. A secret of several hosts is listed several times; `@*` is every host. Without a host, a secret may be sent nowhere.", redeploy=True)
ADAPTER_SUBNETS = declare("adapter.subnets", STRING_LIST, (), Group.ADAPTERS, "The subnets that adapter tasks run in, from which databases can be reached. Default: those of all tasks.", redeploy=True)
ADAPTER_SECURITY_GROUPS = declare("adapter.security.groups", STRING_LIST, (), Group.ADAPTERS, "More security groups of adapter tasks. Required with sleeper.adapter.subnets, whose tasks have only these.", redeploy=True)

STASH_BUCKET = declare("stash.bucket", optional(_BUCKET), None, Group.STASH, "The bucket that stash tasks on AWS write to, in the same account. Default: the deployment creates one.", redeploy=True)
STASH_PERIOD_MINUTES = declare("stash.period.minutes", whole_number(1, 60), 1, Group.STASH, "The period in which due stashes are started on AWS, tasks are started for them, and stashes are completed.", redeploy=True)
STASH_TASKS_MAX = declare("stash.max.concurrent.tasks", whole_number(0, 10_000), 10, Group.STASH, "The maximum number of concurrent stash tasks on AWS.")
STASH_TASK_CPU = declare("stash.task.cpu", whole_number(256, 16_384), 2048, Group.STASH, "CPU units of a stash task.", redeploy=True)
STASH_TASK_MEMORY_MB = declare("stash.task.memory.mb", whole_number(512, 122_880), 4096, Group.STASH, "The memory of a stash task, in MiB.", redeploy=True)
STASH_ALARM_HOURS = declare("stash.alarm.hours", _ALARM_HOURS, 0, Group.STASH, "On AWS, the number of hours without a completed stash that raises an alarm. 0: no alarm.", redeploy=True)

EXPORT_FOLLOW_MEMORY_MB = declare("export.queue.follow.memory.mb", _MEMORY_MB, 2048, Group.EXPORT_QUEUES, "Memory of the lambda that takes up exports, in MiB.", redeploy=True)
EXPORT_DRAIN_MEMORY_MB = declare("export.queue.drain.memory.mb", _MEMORY_MB, 1769, Group.EXPORT_QUEUES, "Memory of the lambda that gives exports to exporters, in MiB. 1769 MiB provide one vCPU.", redeploy=True)
EXPORT_DRAIN_TIMEOUT_SECONDS = declare("export.queue.drain.timeout.seconds", whole_number(60, 900), 300, Group.EXPORT_QUEUES, "The timeout of the lambda that gives exports to exporters. Must exceed the timeout of a queue by 10 s. The buckets of one that is killed wait about this long.", redeploy=True)
EXPORT_DRAINS_MAX = declare("export.queue.max.concurrent.drains", whole_number(2, 1_000), 10, Group.EXPORT_QUEUES, "The maximum number of concurrent lambdas that give exports to exporters, each with up to 5 connections to the receiver of a queue.", redeploy=True)
EXPORT_SECRETS = declare("export.queue.secrets", STRING_LIST, (), Group.EXPORT_QUEUES, "The names or ARNs of the secrets in Secrets Manager that exporters may read on AWS.", redeploy=True)
EXPORT_SQS_QUEUES = declare("export.queue.sqs.arns", STRING_LIST, (), Group.EXPORT_QUEUES, "The ARNs of the SQS queues that exporters may send to on AWS.", redeploy=True)
EXPORT_SUBNETS = declare("export.queue.subnets", STRING_LIST, (), Group.EXPORT_QUEUES, "The subnets that exporters run in on AWS, from which receivers and the services of AWS can be reached. Default: no network of the account.", redeploy=True)
EXPORT_SECURITY_GROUPS = declare("export.queue.security.groups", STRING_LIST, (), Group.EXPORT_QUEUES, "The security groups of exporters on AWS. Required with sleeper.export.queue.subnets.", redeploy=True)
EXPORT_ALARM_MINUTES = declare("export.queue.alarm.minutes", whole_number(0, 7 * 24 * 60), 60, Group.EXPORT_QUEUES, "On AWS, the age of the oldest pending export that raises an alarm, in minutes. 0: no alarm.", redeploy=True)
# fmt: on

SPARK_ON_SERVERLESS: dict[str, Property[Any]] = {
    "spark.executor.cores": SERVERLESS_EXECUTOR_CORES,
    "spark.executor.memory": SERVERLESS_EXECUTOR_MEMORY,
    "spark.emr-serverless.executor.disk": SERVERLESS_EXECUTOR_DISK,
    "spark.dynamicAllocation.maxExecutors": SERVERLESS_EXECUTORS,
    "spark.driver.cores": SERVERLESS_DRIVER_CORES,
    "spark.driver.memory": SERVERLESS_DRIVER_MEMORY,
}
SPARK_ON_CLUSTERS: dict[str, Property[Any]] = {
    "spark.executor.cores": EXECUTOR_CORES,
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.dynamicAllocation.maxExecutors": EXECUTORS,
    "spark.driver.cores": DRIVER_CORES,
    "spark.driver.memory": DRIVER_MEMORY,
}
"""Settings of Spark, and the properties that are their defaults."""
