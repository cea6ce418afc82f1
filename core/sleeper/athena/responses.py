"""The answers of the protocol.

The SDK reads an answer's members in one fixed order, so they are written in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from sleeper.athena.blocks import block_to_json, schema_to_text
from sleeper.athena.requests import Asked, TableName
from sleeper.athena.split import EncryptionKey, SpillLocation, Split

SERIALISATION_VERSION = 5
# What the SDK says of itself (FederationCapabilities).
_CAPABILITIES = 23
_SOURCE_TYPE = "sleeper"


class Response(Protocol):
    """Any answer."""

    def to_json(self) -> dict[str, Any]:
        """The answer's members, `@type` first."""


@dataclass(frozen=True, slots=True)
class PingResponse:
    """That the connector is there, and which version of the protocol it speaks."""

    asked: Asked

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "PingResponse",
            "catalogName": self.asked.catalog,
            "queryId": self.asked.query_id,
            "sourceType": _SOURCE_TYPE,
            "capabilities": _CAPABILITIES,
            "serDeVersion": SERIALISATION_VERSION,
        }


@dataclass(frozen=True, slots=True)
class CapabilitiesResponse:
    """What Athena may leave to the connector: value sets of columns, and limits."""

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
    """`next_token` None: there are no more."""

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
    """A table's columns. There are no partition columns."""

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
    """What Athena calls partitions: rows of a block. Without one nothing is read."""

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
    """`continuation` None: there are no more."""

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
    """All rows, in the answer."""

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
    """Where the rows are."""

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
