"""Answers the requests of Athena's: those for metadata, and those for rows."""

from typing import Any

import pyarrow as pa

from sleeper.athena.connector import Connector
from sleeper.athena.names import (
    athena_schema,
    check_schema_name,
    find_named,
    schema_names,
    table_names,
)
from sleeper.athena.records import read_records
from sleeper.athena.requests import (
    CapabilitiesRequest,
    GetSplitsRequest,
    GetTableLayoutRequest,
    GetTableRequest,
    ListSchemasRequest,
    ListTablesRequest,
    PingRequest,
    ReadRecordsRequest,
    Request,
    TableName,
    request_from_json,
)
from sleeper.athena.responses import (
    CapabilitiesResponse,
    GetSplitsResponse,
    GetTableLayoutResponse,
    GetTableResponse,
    ListSchemasResponse,
    ListTablesResponse,
    PingResponse,
    Response,
)
from sleeper.athena.splits import has_rows, splits_page
from sleeper.processing.restriction import visible_schema

# The one column of a layout without partition columns, as in the SDK.
_PARTITIONS = pa.schema([pa.field("partitionId", pa.int32())])


def answer(raw: Any, connector: Connector) -> dict[str, Any]:
    """The answer to any request, as JSON objects. Raises errors of the product only."""
    return _answer(request_from_json(raw), connector).to_json()


def _answer(request: Request, connector: Connector) -> Response:
    match request:
        case PingRequest():
            return PingResponse(request.asked)
        case CapabilitiesRequest():
            return CapabilitiesResponse(request.asked.catalog)
        case ListSchemasRequest():
            return ListSchemasResponse(request.asked.catalog, schema_names(connector))
        case ListTablesRequest():
            return _tables(request, connector)
        case GetTableRequest():
            return _table(request, connector)
        case GetTableLayoutRequest():
            count = int(has_rows(request, connector))
            rows = pa.RecordBatch.from_pylist([{"partitionId": 1}] * count, _PARTITIONS)
            return GetTableLayoutResponse(request.asked.catalog, request.table, rows)
        case GetSplitsRequest():
            return GetSplitsResponse(request.asked.catalog, *splits_page(request, connector))
        case ReadRecordsRequest():
            return read_records(request, connector)


def _tables(request: ListTablesRequest, connector: Connector) -> ListTablesResponse:
    schema_name = check_schema_name(request.schema_name, connector)
    names = table_names(connector.tables.list())
    if request.next_token is not None:
        names = [name for name in names if name >= request.next_token]
    page, more = names[: request.page_size], names[len(names[: request.page_size]) :]
    return ListTablesResponse(
        request.asked.catalog,
        [TableName(schema_name, name) for name in page],
        more[0] if more else None,
    )


def _table(request: GetTableRequest, connector: Connector) -> GetTableResponse:
    table = connector.open_table(find_named(connector, request.table))
    with table.store.reading() as state:
        schema = athena_schema(visible_schema(table.restriction, state.schema))
    return GetTableResponse(request.asked.catalog, request.table, schema)
