"""CloudWatch metrics and their dimensions."""

from enum import StrEnum

from sleeper.statestore.store import StateStore

NAMESPACE = "Sleeper"
INSTANCE, TABLE, TASK_KIND = "instance", "table", "kind"
"""Dimensions: every metric has the instance, and either the table or the kind of task or system."""


class Metric(StrEnum):
    """Names of the metrics of the core."""

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
    TASK_STARTS_FAILED = "TaskStartsFailed"
    DEAD_LETTERS = "DeadLetters"
    OLDEST_MESSAGE_SECONDS = "OldestMessageSeconds"
    FAILING_FUNCTIONS = "FailingFunctions"
    THROTTLES = "Throttles"
    OVERDUE = "Overdue"
    FAILING = "Failing"
    LAGGING = "Lagging"


TASK_METRICS = (Metric.TASKS_RUNNING, Metric.TASKS_STARTED)
"""Metrics per task kind. Systems have their own."""
INSTANCE_KIND = "instance"
"""The kind of metrics of the whole instance."""
INSTANCE_METRICS = (
    Metric.TASK_STARTS_FAILED,
    Metric.DEAD_LETTERS,
    Metric.OLDEST_MESSAGE_SECONDS,
    Metric.FAILING_FUNCTIONS,
    Metric.THROTTLES,
    Metric.OVERDUE,
    Metric.FAILING,
    Metric.LAGGING,
)
"""Metrics of the whole instance, published while they are not 0. All others are per table."""


def gather_table_metrics(store: StateStore) -> dict[str, int]:
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
