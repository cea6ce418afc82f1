# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of instance properties.

Names and defaults are those of gchq/sleeper where it has them. Clients of gchq/sleeper check the
published list of optional stacks against its names, so there are no others. The last section is
without counterpart in gchq/sleeper: memory, state and local instances. Values under
`sleeper.default.table.` are declared with the table property whose default they are.
"""

from enum import StrEnum
from typing import TypeVar

from sleeper.properties.declaration import INSTANCE_PROPERTIES, Group, Property, SetBy
from sleeper.properties.value_kind import (
    FLAG,
    SPARK_SETTINGS,
    STRING_LIST,
    TAGS,
    ValueKind,
    byte_count,
    members,
    number_among,
    optional,
    pattern,
    text,
    whole_number,
)
from sleeper.systems import systems


class OptionalStack(StrEnum):
    """A part of an AWS instance that is deployed if `sleeper.optional.stacks` names it.

    Systems declare more.
    """

    INGEST = "IngestStack"
    INGEST_BATCHER = "IngestBatcherStack"
    COMPACTION = "CompactionStack"
    GARBAGE_COLLECTION = "GarbageCollectorStack"
    SPLITTING = "PartitionSplittingStack"
    QUERY = "QueryStack"
    WEB_SOCKET_QUERY = "WebSocketQueryStack"
    REST_API = "RestApiStack"
    DASHBOARD = "DashboardStack"
    TABLE_METRICS = "TableMetricsStack"
    EMR_STUDIO = "EmrStudioStack"
    KEEP_LAMBDA_WARM = "KeepLambdaWarmStack"


def _list_stacks() -> list[str]:
    """Returns the names of all parts, in the order of the texts that list them."""
    names: list[str] = list(OptionalStack)
    for stack in (each for system in systems() for each in system.stacks if each.option):
        names.insert(names.index(stack.after) + 1, str(stack.option))
    return names


_STACKS = _list_stacks()
FORMER_NAMES = {"GarbageCollectionStack": OptionalStack.GARBAGE_COLLECTION}
"""Names in property files of instances that were deployed before."""

IGNORED_STACKS = frozenset({OptionalStack.EMR_STUDIO})
"""Stacks that are accepted and deploy nothing."""

_DEFAULTS = {
    OptionalStack.INGEST,
    OptionalStack.INGEST_BATCHER,
    OptionalStack.COMPACTION,
    OptionalStack.GARBAGE_COLLECTION,
    OptionalStack.SPLITTING,
    OptionalStack.QUERY,
    *(stack.option for system in systems() for stack in system.stacks if stack.is_default),
}
DEFAULT_STACKS = tuple(name for name in _STACKS if name in _DEFAULTS)


T = TypeVar("T")

_INSTANCE_ID = pattern(
    r"[A-Za-z0-9]([A-Za-z0-9.-]{0,18}[A-Za-z0-9])?",
    "1 to 20 letters, digits, dots and hyphens, a letter or digit at both ends",
)

# CloudWatch accepts no others.
_RETENTION_DAYS = (-1, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827)
_RETENTION_YEARS = (2192, 2557, 2922, 3288, 3653)


def declare(
    name: str,
    kind: ValueKind[T],
    default: T | None,
    group: str,
    description: str,
    *,
    set_by: SetBy = SetBy.USER,
    redeploy: bool = False,
    required: bool = False,
) -> Property[T]:
    """Declares an instance property. The name has no `sleeper.` prefix."""
    return INSTANCE_PROPERTIES.add(
        Property(
            name=f"sleeper.{name}",
            kind=kind,
            default=default,
            group=group,
            description=description,
            set_by=set_by,
            redeploy=redeploy,
            required=required,
        )
    )


# fmt: off
ID = declare("id", _INSTANCE_ID, None, Group.INSTANCE, "The instance's name, a part of the names of its AWS resources.", redeploy=True, required=True)
RESOURCE_TAGS = declare("tags", TAGS, (), Group.INSTANCE, "Tags for every AWS resource of the instance.", redeploy=True)

VPC = declare("vpc", optional(text(100)), None, Group.DEPLOYMENT, "The id of the VPC that tasks run in.", redeploy=True)
SUBNETS = declare("subnets", STRING_LIST, (), Group.DEPLOYMENT, "The ids of the subnets that tasks run in.", redeploy=True)
NETWORK_ENDPOINTS = declare("network.interface.endpoints", FLAG, False, Group.DEPLOYMENT, "Whether a created network has interface endpoints, which cost about 58 dollars a month. false: tasks have public addresses, without ingress, and bulk imports on EMR clusters and EKS cannot be deployed.", redeploy=True)
VERSION = declare("version", optional(text(200)), None, Group.DEPLOYED, "The version that deployed the instance. Older clients ignore properties that they do not know.", set_by=SetBy.DEPLOYMENT, redeploy=True)
ACCOUNT = declare("account", optional(pattern(r"\d{12}", "an AWS account number of 12 digits")), None, Group.DEPLOYMENT, "The AWS account.", set_by=SetBy.DEPLOYMENT, redeploy=True)
REGION = declare("region", optional(text(40)), None, Group.DEPLOYMENT, "The AWS region.", set_by=SetBy.DEPLOYMENT, redeploy=True)
BUCKET_NAMES_REGION = declare("bucket.names.region", FLAG, False, Group.DEPLOYMENT, "Whether the names of buckets and of the dashboard have the region, so that another region of the account can have an instance of the same id. `make deploy` chooses it for a new instance. An instance keeps its names.", redeploy=True)
OPTIONAL_STACKS = declare("optional.stacks", members(_STACKS, FORMER_NAMES), DEFAULT_STACKS, Group.DEPLOYMENT, "The optional parts that are deployed. EmrStudioStack deploys nothing.", redeploy=True)
RETAIN_INFRA = declare("retain.infra.after.destroy", FLAG, True, Group.DEPLOYMENT, "Whether buckets and tables are retained when the stack is deleted.", redeploy=True)
TERMINATION_PROTECTION = declare("termination.protection", FLAG, True, Group.DEPLOYMENT, "Whether CloudFormation refuses to delete the stack. To destroy an instance, deploy it with false first.", redeploy=True)
QUEUE_ALARM_MINUTES = declare("queue.alarm.minutes", whole_number(1), 60, Group.DEPLOYMENT, "The minutes that a message may wait in a queue before the alarm messages-late.", redeploy=True)
LOG_RETENTION_DAYS = declare("log.retention.days", number_among(*_RETENTION_DAYS, *_RETENTION_YEARS), 30, Group.DEPLOYMENT, "The retention of CloudWatch logs, in days. -1: unlimited.", redeploy=True)
ERRORS_EMAIL = declare("errors.email", optional(text(320)), None, Group.DEPLOYMENT, "The email address that receives alarms.", redeploy=True)

INGEST_TASKS_MAX = declare("ingest.max.concurrent.tasks", whole_number(0), 200, Group.INGEST, "The maximum number of concurrent ingest tasks.")
INGEST_TASK_CPU = declare("ingest.task.cpu", whole_number(256, 16384), 2048, Group.INGEST, "CPU units of an ingest task.", redeploy=True)
INGEST_TASK_MEMORY_MB = declare("ingest.task.memory.mb", whole_number(512, 122880), 4096, Group.INGEST, "Memory of an ingest task, in MiB.", redeploy=True)
INGEST_VISIBILITY_SECONDS = declare("ingest.queue.visibility.timeout.seconds", whole_number(1, 43200), 900, Group.INGEST, "The visibility timeout of ingest jobs: without a renewal another task receives the job.", redeploy=True)
INGEST_KEEPALIVE_SECONDS = declare("ingest.keepalive.period.seconds", whole_number(1, 43200), 300, Group.INGEST, "The period in which an ingest task renews the visibility timeout of its job. Must be less than the timeout.")
INGEST_SOURCE_BUCKETS = declare("ingest.source.bucket", STRING_LIST, (), Group.INGEST, "Buckets that ingest may read files from. A local instance reads all that the user's credentials allow.", redeploy=True)
INGEST_PARTITION_REFRESH_SECONDS = declare("ingest.partition.refresh.period", whole_number(0), 120, Group.INGEST, "The maximum age of an ingest task's copy of the partitions, in seconds.")

COMPACTION_TASKS_MAX = declare("compaction.max.concurrent.tasks", whole_number(0), 300, Group.COMPACTION, "The maximum number of concurrent compaction tasks.")
COMPACTION_CREATION_PERIOD_MINUTES = declare("compaction.job.creation.period.minutes", whole_number(1), 1, Group.COMPACTION, "The period in which compaction jobs are created.", redeploy=True)
COMPACTION_CPU_ARCHITECTURE = declare("compaction.task.cpu.architecture", pattern("ARM64|X86_64", "ARM64 or X86_64"), "ARM64", Group.COMPACTION, "The CPU architecture of compaction tasks.", redeploy=True)
COMPACTION_ARM_CPU = declare("compaction.task.arm.cpu", whole_number(256, 16384), 4096, Group.COMPACTION, "CPU units of a compaction task on ARM64.", redeploy=True)
COMPACTION_ARM_MEMORY_MB = declare("compaction.task.arm.memory.mb", whole_number(512, 122880), 8192, Group.COMPACTION, "Memory of a compaction task on ARM64, in MiB.", redeploy=True)
COMPACTION_X86_CPU = declare("compaction.task.x86.cpu", whole_number(256, 16384), 4096, Group.COMPACTION, "CPU units of a compaction task on X86_64.", redeploy=True)
COMPACTION_X86_MEMORY_MB = declare("compaction.task.x86.memory.mb", whole_number(512, 122880), 8192, Group.COMPACTION, "Memory of a compaction task on X86_64, in MiB.", redeploy=True)
COMPACTION_RETRIES_MAX = declare("compaction.job.max.retries", whole_number(1, 1000), 3, Group.COMPACTION, "The number of attempts before a compaction job becomes a dead letter.", redeploy=True)
COMPACTION_VISIBILITY_SECONDS = declare("compaction.queue.visibility.timeout.seconds", whole_number(1, 43200), 900, Group.COMPACTION, "The visibility timeout of compaction jobs: without a renewal another task receives the job.", redeploy=True)

DELETION_DELAY_HOURS = declare("table.deletion.delay.hours", whole_number(0), 24, Group.COLLECTION, "The time for which `sleeper table undelete` can bring a deleted table back, before garbage collection deletes its files. 0: none.")
COLLECTION_PERIOD_MINUTES = declare("gc.period.minutes", whole_number(1), 15, Group.COLLECTION, "The period of garbage collection.", redeploy=True)
COLLECTION_BATCH_SIZE = declare("gc.batch.size", whole_number(1), 10_000, Group.COLLECTION, "The maximum number of files that one log entry collects.")

SPLITTING_PERIOD_MINUTES = declare("partition.splitting.period.minutes", whole_number(1), 30, Group.SPLITTING, "The period of the search for partitions to split.", redeploy=True)
SPLITTING_FILES_MAX = declare("partition.splitting.files.maximum", whole_number(1), 50, Group.SPLITTING, "The maximum number of files whose sketches are read to find split points.")

QUERY_RESULTS_BATCH_SIZE = declare("query.results.batch.size", whole_number(1), 2000, Group.QUERY, "The maximum number of rows in a message of results.")
QUERY_TRACKER_DAYS = declare("query.tracker.ttl.days", whole_number(1), 1, Group.QUERY, "The retention of queries in the query tracker.")
QUERY_RESULTS_DAYS = declare("query.results.bucket.expiry.days", whole_number(1), 7, Group.QUERY, "The retention of query results.", redeploy=True)
QUERY_RESULTS_SHARED = declare("query.results.shared", FLAG, True, Group.QUERY, "Whether `sleeper.query.role.arn` may read the results of all callers: the results bucket and the default results queue. While it may, a query of a table with `sleeper.table.query.callers` must name another destination.", redeploy=True)
# fmt: on
"""The optional stacks that are deployed by default."""


_MIB = 1024**2
_GIB = 1024**3
_DAY_SECONDS = 86_400

# fmt: off
MERGE_FILES_MAX = declare("merge.files.max", whole_number(2, 10_000), 64, Group.ENGINE, "The maximum number of files that one merge opens. More files are merged in passes on local disk.")
MERGE_MEMORY_BYTES = declare("merge.memory.bytes", byte_count(16 * _MIB), _GIB, Group.ENGINE, "The memory that a merge for compaction may use before it spills to disk.")
SORT_MEMORY_BYTES = declare("ingest.sort.memory.bytes", byte_count(16 * _MIB), _GIB, Group.ENGINE, "The memory of an ingest's sort. Rows beyond a quarter of it are on disk meanwhile.")
INGEST_LINE_BYTES_MAX = declare("ingest.line.bytes.max", byte_count(1024), 16 * _MIB, Group.ENGINE, "The maximum length of a JSON line or a CSV value in an ingested file. A long line takes a multiple of its size in memory.")
JSON_DEPTH_MAX = declare("json.depth.max", whole_number(1, 500), 100, Group.ENGINE, "The maximum number of objects and arrays within each other in an ingested value of `JSONType`.")
JSON_BYTES_MAX = declare("json.bytes.max", byte_count(1), 16 * _MIB, Group.ENGINE, "The maximum length of an ingested value of `JSONType`.")
QUERY_MEMORY_BYTES = declare("query.memory.bytes", byte_count(16 * _MIB), _GIB, Group.ENGINE, "The memory that a query may use before it spills to disk.")
BULK_IMPORT_TASK_MEMORY_BYTES = declare("bulk.import.task.memory.bytes", byte_count(16 * _MIB), 512 * _MIB, Group.BULK_IMPORT, "The memory that each of a bulk import's tasks on Spark may use to sort before it spills to disk.")
SPARK_MASTER = declare("spark.master", optional(pattern("[^\\s]{1,2000}", "a master of Spark such as local[4], spark://HOST:7077, yarn or k8s://https://HOST")), None, Group.SPARK, "The master on which the jobs of this instance start Spark, unless `--master` names another. Unset: all processors of the machine, and commands that can do without Spark start none. Platforms of AWS have their own.")
SPARK_CONF = declare("spark.conf", SPARK_SETTINGS, (), Group.SPARK, "Settings of the sessions that processes of this instance start, such as `spark.executor.memory=4g,spark.cores.max=16`. `--conf` adds to them.")
SPARK_WAIT_SECONDS = declare("spark.executor.wait.seconds", whole_number(1, _DAY_SECONDS), 60, Group.SPARK, "The time in which a cluster must offer the first executor. Then the job fails with what the master reported.")
SPILL_DIRECTORY = declare("spill.directory", optional(text(4096)), None, Group.ENGINE, "The folder for spilled data. Unset: the folder of the local instance; on AWS, the temporary folder.")
ENGINE_THREADS = declare("engine.threads", whole_number(0, 1024), 0, Group.ENGINE, "The number of threads of an ingest, merge or query. 0: one per processor.")
QUERY_ROWS_MAX = declare("query.rows.max", whole_number(0, 2**63 - 1), 0, Group.QUERY, "The maximum number of rows of a query's result. 0: no limit.")
QUERY_SECONDS_MAX = declare("query.time.max.seconds", whole_number(0, 30 * _DAY_SECONDS), 0, Group.QUERY, "The timeout of a query or SQL statement, including the time in which its rows are read. 0: no limit.")
QUERY_BYTES_MAX = declare("query.bytes.max", byte_count(0), 0, Group.QUERY, "The maximum total size of the data files that a query or SQL statement reads from. Each file counts once with its whole size. 0: no limit.")
QUERY_MESSAGE_ROWS_MAX = declare("query.message.rows.max", whole_number(0, 2**63 - 1), 0, Group.QUERY, "The maximum number of rows of all subqueries of a query message. Further subqueries fail. 0: no limit.")
QUERY_MESSAGE_SECONDS_MAX = declare("query.message.time.max.seconds", whole_number(0, 30 * _DAY_SECONDS), 0, Group.QUERY, "The timeout of a query message, from its first receipt. Subqueries that run or start later fail. 0: no limit.")
QUERY_CACHE_BYTES = declare("query.cache.bytes", byte_count(0), 256 * _MIB, Group.QUERY, "The cache size for key filters in a query process.")
QUERY_FOOTER_CACHE_BYTES = declare("query.footer.cache.bytes", byte_count(0), 50 * _MIB, Group.QUERY, "The cache size for footers of data files in a query process.")
DELETED_KEYS_CACHE_BYTES = declare("deleted.keys.cache.bytes", byte_count(0), 64 * _MIB, Group.QUERY, "The cache size for the keys of deletes in a process that reads data files.")
QUERY_CHECKSUMS_VERIFIED = declare("query.checksums.verified", FLAG, False, Group.QUERY, "Whether all queries and SQL statements verify the checksums of data files: of a local file once per process, of a file on S3 for each row group that is read. Compactions, bulk exports, and queries and statements that read whole local files always verify them, and statements those of tables of up to 64 MiB.")
SKETCH_CACHE_BYTES = declare("partition.splitting.cache.bytes", byte_count(0), 64 * _MIB, Group.SPLITTING, "The cache size for key sketches in a process that splits partitions.")
SERVE_QUERIES_MAX = declare("serve.queries.max", whole_number(1, 1024), 16, Group.QUERY, "The maximum number of concurrent queries of `sleeper serve`. Others are queued.")
SERVE_WAITING_MAX = declare("serve.queries.waiting.max", whole_number(0, 100_000), 256, Group.QUERY, "The maximum number of queued queries of `sleeper serve`. Others are rejected, for the client to retry.")
SERVE_SECONDS_MAX = declare("serve.query.time.max.seconds", whole_number(1, 30 * _DAY_SECONDS), 300, Group.QUERY, "The timeout of a query of `sleeper serve`, including the time in which its rows are read.")
SERVE_BODY_BYTES_MAX = declare("serve.body.bytes.max", byte_count(1024), _MIB, Group.QUERY, "The maximum size of a request body of `sleeper serve`.")
SERVE_ROWS_BYTES_MAX = declare("serve.rows.bytes.max", byte_count(1024), 1024 * _MIB, Group.QUERY, "The maximum size of a request to `sleeper serve` that adds rows. Those of more than `sleeper.serve.body.bytes.max` wait on the local disk and are ingested alone.")
SERVE_ROWS_MEMORY_BYTES_MAX = declare("serve.rows.memory.bytes.max", byte_count(_MIB), 64 * _MIB, Group.QUERY, "The maximum size in memory of the rows of a request to `sleeper serve` that are decoded at once: those of a body of up to `sleeper.serve.body.bytes.max`, of a compressed batch of Arrow, of the dictionaries of a stream, or one row. Writing them takes up to four times as much.")
SERVE_ROWS_DECODED_BYTES_MAX = declare("serve.rows.decoded.bytes.max", byte_count(_MIB), 16 * 1024 * _MIB, Group.QUERY, "The maximum size of all rows of a request to `sleeper serve`, decoded. Each value counts at least 8 bytes, also a null.")
SERVE_CONNECTIONS_MAX = declare("serve.connections.max", whole_number(1, 100_000), 500, Group.QUERY, "The maximum number of open connections of `sleeper serve`, also limited by the process's file descriptors. Beyond it, the connection that has been idle longest is closed.")
SERVE_HEADER_SECONDS_MAX = declare("serve.header.time.max.seconds", whole_number(1, 3600), 10, Group.QUERY, "The timeout for receiving the headers of a request to `sleeper serve`.")
SERVE_READ_SECONDS_MAX = declare("serve.read.time.max.seconds", whole_number(1, _DAY_SECONDS), 30, Group.QUERY, "The timeout for a client of `sleeper serve` to read the next 256 KiB of a response, or the next frame. Its query is then cancelled. While other queries wait, it is 2 s.")
QUERY_HOLD_SECONDS = declare("query.hold.seconds", whole_number(1, 30 * _DAY_SECONDS), 3600, Group.QUERY, "The expiry of the hold of a long query, which is renewed after a third of this time.")


SNAPSHOT_PERIOD_MINUTES = declare("snapshot.period.minutes", whole_number(1), 60, Group.STATE, "The period in which a state snapshot of each table is stored and its log is trimmed.", redeploy=True)
SNAPSHOT_TRANSACTIONS_MIN = declare("snapshot.transactions.min", whole_number(1), 1000, Group.STATE, "The minimum number of new transactions for a new state snapshot.")
QUEUE_RECEIVES_MAX = declare("queue.receives.max", whole_number(1, 1000), 3, Group.STATE, "The number of receives before a message becomes a dead letter, except for compaction jobs. On AWS, at least 5 for messages that start lambdas, because AWS counts throttled ones, 10 for operations on tables, 20 for commits and 30 for exports.", redeploy=True)
QUEUE_VISIBILITY_SECONDS = declare("queue.visibility.timeout.seconds", whole_number(1, 43_200), 900, Group.STATE, "The visibility timeout of queues without their own property.", redeploy=True)
COMMIT_BACKLOG_MAX = declare("statestore.commit.backlog.max", whole_number(0), 5000, Group.STATE, "On AWS: no compaction jobs are created while more commits than this are queued for the committer.")
STATE_COPIES_MAX = declare("state.copies.max", whole_number(1), 100, Group.STATE, "The maximum number of table states that a process of an AWS instance caches on local disk.")
STATE_COPIES_BYTES = declare("state.copies.bytes.max", byte_count(0), 256 * _MIB, Group.STATE, "The cache size on local disk for table states in a process of an AWS instance, besides the one in use.")
TASK_IDLE_STOP_SECONDS = declare("task.idle.stop.seconds", whole_number(0, _DAY_SECONDS), 60, Group.STATE, "The idle time after which a task on AWS ends.")
TRACKER_DAYS = declare("tracker.days", whole_number(7, 3650), 30, Group.STATE, "The retention of finished jobs and tasks in the trackers.")

COMPACTION_LEASE_SECONDS = declare("compaction.lease.seconds", whole_number(60, 30 * _DAY_SECONDS), 3600, Group.COMPACTION, "The lease of a compaction job on its files, unless renewed. Must exceed the time of the queue's retries.")
ORPHAN_AGE_DAYS = declare("orphan.age.days", whole_number(2, 3650), 14, Group.COLLECTION, "The minimum age of a run whose orphaned files are collected. Commits of runs older than half of this are refused.")
ORPHAN_PERIOD_HOURS = declare("orphan.period.hours", whole_number(1), 24, Group.COLLECTION, "The period of orphan collection.", redeploy=True)

LOCAL_WORKERS = declare("local.workers", whole_number(0, 1024), 0, Group.LOCAL, "The number of worker processes of `sleeper run`. 0: one per processor.")
LOCAL_POLL_MILLISECONDS = declare("local.poll.milliseconds", whole_number(1, 60_000), 100, Group.LOCAL, "The period in which an idle worker polls its queue.")
# fmt: on
