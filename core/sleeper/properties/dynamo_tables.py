"""The keys of the DynamoDB tables. Loads no library.

The access patterns of each table:

- *transaction log*: the head, an entry by number, a cursor (by key); the entries after a
  number, in order (a range of one table's items).
- *table index*: by name, by id (by key); online or offline tables by name (a range).
- *trackers*: all events of one job or task (its items); what happened last, by kind (the
  index `recent`, newest first, a few ranges beside each other, see `aws.trackers`).
- *query tracker*: a query, a subquery (by key); the newest queries (the index `recent`).
- *files for the ingest batcher*: by key; those of a table that wait (the index `waiting`).
"""

from dataclasses import dataclass

from sleeper.properties.declaration import Property
from sleeper.properties.deployed import (
    INGEST_BATCHER_TABLE,
    JOB_TRACKER_TABLE,
    QUERY_TRACKER_TABLE,
    TABLE_ID_INDEX,
    TABLE_NAME_INDEX,
    TABLE_ONLINE_INDEX,
    TASK_TRACKER_TABLE,
    TRANSACTION_LOG_TABLE,
)

TIME_TO_LIVE = "expiryDate"


@dataclass(frozen=True, slots=True)
class Key:
    """The attributes of a key: `S` text or `N` number."""

    hash: str
    range: str | None = None
    range_type: str = "S"


@dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index, by default of keys only."""

    name: str
    key: Key
    holds_all: bool = False


@dataclass(frozen=True, slots=True)
class DynamoTable:
    """A table. `property` stores its name. Items of one that `expires` have an `expiryDate`."""

    property: Property[str | None]
    key: Key
    index: Index | None = None
    expires: bool = False


RECENT = Index("recent", Key("listing", "at", "N"))
WAITING = Index("waiting", Key("waiting", "received", "N"), holds_all=True)

DYNAMO_TABLES = (
    DynamoTable(TRANSACTION_LOG_TABLE, Key("tableId", "item")),
    DynamoTable(TABLE_NAME_INDEX, Key("TableName")),
    DynamoTable(TABLE_ID_INDEX, Key("TableId")),
    DynamoTable(TABLE_ONLINE_INDEX, Key("Online", "TableName")),
    DynamoTable(JOB_TRACKER_TABLE, Key("job", "event"), RECENT, expires=True),
    DynamoTable(TASK_TRACKER_TABLE, Key("task", "event"), RECENT, expires=True),
    DynamoTable(QUERY_TRACKER_TABLE, Key("queryId", "subQueryId"), RECENT, expires=True),
    DynamoTable(INGEST_BATCHER_TABLE, Key("tableId", "requestId"), WAITING, expires=True),
)
