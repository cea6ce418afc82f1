# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of instance properties that gchq/sleeper lacks: memory, state and local instances."""

from sleeper.properties.declaration import Group
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import FLAG, byte_count, optional, text, whole_number

_MIB = 1024**2
_GIB = 1024**3
_DAY_SECONDS = 86_400

# fmt: off
MERGE_FILES_MAX = declare("merge.files.max", whole_number(2, 10_000), 64, Group.ENGINE, "How many files one merge opens. More are merged in passes through local disk.")
MERGE_MEMORY_BYTES = declare("merge.memory.bytes", byte_count(16 * _MIB), _GIB, Group.ENGINE, "The memory that a merge for compaction may use before it spills to disk.")
SORT_MEMORY_BYTES = declare("ingest.sort.memory.bytes", byte_count(16 * _MIB), _GIB, Group.ENGINE, "The memory that an ingest's sort may use before it spills to disk.")
INGEST_LINE_BYTES_MAX = declare("ingest.line.bytes.max", byte_count(1024), 16 * _MIB, Group.ENGINE, "How long a line of JSON, or a value of CSV, may be in a file that is ingested. A line of some megabytes takes some times as much memory.")
QUERY_MEMORY_BYTES = declare("query.memory.bytes", byte_count(16 * _MIB), _GIB, Group.ENGINE, "The memory that a query may use before it spills to disk.")
BULK_IMPORT_TASK_MEMORY_BYTES = declare("bulk.import.task.memory.bytes", byte_count(16 * _MIB), 512 * _MIB, Group.BULK_IMPORT, "The memory that each of a bulk import's tasks on Spark may use to sort before it spills to disk.")
SPILL_DIRECTORY = declare("spill.directory", optional(text(4096)), None, Group.ENGINE, "Where to spill. Unset: the folder of the local instance; on AWS, the temporary folder.")
ENGINE_THREADS = declare("engine.threads", whole_number(0, 1024), 0, Group.ENGINE, "How many threads one ingest, merge or query uses. 0: one per processor.")
QUERY_ROWS_MAX = declare("query.rows.max", whole_number(0, 2**63 - 1), 0, Group.QUERY, "How many rows a query gives at most before it is refused. 0: no limit.")
QUERY_SECONDS_MAX = declare("query.time.max.seconds", whole_number(0, 30 * _DAY_SECONDS), 0, Group.QUERY, "How long a query or SQL statement may take, reading its rows included, before it is stopped. 0: no limit.")
QUERY_BYTES_MAX = declare("query.bytes.max", byte_count(0), 0, Group.QUERY, "How large the data files may be that a query or SQL statement reads of, all together. Each counts once, and whole, however little of it is read. 0: no limit.")
QUERY_MESSAGE_ROWS_MAX = declare("query.message.rows.max", whole_number(0, 2**63 - 1), 0, Group.QUERY, "How many rows all parts of a query that came as a message give together; parts beyond that fail. 0: no limit.")
QUERY_MESSAGE_SECONDS_MAX = declare("query.message.time.max.seconds", whole_number(0, 30 * _DAY_SECONDS), 0, Group.QUERY, "How long after a query's message first came its parts may run; parts that run or begin later fail. 0: no limit.")
QUERY_CACHE_BYTES = declare("query.cache.bytes", byte_count(0), 256 * _MIB, Group.QUERY, "How much of key filters a process that runs queries keeps in memory.")
QUERY_FOOTER_CACHE_BYTES = declare("query.footer.cache.bytes", byte_count(0), 50 * _MIB, Group.QUERY, "How much of data files' footers a process that runs queries keeps in memory.")
QUERY_CHECKSUMS_VERIFIED = declare("query.checksums.verified", FLAG, False, Group.QUERY, "Whether all queries and SQL statements verify the checksums of data files before they use their rows: of local files each once in a process, of files on S3 the row groups that are read. Compactions, bulk exports and queries that read local files completely always verify them.")
SKETCH_CACHE_BYTES = declare("partition.splitting.cache.bytes", byte_count(0), 64 * _MIB, Group.SPLITTING, "How much of key sketches a process that splits partitions keeps in memory.")
SERVE_QUERIES_MAX = declare("serve.queries.max", whole_number(1, 1024), 16, Group.QUERY, "How many queries `sleeper serve` runs at once. Others wait.")
SERVE_WAITING_MAX = declare("serve.queries.waiting.max", whole_number(0, 100_000), 256, Group.QUERY, "How many queries may wait in `sleeper serve`. Others are refused, to come again.")
SERVE_SECONDS_MAX = declare("serve.query.time.max.seconds", whole_number(1, 30 * _DAY_SECONDS), 300, Group.QUERY, "How long a query of `sleeper serve` may take, reading its rows included, before it is stopped.")
SERVE_BODY_BYTES_MAX = declare("serve.body.bytes.max", byte_count(1024), _MIB, Group.QUERY, "How large the body of a request to `sleeper serve` may be.")
SERVE_CONNECTIONS_MAX = declare("serve.connections.max", whole_number(1, 100_000), 500, Group.QUERY, "How many connections `sleeper serve` keeps open. Beyond them it closes the one that has waited longest for a request. Fewer if the process may not have the file descriptors.")
SERVE_HEADER_SECONDS_MAX = declare("serve.header.time.max.seconds", whole_number(1, 3600), 10, Group.QUERY, "How long a client of `sleeper serve` may take to send the headers of a request before its connection is closed.")
SERVE_READ_SECONDS_MAX = declare("serve.read.time.max.seconds", whole_number(1, _DAY_SECONDS), 30, Group.QUERY, "How long a client of `sleeper serve` may take to read the next 256 KiB of an answer, or the next frame, before its query is stopped.")
QUERY_HOLD_SECONDS = declare("query.hold.seconds", whole_number(1, 30 * _DAY_SECONDS), 3600, Group.QUERY, "How long the hold of a long query lasts. It is renewed at a third of that.")

ATHENA_HOLD_SECONDS = declare("athena.hold.seconds", whole_number(60, 30 * _DAY_SECONDS), 3600, Group.ATHENA, "How long a version that an Athena query reads is kept after its last read began.")
ATHENA_SHOWS_RAW = declare("athena.raw.rows", FLAG, True, Group.ATHENA, "Whether Athena also sees rows as the files have them, in the database `sleeper_raw`.")
ATHENA_SPLIT_BYTES = declare("athena.split.bytes", byte_count(_MIB), 512 * _MIB, Group.ATHENA, "How much of a leaf's data files one read of Athena's takes on, about.")

SNAPSHOT_PERIOD_MINUTES = declare("snapshot.period.minutes", whole_number(1), 60, Group.STATE, "How often a table's state is stored as a snapshot and its log is trimmed.", redeploy=True)
SNAPSHOT_TRANSACTIONS_MIN = declare("snapshot.transactions.min", whole_number(1), 1000, Group.STATE, "How many new transactions a new snapshot needs.")
QUEUE_RECEIVES_MAX = declare("queue.receives.max", whole_number(1, 1000), 3, Group.STATE, "How often a message is received before it is a dead letter, except compaction jobs. On AWS commits are received 20 times at least.", redeploy=True)
QUEUE_VISIBILITY_SECONDS = declare("queue.visibility.timeout.seconds", whole_number(1, 43_200), 900, Group.STATE, "After how long without a sign of life a message is given to another receiver, on queues without a property of their own.", redeploy=True)
COMMIT_BACKLOG_MAX = declare("statestore.commit.backlog.max", whole_number(0), 5000, Group.STATE, "On AWS: while more commits than this wait for the committer, no compaction jobs are created.")
STATE_COPIES_MAX = declare("state.copies.max", whole_number(1), 100, Group.STATE, "How many tables' states a process of an AWS instance keeps on its own disk.")
STATE_COPIES_BYTES = declare("state.copies.bytes.max", byte_count(0), 256 * _MIB, Group.STATE, "How many bytes of tables' states a process of an AWS instance keeps on its own disk, besides the one that it needs now.")
TASK_IDLE_STOP_SECONDS = declare("task.idle.stop.seconds", whole_number(0, _DAY_SECONDS), 60, Group.STATE, "After how long without a job a task on AWS ends.")
TRACKER_DAYS = declare("tracker.days", whole_number(7, 3650), 30, Group.STATE, "How long trackers keep jobs and tasks that nothing happens to any more.")

COMPACTION_LEASE_SECONDS = declare("compaction.lease.seconds", whole_number(60, 30 * _DAY_SECONDS), 3600, Group.COMPACTION, "How long a compaction job holds its files unless it renews. Must outlast the queue's retries.")
ORPHAN_AGE_DAYS = declare("orphan.age.days", whole_number(2, 3650), 14, Group.COLLECTION, "How old a run must be before files that it left behind are collected. Commits of runs half as old are refused.")
ORPHAN_PERIOD_HOURS = declare("orphan.period.hours", whole_number(1), 24, Group.COLLECTION, "How often files left behind by dead runs are looked for.", redeploy=True)

LOCAL_WORKERS = declare("local.workers", whole_number(0, 1024), 0, Group.LOCAL, "How many worker processes `sleeper run` starts. 0: one per processor.")
LOCAL_POLL_MILLISECONDS = declare("local.poll.milliseconds", whole_number(1, 60_000), 100, Group.LOCAL, "How often an idle worker looks at its queue.")
# fmt: on
