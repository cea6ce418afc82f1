"""The connector of an instance for Athena."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from sleeper.athena.connector import Connector, ConnectorSettings, SpillBucket, athena_schema
from sleeper.athena.properties import (
    ATHENA_HOLD_SECONDS,
    ATHENA_SHOWS_RAW,
    ATHENA_SPILL_BUCKET,
    ATHENA_SPLIT_BYTES,
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
    GetDataSourceCapabilitiesResponse,
    GetSplitsResponse,
    GetTableLayoutResponse,
    GetTableResponse,
    ListSchemasResponse,
    ListTablesResponse,
    PingResponse,
    Response,
)
from sleeper.athena.splits import has_rows, splits_page
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.processing.restriction import parse_callers, visible_schema
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.engine import QueryTable
from sleeper.query.service import make_query_table
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot

# The one column of a layout without partition columns, as in the SDK.
_PARTITIONS = pa.schema([pa.field("partitionId", pa.int32())])


def answer(raw: Any, connector: Connector) -> dict[str, Any]:
    """Answers a request, as JSON objects. Raises only errors of `sleeper.errors`."""
    return _answer(request_from_json(raw), connector).to_json()


def _answer(request: Request, connector: Connector) -> Response:
    match request:
        case PingRequest():
            return PingResponse(request.source)
        case CapabilitiesRequest():
            return GetDataSourceCapabilitiesResponse(request.source.catalog)
        case ListSchemasRequest():
            return ListSchemasResponse(request.source.catalog, connector.schema_names)
        case ListTablesRequest():
            return _tables(request, connector)
        case GetTableRequest():
            return _table(request, connector)
        case GetTableLayoutRequest():
            count = int(has_rows(request, connector))
            rows = pa.RecordBatch.from_pylist([{"partitionId": 1}] * count, _PARTITIONS)
            return GetTableLayoutResponse(request.source.catalog, request.table, rows)
        case GetSplitsRequest():
            return GetSplitsResponse(request.source.catalog, *splits_page(request, connector))
        case ReadRecordsRequest():
            return read_records(request, connector)


def _tables(request: ListTablesRequest, connector: Connector) -> ListTablesResponse:
    named = request.schema_name
    schemas = connector.schema_names if named is None else [connector.check_schema_name(named)]
    names = [TableName(schema, name) for schema in schemas for name in connector.table_names()]
    if request.next_token is not None:
        names = [name for name in names if _page_token(name) >= request.next_token]
    page = names[: request.page_size]
    token = _page_token(names[len(page)]) if len(page) < len(names) else None
    return ListTablesResponse(page, request.source.catalog, token)


def _page_token(first: TableName) -> str:
    return f"{first.schema_name}/{first.table_name}"


def _table(request: GetTableRequest, connector: Connector) -> GetTableResponse:
    table = connector.open_table(connector.find_table(request.table))
    with table.store.reading() as state:
        schema = athena_schema(visible_schema(table.restriction, state.schema))
    return GetTableResponse(request.source.catalog, request.table, schema)


ATHENA_CALLER = "athena"
"""The caller in a table's property of callers that represents all users of Athena."""


def athena_connector(instance: Instance) -> Connector:
    """Returns the connector. InvalidRequestError if the instance has no spill bucket."""
    properties = instance.properties()
    return Connector(
        instance.tables.index,
        lambda ref: _athena_table(OpenTable(instance, ref)),
        instance.queries.engine,
        SpillBucket(*_spill_bucket(instance)),
        ConnectorSettings(
            properties.get(ATHENA_HOLD_SECONDS),
            properties.get(ATHENA_SPLIT_BYTES),
            properties.get(SPLITTING_FILES_MAX),
            shows_raw=properties.get(ATHENA_SHOWS_RAW),
        ),
    )


def answer_athena(instance: Instance, request: Any) -> dict[str, Any]:
    """Answers a request of Athena's protocol, as JSON objects.

    Reads the properties each time, so that a warm function applies changes.
    """
    return answer(request, athena_connector(instance))


def _athena_table(table: OpenTable) -> QueryTable:
    """Returns the table as all users of Athena see it.

    Users invoke the functions themselves, so a request's identity cannot be trusted. A table
    for named callers must therefore name Athena: its default callers do not include Athena.
    """
    callers = table.properties().get(QUERY_CALLERS)
    if callers and ATHENA_CALLER not in parse_callers(callers):
        raise InvalidRequestError(
            f"table {table.ref.name!r} restricts its callers, and {QUERY_CALLERS.name} does "
            f"not list {ATHENA_CALLER!r}"
        )
    return make_query_table(table, ATHENA_CALLER)


def _spill_bucket(instance: Instance) -> tuple[str, DataRoot]:
    name = instance.properties().get(ATHENA_SPILL_BUCKET)
    if name is None:
        raise InvalidRequestError(
            f"property {ATHENA_SPILL_BUCKET.name} is not set: the instance was deployed "
            "without the stack for Athena"
        )
    own = next(iter(instance.storage.root.buckets), Bucket(""))
    return name, DataRoot(replace(own, name=name, prefix=""))
