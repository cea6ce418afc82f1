"""CloudWatch metrics and their dimensions."""

from enum import Enum

from sleeper.statestore.store import StateStore

NAMESPACE = "Sleeper"
INSTANCE, TABLE, TASK_KIND = "instance", "table", "kind"
"""Dimensions: every metric has the instance, and either the table or the task kind."""


class Metric(Enum):
    """Names of the metrics."""

    ROWS = "Rows"
    BYTES = "Bytes"
    FILES = "Files"
    FILES_WITHOUT_REFERENCES = "FilesWithoutReferences"
    FILE_REFERENCES = "FileReferences"
    PARTITIONS = "Partitions"
    LEAF_PARTITIONS = "LeafPartitions"
    UNFINISHED_COMPACTION_JOBS = "UnfinishedCompactionJobs"
    TRANSACTION_NUMBER = "TransactionNumber"
    COMMITS_APPLIED = "CommitsApplied"
    COMMITS_ALREADY_DONE = "CommitsAlreadyDone"
    COMMITS_REFUSED = "CommitsRefused"
    COMPACTION_JOBS_CREATED = "CompactionJobsCreated"
    COMPACTION_JOBS_RELEASED = "CompactionJobsReleased"
    COMPACTION_JOBS_SENT_AGAIN = "CompactionJobsSentAgain"
    REFERENCES_PUSHED_DOWN = "ReferencesPushedDown"
    PARTITIONS_TO_SPLIT = "PartitionsToSplit"
    FILES_COLLECTED = "FilesCollected"
    ORPHANS_COLLECTED = "OrphansCollected"
    STATE_SNAPSHOTS = "StateSnapshots"
    TASKS_RUNNING = "TasksRunning"
    TASKS_STARTED = "TasksStarted"
    STASHES_COMPLETED = "StashesCompleted"
    STASHES_FAILED = "StashesFailed"
    STASHES_MISSED = "StashesMissed"
    EXPORTS_PENDING = "ExportsPending"
    EXPORTS_DEAD = "ExportsDead"
    OLDEST_EXPORT_SECONDS = "OldestExportSeconds"
    EXPORT_QUEUE_PROBLEMS = "ExportQueueProblems"
    ADJUNCT_AGE_SECONDS = "AdjunctStoreAgeSeconds"
    ADJUNCT_PROBLEMS = "AdjunctStoreProblems"
    ADJUNCT_BYTES = "AdjunctStoreBytes"


TASK_METRICS = (Metric.TASKS_RUNNING, Metric.TASKS_STARTED)
"""Metrics per task kind."""
STASH_METRICS = (Metric.STASHES_COMPLETED, Metric.STASHES_FAILED, Metric.STASHES_MISSED)
"""Metrics of the kind `stash`. MISSED is the number of schedules that are late, each minute."""
EXPORT_QUEUE_KIND = "export-queue"
EXPORT_METRICS = (
    Metric.EXPORTS_PENDING,
    Metric.EXPORTS_DEAD,
    Metric.OLDEST_EXPORT_SECONDS,
    Metric.EXPORT_QUEUE_PROBLEMS,
)
"""Metrics of the kind `export-queue`, of all queues together."""
ADJUNCT_KIND = "adjunct"
ADJUNCT_METRICS = (Metric.ADJUNCT_AGE_SECONDS, Metric.ADJUNCT_PROBLEMS, Metric.ADJUNCT_BYTES)
"""Metrics of the kind `adjunct`, of all stores of a task together. All others are per table."""


def gather_table_metrics(store: StateStore) -> dict[Metric, int]:
    """Reads the metrics of a table at its newest version."""
    with store.reading() as state:
        totals, jobs = state.files.totals(), state.jobs.count()
        return {
            Metric.ROWS: totals.rows,
            Metric.BYTES: totals.bytes,
            Metric.FILES: totals.files,
            Metric.FILES_WITHOUT_REFERENCES: totals.unreferenced_files,
            Metric.FILE_REFERENCES: totals.references,
            Metric.PARTITIONS: totals.partitions,
            Metric.LEAF_PARTITIONS: totals.leaves,
            Metric.UNFINISHED_COMPACTION_JOBS: jobs,
            Metric.TRANSACTION_NUMBER: state.number,
        }
