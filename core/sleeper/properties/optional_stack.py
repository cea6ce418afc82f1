"""The optional parts of an AWS instance, under their names in gchq/sleeper.

Clients of gchq/sleeper check the published list against these names, so there are no others.
"""

from enum import Enum


class OptionalStack(Enum):
    """A part of an AWS instance that is deployed if `sleeper.optional.stacks` names it."""

    INGEST = "IngestStack"
    INGEST_BATCHER = "IngestBatcherStack"
    COMPACTION = "CompactionStack"
    GARBAGE_COLLECTION = "GarbageCollectorStack"
    SPLITTING = "PartitionSplittingStack"
    QUERY = "QueryStack"
    ATHENA = "AthenaStack"
    WEB_SOCKET_QUERY = "WebSocketQueryStack"
    REST_API = "RestApiStack"
    BULK_IMPORT_EMR_SERVERLESS = "EmrServerlessBulkImportStack"
    BULK_IMPORT_EMR = "EmrBulkImportStack"
    BULK_IMPORT_PERSISTENT_EMR = "PersistentEmrBulkImportStack"
    BULK_IMPORT_EKS = "EksBulkImportStack"
    BULK_EXPORT = "BulkExportStack"
    DASHBOARD = "DashboardStack"
    TABLE_METRICS = "TableMetricsStack"
    EMR_STUDIO = "EmrStudioStack"
    KEEP_LAMBDA_WARM = "KeepLambdaWarmStack"


FORMER_NAMES = {"GarbageCollectionStack": OptionalStack.GARBAGE_COLLECTION}
"""Names in property files of instances that were deployed before."""

IGNORED_STACKS = frozenset({OptionalStack.EMR_STUDIO, OptionalStack.KEEP_LAMBDA_WARM})
"""Stacks that are accepted and deploy nothing."""

DEFAULT_STACKS = (
    OptionalStack.INGEST,
    OptionalStack.INGEST_BATCHER,
    OptionalStack.COMPACTION,
    OptionalStack.GARBAGE_COLLECTION,
    OptionalStack.SPLITTING,
    OptionalStack.QUERY,
    OptionalStack.BULK_IMPORT_EMR_SERVERLESS,
    OptionalStack.TABLE_METRICS,
)
"""The optional stacks that are deployed by default."""
