# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of instance properties that size the resources of a deployment to AWS.

Names are those of gchq/sleeper where it has one for the same thing. Spark's settings are defaults,
which a message's `sparkConf` overrides. Its `platformSpec` overrides the sizes of a cluster that
is created for one job.
"""

from typing import Any

from sleeper.properties.declaration import Group, Property
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import (
    FLAG,
    STRING_LIST,
    list_of,
    optional,
    pattern,
    whole_number,
)

_ARCHITECTURE = pattern("ARM64|X86_64", "ARM64 or X86_64")
_KEY_ARN = pattern(
    r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+",
    "the ARN of a KMS key, such as arn:aws:kms:eu-west-2:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
)
# Names of repositories as ECR accepts them.
_REGISTRY = pattern(
    r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?(/[a-z0-9]+([._-][a-z0-9]+)*)+",
    "a registry of ECR and a prefix, such as 123456789012.dkr.ecr.eu-west-2.amazonaws.com/sleeper: "
    "Lambda and EMR Serverless accept images from ECR only",
)
_TAG = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", "up to 64 letters, digits, _, . and -")
MEMORY_MB = whole_number(128, 10_240)
TIMEOUT_SECONDS = whole_number(1, 900)

# fmt: off
LAMBDA_CPU_ARCHITECTURE = declare("lambda.cpu.architecture", _ARCHITECTURE, "ARM64", Group.DEPLOYMENT, "The CPU architecture of lambdas.", redeploy=True)
LAMBDA_MEMORY_MB = declare("lambda.memory.mb", MEMORY_MB, 1024, Group.DEPLOYMENT, "Memory of lambdas without their own property, in MiB. CPU scales with memory.", redeploy=True)
LAMBDA_TIMEOUT_SECONDS = declare("lambda.timeout.seconds", TIMEOUT_SECONDS, 300, Group.DEPLOYMENT, "The timeout of lambdas without their own property.", redeploy=True)
LAMBDA_DISK_MB = declare("lambda.ephemeral.storage.mb", whole_number(512, 10_240), 2048, Group.DEPLOYMENT, "The disk of a lambda that keeps copies of tables' states, in MiB.", redeploy=True)
TASK_DISK_GIB = declare("task.ephemeral.storage.gib", whole_number(21, 200), 50, Group.DEPLOYMENT, "The local disk of a task for spilling sorts and merges, in GiB.", redeploy=True)
LAMBDA_CONCURRENCY_QUOTA = declare("lambda.concurrency.quota", whole_number(10, 1_000_000), 1000, Group.DEPLOYMENT, "The account's quota of concurrent lambdas, \"Concurrent executions\" in Service Quotas. The instance's queues start at most half as many at once, in proportion to their default maxima, but each at least 2, which is Lambda's minimum. New accounts have 10 or 50.", redeploy=True)
IMAGES_REGISTRY = declare("images.registry", optional(_REGISTRY), None, Group.DEPLOYMENT, "The registry of published images, to which `make images` pushes them: ECR in the region of the instance, with a prefix of repositories. Unset: the deployment builds its images, with Docker or Podman.", redeploy=True)
IMAGES_TAG = declare("images.tag", optional(_TAG), None, Group.DEPLOYMENT, "The tag with which `make images` published the images. Unset: the version.", redeploy=True)
TRACING = declare("tracing", FLAG, False, Group.DEPLOYMENT, "Whether X-Ray traces lambdas, for 5 dollars a million runs.", redeploy=True)
KMS_KEY = declare("kms.key.arn", optional(_KEY_ARN), None, Group.DEPLOYMENT, "The ARN of the KMS key that encrypts buckets, DynamoDB tables, queues, the topic of alarms, logs and the disks of tasks. Its policy must let services use it, see docs/security.md. Unset: keys of AWS.", redeploy=True)
FORMER_KMS_KEYS = declare("kms.former.key.arns", list_of(_KEY_ARN), (), Group.DEPLOYMENT, "The ARNs of former values of sleeper.kms.key.arn, with which older objects and messages are still encrypted. Roles may decrypt with these keys.", redeploy=True)

COMMITTER_MEMORY_MB = declare("statestore.committer.lambda.memory.mb", MEMORY_MB, 1769, Group.STATE, "Memory of the lambda that commits transactions, in MiB. 1769 MiB provide one vCPU.", redeploy=True)
COMMITTER_TIMEOUT_SECONDS = declare("statestore.committer.lambda.timeout.seconds", TIMEOUT_SECONDS, 60, Group.STATE, "The timeout of the lambda that commits transactions.", redeploy=True)
COMMITTER_CONCURRENCY_RESERVED = declare("statestore.committer.concurrency.reserved", whole_number(0, 10_000), 0, Group.STATE, "The reserved concurrency of the lambda that commits transactions, which is also its limit. 0: no reservation. AWS keeps 100 of an account's quota unreserved, so that new accounts, with a quota of 10 or 50, cannot reserve any.", redeploy=True)

INGEST_CPU_ARCHITECTURE = declare("ingest.task.cpu.architecture", _ARCHITECTURE, "ARM64", Group.INGEST, "The CPU architecture of ingest tasks.", redeploy=True)
INGEST_TASK_PERIOD_MINUTES = declare("ingest.task.creation.period.minutes", whole_number(1), 1, Group.INGEST, "The period in which ingest tasks are started if jobs are queued.", redeploy=True)
BATCHER_PERIOD_MINUTES = declare("ingest.batcher.job.creation.period.minutes", whole_number(1), 1, Group.INGEST_BATCHER, "The period in which the ingest batcher creates jobs.", redeploy=True)

COMPACTION_TASK_PERIOD_MINUTES = declare("compaction.task.creation.period.minutes", whole_number(1), 1, Group.COMPACTION, "The period in which compaction tasks are started if jobs are queued.", redeploy=True)
COMPACTION_CREATION_MEMORY_MB = declare("compaction.job.creation.memory.mb", MEMORY_MB, 2048, Group.COMPACTION, "Memory of the lambda that creates compaction jobs, in MiB.", redeploy=True)
COMPACTION_CREATION_TIMEOUT_SECONDS = declare("compaction.job.creation.timeout.seconds", TIMEOUT_SECONDS, 300, Group.COMPACTION, "The timeout of the lambda that creates compaction jobs.", redeploy=True)

SPLITTING_MEMORY_MB = declare("partition.splitting.memory.mb", MEMORY_MB, 2048, Group.SPLITTING, "Memory of the lambda that splits a partition, in MiB.", redeploy=True)
SPLITTING_TIMEOUT_SECONDS = declare("partition.splitting.timeout.seconds", TIMEOUT_SECONDS, 900, Group.SPLITTING, "The timeout of the lambda that splits a partition.", redeploy=True)

QUERY_MEMORY_MB = declare("query.processor.memory.mb", MEMORY_MB, 3008, Group.QUERY, "Memory of the lambdas that plan and run queries, in MiB.", redeploy=True)
QUERY_TIMEOUT_SECONDS = declare("query.processor.timeout.seconds", TIMEOUT_SECONDS, 900, Group.QUERY, "The timeout of lambdas that plan or run queries.", redeploy=True)
QUERY_WARM_MINUTES = declare("query.warm.lambda.period.minutes", whole_number(1, 60), 5, Group.QUERY, "The period in which KeepLambdaWarmStack runs the lambdas that plan and run queries, so that one container of each stays warm. Lambda keeps an idle one for 5 to 15 minutes.", redeploy=True)
API_REQUESTS_PER_SECOND_MAX = declare("query.api.requests.per.second.max", whole_number(1, 10_000), 50, Group.QUERY, "The rate limit of the HTTP API and of the WebSocket, in requests per second.", redeploy=True)
API_BURST_MAX = declare("query.api.burst.max", whole_number(1, 5_000), 100, Group.QUERY, "The burst limit of the HTTP API and of the WebSocket, in requests.", redeploy=True)


DASHBOARD_WINDOW_MINUTES = declare("dashboard.time.window.minutes", whole_number(1, 1440), 5, Group.STATE, "The interval of the dashboard's charts, in minutes.", redeploy=True)
METRICS_PERIOD_MINUTES = declare("metrics.table.period.minutes", whole_number(1), 5, Group.STATE, "The period of table metrics.", redeploy=True)

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
