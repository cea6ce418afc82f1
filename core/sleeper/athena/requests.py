"""The requests of the protocol that a connector answers.

A request is a JSON object with an `@type`. Unknown members are ignored, so one parser reads
serialisation versions 2 to 6.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa

from sleeper.athena.constraints import Constraints, constraints_from_json
from sleeper.athena.encoding import member, number_member, optional_text, schema_from_text
from sleeper.athena.split import Split, split_from_json
from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Member


@dataclass(frozen=True, slots=True)
class TableName:
    """Athena's name of a table, in lower case."""

    schema_name: str
    table_name: str


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a request: a catalog of Athena and a query."""

    catalog: Annotated[str, Member("catalogName")]
    query_id: str


@dataclass(frozen=True, slots=True)
class PingRequest:
    source: Source


@dataclass(frozen=True, slots=True)
class CapabilitiesRequest:
    source: Source


@dataclass(frozen=True, slots=True)
class ListSchemasRequest:
    source: Source


@dataclass(frozen=True, slots=True)
class ListTablesRequest:
    """`schema_name` None is all schemas, and `page_size` None all tables.

    `next_token` is the token of the previous page.
    """

    source: Source
    schema_name: str | None
    next_token: str | None
    page_size: int | None


@dataclass(frozen=True, slots=True)
class GetTableRequest:
    source: Source
    table: TableName


@dataclass(frozen=True, slots=True)
class GetTableLayoutRequest:
    source: Source
    table: TableName
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class GetSplitsRequest:
    """`continuation` is the token of the previous page of splits."""

    source: Source
    table: TableName
    constraints: Constraints
    continuation: str | None


@dataclass(frozen=True, slots=True)
class ReadRecordsRequest:
    """Requests the split's rows that meet the constraints, in the columns and types of `schema`.

    A spilled block has at most `block_bytes_max`, a block in the response `inline_bytes_max`.
    """

    source: Source
    table: TableName
    schema: pa.Schema
    split: Split
    constraints: Constraints
    block_bytes_max: int
    inline_bytes_max: int


Request = (
    PingRequest
    | CapabilitiesRequest
    | ListSchemasRequest
    | ListTablesRequest
    | GetTableRequest
    | GetTableLayoutRequest
    | GetSplitsRequest
    | ReadRecordsRequest
)


def request_from_json(raw: Any) -> Request:
    """Parses a request. InvalidRequestError if its kind is unknown or a member is invalid."""
    kind = member(raw, "@type", str, "the request")
    if kind not in _PARSERS:
        raise InvalidRequestError(f"the request is of an unknown kind: {kind}")
    source = Source(member(raw, "catalogName", str, kind), member(raw, "queryId", str, kind))
    return _PARSERS[kind](source, raw)


def _list_tables(source: Source, raw: Any) -> Request:
    what = "ListTablesRequest"
    size = number_member(raw, "pageSize", what) if raw.get("pageSize") is not None else 0
    return ListTablesRequest(
        source,
        optional_text(raw, "schemaName", what),
        optional_text(raw, "nextToken", what),
        size if size > 0 else None,
    )


def _get_table(source: Source, raw: Any) -> Request:
    if raw.get("queryPassthroughArguments"):
        raise InvalidRequestError("the connector supports no pass-through queries")
    return GetTableRequest(source, _table_name(raw, "GetTableRequest"))


def _get_table_layout(source: Source, raw: Any) -> Request:
    return GetTableLayoutRequest(
        source, _table_name(raw, "GetTableLayoutRequest"), _constraints(raw)
    )


def _get_splits(source: Source, raw: Any) -> Request:
    what = "GetSplitsRequest"
    continuation = optional_text(raw, "continuationToken", what)
    return GetSplitsRequest(source, _table_name(raw, what), _constraints(raw), continuation)


def _read_records(source: Source, raw: Any) -> Request:
    what = "ReadRecordsRequest"
    return ReadRecordsRequest(
        source,
        _table_name(raw, what),
        schema_from_text(raw.get("schema"), f"the schema of {what}"),
        split_from_json(member(raw, "split", dict, what)),
        _constraints(raw),
        number_member(raw, "maxBlockSize", what),
        number_member(raw, "maxInlineBlockSize", what),
    )


def _table_name(raw: Any, what: str) -> TableName:
    name = member(raw, "tableName", dict, what)
    return TableName(member(name, "schemaName", str, what), member(name, "tableName", str, what))


def _constraints(raw: Any) -> Constraints:
    return constraints_from_json(raw.get("constraints"))


_PARSERS: dict[str, Callable[[Source, Any], Request]] = {
    "PingRequest": lambda source, _: PingRequest(source),
    "GetDataSourceCapabilitiesRequest": lambda source, _: CapabilitiesRequest(source),
    "ListSchemasRequest": lambda source, _: ListSchemasRequest(source),
    "ListTablesRequest": _list_tables,
    "GetTableRequest": _get_table,
    "GetTableLayoutRequest": _get_table_layout,
    "GetSplitsRequest": _get_splits,
    "ReadRecordsRequest": _read_records,
}
