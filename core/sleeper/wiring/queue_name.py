"""The queues that an instance may have."""

from enum import Enum


class QueueName(Enum):
    """The queues of an instance; on AWS those of `sleeper.properties.deployed`."""

    INGEST = "ingest"
    COMPACTION = "compaction"
    SPLITTING = "splitting"
    INGEST_BATCHER = "ingest_batcher"
    COMMITS = "commits"
    COMPACTION_JOB_CREATION = "compaction_job_creation"
    FIND_PARTITIONS_TO_SPLIT = "find_partitions_to_split"
    GARBAGE_COLLECTION = "garbage_collection"
    ORPHAN_COLLECTION = "orphan_collection"
    STATE_SNAPSHOTS = "state_snapshots"
    TABLE_METRICS = "table_metrics"
    BULK_IMPORT_EMR = "bulk_import_emr"
    BULK_IMPORT_PERSISTENT_EMR = "bulk_import_persistent_emr"
    BULK_IMPORT_EMR_SERVERLESS = "bulk_import_emr_serverless"
    BULK_IMPORT_EKS = "bulk_import_eks"
    BULK_EXPORT = "bulk_export"
    QUERY = "query"
    LEAF_QUERY = "leaf_query"


WORK_QUEUES = (
    QueueName.INGEST,
    QueueName.COMPACTION,
    QueueName.SPLITTING,
    QueueName.QUERY,
    QueueName.LEAF_QUERY,
)
"""The queues of a local instance, which its workers take from."""
