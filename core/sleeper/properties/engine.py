# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of instance properties that gchq/sleeper lacks: memory, state and local instances."""

from sleeper.properties.declaration import Group
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import FLAG, byte_count, optional, text, whole_number

_MIB = 1024**2
_GIB = 1024**3
_DAY_SECONDS = 86_400

# fmt: off
MERGE_FILES_MAX = declare("merge.files.max", whole_number(2, 10_000), 64, Group.ENGINE, "The maximum number of files that one merge opens. More files are merged in passes on local disk.")
MERGE_MEMORY_BYTES = declare("merge.memory.bytes", byte_count(16 * _MIB), _GIB, Group.ENGINE, "The memory that a merge for compaction may use before it spills to disk.")
SORT_MEMORY_BYTES = declare("ingest.sort.memory.bytes", byte_count(16 * _MIB), _GIB, Group.ENGINE, "The memory that an ingest's sort may use before it spills to disk.")
INGEST_LINE_BYTES_MAX = declare("ingest.line.bytes.max", byte_count(1024), 16 * _MIB, Group.ENGINE, "The maximum length of a JSON line or a CSV value in an ingested file. A long line takes a multiple of its size in memory.")
QUERY_MEMORY_BYTES = declare("query.memory.bytes", byte_count(16 * _MIB), _GIB, Group.ENGINE, "The memory that a query may use before it spills to disk.")
BULK_IMPORT_TASK_MEMORY_BYTES = declare("bulk.import.task.memory.bytes", byte_count(16 * _MIB), 512 * _MIB, Group.BULK_IMPORT, "The memory that each of a bulk import's tasks on Spark may use to sort before it spills to disk.")
SPILL_DIRECTORY = declare("spill.directory", optional(text(4096)), None, Group.ENGINE, "The folder for spilled data. Unset: the folder of the local instance; on AWS, the temporary folder.")
ENGINE_THREADS = declare("engine.threads", whole_number(0, 1024), 0, Group.ENGINE, "The number of threads of an ingest, merge or query. 0: one per processor.")
QUERY_ROWS_MAX = declare("query.rows.max", whole_number(0, 2**63 - 1), 0, Group.QUERY, "The maximum number of rows of a query's result. 0: no limit.")
QUERY_SECONDS_MAX = declare("query.time.max.seconds", whole_number(0, 30 * _DAY_SECONDS), 0, Group.QUERY, "The timeout of a query or SQL statement, including the time in which its rows are read. 0: no limit.")
QUERY_BYTES_MAX = declare("query.bytes.max", byte_count(0), 0, Group.QUERY, "The maximum total size of the data files that a query or SQL statement reads from. Each file counts once with its whole size. 0: no limit.")
QUERY_MESSAGE_ROWS_MAX = declare("query.message.rows.max", whole_number(0, 2**63 - 1), 0, Group.QUERY, "The maximum number of rows of all subqueries of a query message. Further subqueries fail. 0: no limit.")
QUERY_MESSAGE_SECONDS_MAX = declare("query.message.time.max.seconds", whole_number(0, 30 * _DAY_SECONDS), 0, Group.QUERY, "The timeout of a query message, from its first receipt. Subqueries that run or start later fail. 0: no limit.")
QUERY_CACHE_BYTES = declare("query.cache.bytes", byte_count(0), 256 * _MIB, Group.QUERY, "The cache size for key filters in a query process.")
QUERY_FOOTER_CACHE_BYTES = declare("query.footer.cache.bytes", byte_count(0), 50 * _MIB, Group.QUERY, "The cache size for footers of data files in a query process.")
QUERY_CHECKSUMS_VERIFIED = declare("query.checksums.verified", FLAG, False, Group.QUERY, "Whether all queries and SQL statements verify the checksums of data files: of a local file once per process, of a file on S3 for each row group that is read. Compactions, bulk exports and queries that read whole local files always verify them.")
SKETCH_CACHE_BYTES = declare("partition.splitting.cache.bytes", byte_count(0), 64 * _MIB, Group.SPLITTING, "The cache size for key sketches in a process that splits partitions.")
SERVE_QUERIES_MAX = declare("serve.queries.max", whole_number(1, 1024), 16, Group.QUERY, "The maximum number of concurrent queries of `sleeper serve`. Others are queued.")
SERVE_WAITING_MAX = declare("serve.queries.waiting.max", whole_number(0, 100_000), 256, Group.QUERY, "The maximum number of queued queries of `sleeper serve`. Others are rejected, for the client to retry.")
SERVE_SECONDS_MAX = declare("serve.query.time.max.seconds", whole_number(1, 30 * _DAY_SECONDS), 300, Group.QUERY, "The timeout of a query of `sleeper serve`, including the time in which its rows are read.")
SERVE_BODY_BYTES_MAX = declare("serve.body.bytes.max", byte_count(1024), _MIB, Group.QUERY, "The maximum size of a request body of `sleeper serve`.")
SERVE_CONNECTIONS_MAX = declare("serve.connections.max", whole_number(1, 100_000), 500, Group.QUERY, "The maximum number of open connections of `sleeper serve`, also limited by the process's file descriptors. Beyond it, the connection that has been idle longest is closed.")
SERVE_HEADER_SECONDS_MAX = declare("serve.header.time.max.seconds", whole_number(1, 3600), 10, Group.QUERY, "The timeout for receiving the headers of a request to `sleeper serve`.")
SERVE_READ_SECONDS_MAX = declare("serve.read.time.max.seconds", whole_number(1, _DAY_SECONDS), 30, Group.QUERY, "The timeout for a client of `sleeper serve` to read the next 256 KiB of a response, or the next frame. Its query is then cancelled.")
QUERY_HOLD_SECONDS = declare("query.hold.seconds", whole_number(1, 30 * _DAY_SECONDS), 3600, Group.QUERY, "The expiry of the hold of a long query, which is renewed after a third of this time.")

ATHENA_HOLD_SECONDS = declare("athena.hold.seconds", whole_number(60, 30 * _DAY_SECONDS), 3600, Group.ATHENA, "The time for which a version stays readable after the last read of an Athena query began.")
ATHENA_SHOWS_RAW = declare("athena.raw.rows", FLAG, True, Group.ATHENA, "Whether Athena also has the unprocessed rows of the files, in the database `sleeper_raw`.")
ATHENA_SPLIT_BYTES = declare("athena.split.bytes", byte_count(_MIB), 512 * _MIB, Group.ATHENA, "The approximate size of the data files that one Athena read covers.")

SNAPSHOT_PERIOD_MINUTES = declare("snapshot.period.minutes", whole_number(1), 60, Group.STATE, "The period in which a table's state is stored as a snapshot and its log is trimmed.", redeploy=True)
SNAPSHOT_TRANSACTIONS_MIN = declare("snapshot.transactions.min", whole_number(1), 1000, Group.STATE, "The minimum number of new transactions for a new snapshot.")
QUEUE_RECEIVES_MAX = declare("queue.receives.max", whole_number(1, 1000), 3, Group.STATE, "The number of receives before a message becomes a dead letter, except for compaction jobs. On AWS, at least 20 for commits.", redeploy=True)
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
