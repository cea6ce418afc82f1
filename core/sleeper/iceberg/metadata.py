"""Table metadata: the JSON that names the schemas and snapshots of a published table."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sleeper.clock import iso_time
from sleeper.iceberg.schemas import (
    SORT_ORDER_ID,
    last_column_id,
    name_mapping,
    schema_to_iceberg,
    sort_order,
)
from sleeper.schema.model import Schema
from sleeper.tables import TableRef

_TABLE_ID = "sleeper.table.id"
TABLE_NAME = "sleeper.table.name"
INSTANCE_DATA = "sleeper.instance.data"
"""The property with the URL of the data of the table's instance."""
_MAPPING = "schema.name-mapping.default"
_LAST_PARTITION_ID = 999
# Every publication writes all of them, and readers load them.
_SNAPSHOTS_MAX = 1000

Metadata = dict[str, Any]
"""The members of Iceberg's table metadata."""


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """What a snapshot holds: its list of manifests, and the totals of its summary.

    `parent` is the number of the one before.
    """

    number: int
    parent: int | None
    time_ms: int
    list_url: str
    files: int
    rows: int
    delete_files: int
    hidden_rows: int


def make_metadata(
    before: Metadata | None,
    table: TableRef,
    location: str,
    schema: Schema,
    content: SnapshotContent,
    kept: Sequence[Metadata],
    now_ms: int,
) -> Metadata:
    """Returns the metadata with a new snapshot, and the newest of the `kept` ones before."""
    snapshots = [each for each in kept if number_of(each) != content.number]
    snapshots = [*snapshots[1 - _SNAPSHOTS_MAX :], _make_snapshot(content, schema)]
    schemas = (*schema.earlier, schema)
    mapping = name_mapping(schema)
    times = [content.time_ms, now_ms, before["last-updated-ms"] if before else 0]
    return {
        "format-version": 2,
        "table-uuid": before["table-uuid"] if before else str(uuid.uuid4()),
        "location": location,
        "last-sequence-number": content.number,
        "last-updated-ms": max(times),
        "last-column-id": last_column_id(schemas),
        "current-schema-id": schema.version,
        "schemas": [schema_to_iceberg(each) for each in schemas],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": _LAST_PARTITION_ID,
        "default-sort-order-id": SORT_ORDER_ID,
        "sort-orders": [sort_order(schema)],
        "properties": {
            _TABLE_ID: table.id,
            TABLE_NAME: table.name,
            **({} if mapping is None else {_MAPPING: mapping}),
        },
        "current-snapshot-id": content.number,
        "refs": {"main": {"snapshot-id": content.number, "type": "branch"}},
        "snapshots": snapshots,
        "snapshot-log": [
            {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
            for each in snapshots
        ],
        "metadata-log": [],
    }


def _make_snapshot(content: SnapshotContent, schema: Schema) -> Metadata:
    shown: Mapping[str, Any] = {
        "operation": "overwrite",
        "sleeper.transaction": content.number,
        "sleeper.time": iso_time(content.time_ms),
        "total-data-files": content.files,
        "total-records": content.rows,
        "total-delete-files": content.delete_files,
        "total-position-deletes": content.hidden_rows,
        "total-equality-deletes": 0,
    }
    return {
        "snapshot-id": content.number,
        **({} if content.parent is None else {"parent-snapshot-id": content.parent}),
        "sequence-number": content.number,
        "timestamp-ms": content.time_ms,
        "manifest-list": content.list_url,
        "summary": {name: str(value) for name, value in shown.items()},
        "schema-id": schema.version,
    }


def snapshots_of(metadata: Metadata | None) -> Iterable[Metadata]:
    """Returns the snapshots, oldest first."""
    return () if metadata is None else metadata["snapshots"]


def number_of(snapshot: Metadata) -> int:
    """Returns the number of the version of a snapshot."""
    return int(snapshot["snapshot-id"])


def current_number(metadata: Metadata | None) -> int | None:
    """Returns the number of the version that was published last."""
    return None if metadata is None else int(metadata["current-snapshot-id"])


def current_snapshot(metadata: Metadata) -> Metadata:
    """Returns the snapshot that was published last."""
    number = current_number(metadata)
    (snapshot,) = (each for each in metadata["snapshots"] if number_of(each) == number)
    return dict(snapshot)


def table_id_of(metadata: Metadata) -> str:
    """Returns the id of the table whose metadata this is."""
    return str(metadata["properties"].get(_TABLE_ID, ""))
