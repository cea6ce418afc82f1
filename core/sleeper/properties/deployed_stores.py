# ruff: noqa: E501 (one declaration a line reads as a table)
"""The buckets and DynamoDB tables of an AWS instance.

`sleeper.properties.dynamo_tables` declares the keys of the tables.
"""

from dataclasses import dataclass

from sleeper.properties import deployed
from sleeper.properties.declaration import Property


@dataclass(frozen=True, slots=True)
class DeployedBucket:
    """A bucket. `name` is the part between the instance's prefix and the account."""

    name: str
    place: Property[str | None]


@dataclass(frozen=True, slots=True)
class DeployedTable:
    """A DynamoDB table. `name` is the part after the instance's prefix.

    `lasting` tables cannot be recreated from the log, so they have continuous backups.
    """

    name: str
    place: Property[str | None]
    lasting: bool = False


UPLOADS_PREFIX = "for_ingest/"
"""Keys of files in the data bucket that clients upload there before they name them in a job."""

# fmt: off
CONFIG = DeployedBucket("config", deployed.CONFIG_BUCKET)
TABLE_DATA = DeployedBucket("table-data", deployed.DATA_BUCKET)
QUERY_RESULTS = DeployedBucket("query-results", deployed.QUERY_RESULTS_BUCKET)
BULK_IMPORT = DeployedBucket("bulk-import", deployed.BULK_IMPORT_BUCKET)
ATHENA_SPILL = DeployedBucket("athena-spill", deployed.ATHENA_SPILL_BUCKET)
BULK_EXPORT_RESULTS = DeployedBucket("bulk-export-results", deployed.BULK_EXPORT_BUCKET)

TABLE_INDEX_BY_NAME = DeployedTable("table-index-by-name", deployed.TABLE_NAME_INDEX, lasting=True)
TABLE_INDEX_BY_ID = DeployedTable("table-index-by-id", deployed.TABLE_ID_INDEX, lasting=True)
TABLE_INDEX_BY_ONLINE = DeployedTable("table-index-by-online", deployed.TABLE_ONLINE_INDEX, lasting=True)
TRANSACTION_LOG = DeployedTable("transaction-log", deployed.TRANSACTION_LOG_TABLE, lasting=True)
JOB_TRACKER = DeployedTable("job-tracker", deployed.JOB_TRACKER_TABLE)
TASK_TRACKER = DeployedTable("task-tracker", deployed.TASK_TRACKER_TABLE)
INGEST_BATCHER = DeployedTable("ingest-batcher", deployed.INGEST_BATCHER_TABLE, lasting=True)
QUERY_TRACKER = DeployedTable("query-tracker", deployed.QUERY_TRACKER_TABLE)
# fmt: on
