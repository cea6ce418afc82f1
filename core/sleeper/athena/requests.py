"""The requests of the protocol that a connector answers.

Each is a JSON object whose `@type` says which. Members that are not known are passed over,
so requests of serialisation versions 2 to 5 read alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sleeper.athena.blocks import schema_from_text
from sleeper.athena.constraints import Constraints, constraints_from_json
from sleeper.athena.members import member, number_member, optional_text
from sleeper.athena.split import Split, split_from_json
from sleeper.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as Athena names it: in lower case."""

    schema_name: str
    table_name: str

    def to_json(self) -> dict[str, str]:
        return {"schemaName": self.schema_name, "tableName": self.table_name}


@dataclass(frozen=True, slots=True)
class Asked:
    """What every request says: which catalog of Athena asks, and for which query."""

    catalog: str
    query_id: str


@dataclass(frozen=True, slots=True)
class PingRequest:
    asked: Asked


@dataclass(frozen=True, slots=True)
class CapabilitiesRequest:
    asked: Asked


@dataclass(frozen=True, slots=True)
class ListSchemasRequest:
    asked: Asked


@dataclass(frozen=True, slots=True)
class ListTablesRequest:
    """`page_size` None is all tables; `next_token` is what the page before ended with."""

    asked: Asked
    schema_name: str
    next_token: str | None
    page_size: int | None


@dataclass(frozen=True, slots=True)
class GetTableRequest:
    asked: Asked
    table: TableName


@dataclass(frozen=True, slots=True)
class GetTableLayoutRequest:
    asked: Asked
    table: TableName
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class GetSplitsRequest:
    """`continuation` is what the page of splits before ended with."""

    asked: Asked
    table: TableName
    constraints: Constraints
    continuation: str | None


@dataclass(frozen=True, slots=True)
class ReadRecordsRequest:
    """The split's rows that meet the constraints, in the columns and types of `schema`.

    A block has at most `block_bytes_max`, one that is part of the answer at most
    `inline_bytes_max`.
    """

    asked: Asked
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
    """InvalidRequestError if it is none, or one that is not answered, or lacks something."""
    kind = member(raw, "@type", str, "a request of Athena's")
    if kind not in _READERS:
        raise InvalidRequestError(f"a request of Athena's is of a kind that is not known: {kind}")
    asked = Asked(member(raw, "catalogName", str, kind), member(raw, "queryId", str, kind))
    return _READERS[kind](asked, raw)


def _list_tables(asked: Asked, raw: Any) -> Request:
    what = "ListTablesRequest"
    size = number_member(raw, "pageSize", what) if raw.get("pageSize") is not None else 0
    return ListTablesRequest(
        asked,
        member(raw, "schemaName", str, what),
        optional_text(raw, "nextToken", what),
        size if size > 0 else None,
    )


def _get_table(asked: Asked, raw: Any) -> Request:
    if raw.get("queryPassthroughArguments"):
        raise InvalidRequestError("the connector takes no pass-through queries")
    return GetTableRequest(asked, _table_name(raw, "GetTableRequest"))


def _get_table_layout(asked: Asked, raw: Any) -> Request:
    return GetTableLayoutRequest(asked, _table_name(raw, "GetTableLayoutRequest"), _within(raw))


def _get_splits(asked: Asked, raw: Any) -> Request:
    what = "GetSplitsRequest"
    continuation = optional_text(raw, "continuationToken", what)
    return GetSplitsRequest(asked, _table_name(raw, what), _within(raw), continuation)


def _read_records(asked: Asked, raw: Any) -> Request:
    what = "ReadRecordsRequest"
    return ReadRecordsRequest(
        asked,
        _table_name(raw, what),
        schema_from_text(raw.get("schema"), f"the schema of {what}"),
        split_from_json(member(raw, "split", dict, what)),
        _within(raw),
        number_member(raw, "maxBlockSize", what),
        number_member(raw, "maxInlineBlockSize", what),
    )


def _table_name(raw: Any, what: str) -> TableName:
    found = member(raw, "tableName", dict, what)
    return TableName(member(found, "schemaName", str, what), member(found, "tableName", str, what))


def _within(raw: Any) -> Constraints:
    return constraints_from_json(raw.get("constraints"))


_READERS: dict[str, Callable[[Asked, Any], Request]] = {
    "PingRequest": lambda asked, _: PingRequest(asked),
    "GetDataSourceCapabilitiesRequest": lambda asked, _: CapabilitiesRequest(asked),
    "ListSchemasRequest": lambda asked, _: ListSchemasRequest(asked),
    "ListTablesRequest": _list_tables,
    "GetTableRequest": _get_table,
    "GetTableLayoutRequest": _get_table_layout,
    "GetSplitsRequest": _get_splits,
    "ReadRecordsRequest": _read_records,
}
