"""The connector of an instance for Athena."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from sleeper.athena.connector import Connector, ConnectorSettings, SpillBucket
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
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.processing.restriction import parse_callers, visible_schema
from sleeper.properties.deployed import ATHENA_SPILL_BUCKET
from sleeper.properties.engine import ATHENA_HOLD_SECONDS, ATHENA_SHOWS_RAW, ATHENA_SPLIT_BYTES
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.engine import QueryTable
from sleeper.query.service import query_table
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot

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


ATHENA_CALLER = "athena"
"""What a table's property of callers knows those by who ask through Athena."""


def athena_connector(instance: Instance) -> Connector:
    """InvalidRequestError if the instance was deployed without a bucket to spill to."""
    properties = instance.properties()
    return Connector(
        instance.tables.index,
        lambda ref: _as_athena_sees(OpenTable(instance, ref)),
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
    """The answer to a request of Athena's protocol, as JSON objects.

    The properties are read each time, so that a change reaches a function that is warm.
    """
    return answer(request, athena_connector(instance))


def _as_athena_sees(table: OpenTable) -> QueryTable:
    """The table as Athena's readers see it, whoever they are.

    Nothing that a request says of them can be relied on, because they invoke the functions
    themselves. So they are not "everybody else" either: some may be callers that are named.
    """
    callers = table.properties().get(QUERY_CALLERS)
    if callers and ATHENA_CALLER not in parse_callers(callers):
        raise InvalidRequestError(
            f"table {table.ref.name!r} is not open to all callers, and {QUERY_CALLERS.name} says "
            f"nothing of {ATHENA_CALLER!r}"
        )
    return query_table(table, ATHENA_CALLER)


def _spill_bucket(instance: Instance) -> tuple[str, DataRoot]:
    name = instance.properties().get(ATHENA_SPILL_BUCKET)
    if name is None:
        raise InvalidRequestError(
            f"property {ATHENA_SPILL_BUCKET.name} is not set: the instance was deployed "
            "without the stack for Athena"
        )
    own = next(iter(instance.storage.root.buckets), Bucket(""))
    return name, DataRoot(replace(own, name=name, prefix=""))
