"""The responses of the protocol.

The SDK reads the members of a response in a fixed order, that of the fields.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa

from sleeper.athena.encoding import block_to_json, schema_to_text
from sleeper.athena.requests import Source, TableName
from sleeper.athena.split import EncryptionKey, SpillLocation, Split
from sleeper.json_codec import Conversion, JsonCodec, Member, camel_case

SERIALISATION_VERSION = 6
# The value in the SDK (FederationCapabilities).
_CAPABILITIES = 24
_SOURCE_TYPE = "sleeper"
# The kinds of value set, and of limit, that the connector evaluates.
_SUPPORTED = {
    "supports_filter_pushdown": ("sorted_range_set", "nullable_comparison"),
    "supports_limit_pushdown": ("integer_constant",),
}

Catalog = Annotated[str, Member("catalogName")]
Table = Annotated[TableName, Member("tableName")]


def _write(encode: Callable[[Any], Any]) -> Conversion:
    """Returns a conversion for writing: the connector reads no response."""
    return Conversion(lambda raw: raw, encode)


Block = Annotated[pa.RecordBatch, _write(block_to_json)]
SchemaText = Annotated[pa.Schema, _write(schema_to_text)]


@dataclass(frozen=True, slots=True)
class Response:
    """A response, of the kind that the name of the class is."""

    def to_json(self) -> dict[str, Any]:
        """Returns the members of the response, `@type` first."""
        # mypy takes a class with a `__hash__` of its instances for unhashable.
        cls: Any = type(self)
        return {"@type": cls.__name__, **_codec(cls).to_json(self)}


@functools.cache
def _codec(cls: Any) -> JsonCodec[Any]:
    return JsonCodec(cls, camel_case)


@dataclass(frozen=True, slots=True)
class PingResponse(Response):
    """The connector's version of the protocol."""

    source: Annotated[Source, Member(flat=True)]
    source_type: str = _SOURCE_TYPE
    capabilities: int = _CAPABILITIES
    ser_de_version: int = SERIALISATION_VERSION


def _supported_kinds() -> dict[str, Any]:
    return {
        name: [{"subType": each, "properties": []} for each in kinds]
        for name, kinds in _SUPPORTED.items()
    }


@dataclass(frozen=True, slots=True)
class GetDataSourceCapabilitiesResponse(Response):
    """The operations that the connector supports: value sets of columns, and limits."""

    catalog: Catalog
    capabilities: Any = field(default_factory=_supported_kinds)


@dataclass(frozen=True, slots=True)
class ListSchemasResponse(Response):
    catalog: Catalog
    schemas: Sequence[str]


@dataclass(frozen=True, slots=True)
class ListTablesResponse(Response):
    """`next_token` is None on the last page."""

    tables: Sequence[TableName]
    catalog: Catalog
    next_token: str | None


@dataclass(frozen=True, slots=True)
class GetTableResponse(Response):
    """A table's columns, none of which is a partition column."""

    catalog: Catalog
    table: Table
    schema: SchemaText
    partition_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GetTableLayoutResponse(Response):
    """Athena's partitions, one per row of a block. Athena reads nothing if there are none."""

    catalog: Catalog
    table: Table
    partitions: Block


@dataclass(frozen=True, slots=True)
class GetSplitsResponse(Response):
    """`continuation` is None on the last page."""

    catalog: Catalog
    splits: Sequence[Annotated[Split, _write(Split.to_json)]]
    continuation: Annotated[str | None, Member("continuationToken")]


@dataclass(frozen=True, slots=True)
class ReadRecordsResponse(Response):
    """A response that contains all rows."""

    catalog: Catalog
    records: Block


@dataclass(frozen=True, slots=True)
class RemoteReadRecordsResponse(Response):
    """The places of spilled rows."""

    catalog: Catalog
    schema: SchemaText
    blocks: Annotated[
        Sequence[Annotated[SpillLocation, _write(SpillLocation.to_json)]],
        Member("remoteBlocks"),
    ]
    encryption_key: Annotated[EncryptionKey, _write(EncryptionKey.to_json)] | None
