"""What can be reported on."""

from enum import StrEnum


class ReportKind(StrEnum):
    """The reports by the names that people give them."""

    TABLES = "tables"
    FILES = "files"
    PARTITIONS = "partitions"
    STATE = "state"
    INGEST_JOBS = "ingest-jobs"
    BULK_IMPORT_JOBS = "bulk-import-jobs"
    BULK_EXPORT_JOBS = "bulk-export-jobs"
    COMPACTION_JOBS = "compaction-jobs"
    TASKS = "tasks"
    QUERIES = "queries"
    QUEUES = "queues"
    DEAD_LETTERS = "dead-letters"
    ALL = "all"
