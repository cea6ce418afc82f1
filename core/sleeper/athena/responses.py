"""The responses of the protocol.

The SDK reads the members of a response in a fixed order, so they are written in this order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from sleeper.athena.encoding import block_to_json, schema_to_text
from sleeper.athena.requests import Source, TableName
from sleeper.athena.split import EncryptionKey, SpillLocation, Split

SERIALISATION_VERSION = 5
# The value in the SDK (FederationCapabilities).
_CAPABILITIES = 23
_SOURCE_TYPE = "sleeper"


class Response(Protocol):
    """A response."""

    def to_json(self) -> dict[str, Any]:
        """Returns the members of the response, `@type` first."""


@dataclass(frozen=True, slots=True)
class PingResponse:
    """The connector's version of the protocol."""

    source: Source

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "PingResponse",
            "catalogName": self.source.catalog,
            "queryId": self.source.query_id,
            "sourceType": _SOURCE_TYPE,
            "capabilities": _CAPABILITIES,
            "serDeVersion": SERIALISATION_VERSION,
        }


@dataclass(frozen=True, slots=True)
class CapabilitiesResponse:
    """The operations that the connector supports: value sets of columns, and limits."""

    catalog: str
    offered: ClassVar[dict[str, tuple[str, ...]]] = {
        "supports_filter_pushdown": ("sorted_range_set", "nullable_comparison"),
        "supports_limit_pushdown": ("integer_constant",),
    }

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "GetDataSourceCapabilitiesResponse",
            "catalogName": self.catalog,
            "capabilities": {
                name: [{"subType": each, "properties": []} for each in kinds]
                for name, kinds in self.offered.items()
            },
        }


@dataclass(frozen=True, slots=True)
class ListSchemasResponse:
    catalog: str
    schemas: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "ListSchemasResponse",
            "catalogName": self.catalog,
            "schemas": list(self.schemas),
        }


@dataclass(frozen=True, slots=True)
class ListTablesResponse:
    """`next_token` is None on the last page."""

    catalog: str
    tables: Sequence[TableName]
    next_token: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "ListTablesResponse",
            "tables": [table.to_json() for table in self.tables],
            "catalogName": self.catalog,
            "nextToken": self.next_token,
        }


@dataclass(frozen=True, slots=True)
class GetTableResponse:
    """A table's columns, none of which is a partition column."""

    catalog: str
    table: TableName
    schema: pa.Schema

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "GetTableResponse",
            "catalogName": self.catalog,
            "tableName": self.table.to_json(),
            "schema": schema_to_text(self.schema),
            "partitionColumns": [],
        }


@dataclass(frozen=True, slots=True)
class GetTableLayoutResponse:
    """Athena's partitions, one per row of a block. Athena reads nothing if there are none."""

    catalog: str
    table: TableName
    partitions: pa.RecordBatch

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "GetTableLayoutResponse",
            "catalogName": self.catalog,
            "tableName": self.table.to_json(),
            "partitions": block_to_json(self.partitions),
        }


@dataclass(frozen=True, slots=True)
class GetSplitsResponse:
    """`continuation` is None on the last page."""

    catalog: str
    splits: Sequence[Split]
    continuation: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "GetSplitsResponse",
            "catalogName": self.catalog,
            "splits": [split.to_json() for split in self.splits],
            "continuationToken": self.continuation,
        }


@dataclass(frozen=True, slots=True)
class ReadRecordsResponse:
    """A response that contains all rows."""

    catalog: str
    records: pa.RecordBatch

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "ReadRecordsResponse",
            "catalogName": self.catalog,
            "records": block_to_json(self.records),
        }


@dataclass(frozen=True, slots=True)
class RemoteReadRecordsResponse:
    """The places of spilled rows."""

    catalog: str
    schema: pa.Schema
    blocks: Sequence[SpillLocation]
    encryption_key: EncryptionKey | None

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "RemoteReadRecordsResponse",
            "catalogName": self.catalog,
            "schema": schema_to_text(self.schema),
            "remoteBlocks": [block.to_json() for block in self.blocks],
            "encryptionKey": self.encryption_key and self.encryption_key.to_json(),
        }
