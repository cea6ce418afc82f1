"""The declaration of what the workflows of the core add to the product, as systems do."""

from sleeper.system import LocalJobs, Operation, Queue, System, Tasks

_JOB = "sleeper.runs.retry_policy:JOB"
_REPEATED_JOB = "sleeper.runs.retry_policy:REPEATED_JOB"
_SUBMISSION = "sleeper.runs.retry_policy:SUBMISSION"

# Callers wait for queries. Deletes and splits are fast, and later jobs profit from smaller leaves.
_QUEUES = (
    Queue(
        "ingest",
        "ingest-jobs",
        "ingest.job.queue",
        "ingest jobs",
        _JOB,
        "sleeper.properties.instance:INGEST_VISIBILITY_SECONDS",
        id_member="id",
        run="sleeper.ingest.service:run_queued_ingest",
        local=LocalJobs("ingest", "ingests", priority=6),
        tasks=Tasks("sleeper.properties.instance:INGEST_TASKS_MAX"),
    ),
    Queue(
        "ingest_batcher",
        "ingest-batcher-submit",
        "ingest.batcher.submit.queue",
        "files for the ingest batcher",
        _SUBMISSION,
        id_member="firstMessageId",
    ),
    Queue(
        "compaction",
        "compaction-jobs",
        "compaction.job.queue",
        "compaction jobs",
        _REPEATED_JOB,
        "sleeper.properties.instance:COMPACTION_VISIBILITY_SECONDS",
        run="sleeper.compaction.service:run_queued_compaction",
        local=LocalJobs("compaction", "compactions", priority=5),
        tasks=Tasks("sleeper.properties.instance:COMPACTION_TASKS_MAX"),
    ),
    Queue(
        "splitting",
        "partition-splitting-jobs",
        "partition.splitting.job.queue",
        "partitions to split",
        _REPEATED_JOB,
        run="sleeper.splitting.service:run_queued_split",
        local=LocalJobs("split", "splits", priority=4),
    ),
    Queue(
        "commits",
        "transaction-commits.fifo",
        "statestore.committer.queue",
        "commits to transaction logs",
    ),
    Queue(
        "compaction_job_creation",
        "compaction-job-creation.fifo",
        "compaction.job.creation.queue",
        "tables to create compaction jobs for",
    ),
    Queue(
        "find_partitions_to_split",
        "find-partitions-to-split.fifo",
        "partition.splitting.finder.queue",
        "tables to find partitions to split in",
    ),
    Queue(
        "garbage_collection",
        "garbage-collection.fifo",
        "gc.queue",
        "tables to collect garbage of",
    ),
    Queue(
        "orphan_collection",
        "orphan-collection.fifo",
        "orphan.collection.queue",
        "tables to collect orphans of",
    ),
    Queue(
        "state_snapshots",
        "state-snapshots.fifo",
        "statestore.snapshot.creation.queue",
        "tables to take state snapshots of",
    ),
    Queue(
        "table_metrics",
        "table-metrics.fifo",
        "metrics.table.queue",
        "tables to report metrics of",
    ),
    Queue(
        "query",
        "query",
        "query.queue",
        "queries",
        run="sleeper.query_service.service:run_queued_query",
        local=LocalJobs("query", "queries", priority=2),
    ),
    Queue(
        "leaf_query",
        "leaf-partition-query",
        "query.leaf.partition.queue",
        "subqueries of queries",
        run="sleeper.query_service.run:run_queued_leaf_query",
        local=LocalJobs("part of a query", "parts of queries", priority=1),
    ),
    Queue(
        "deletion",
        "row-deletion",
        "deletion.queue",
        "deletes of rows",
        _JOB,
        run="sleeper.deletion.message:run_queued_delete",
        local=LocalJobs("delete", "deletes", priority=3),
    ),
)

SYSTEM = System(
    name="workflows",
    properties="sleeper.properties.deployed",
    queues=_QUEUES,
    operations=(Operation("sleeper.ingest_batcher.service:create_due_batches"),),
)
