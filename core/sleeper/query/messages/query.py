"""Query messages (docs/formats.md, "Query messages"): parsed, checked, and written.

Parsing checks a message without its table. `make_query` checks regions and fields against the
table's schema.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from sleeper.clock import Clock, system_clock
from sleeper.errors import InvalidRequestError
from sleeper.jobs.ingest_job import REQUESTERS, add_requester
from sleeper.jobs.query_tracker import Connection
from sleeper.json_codec import (
    Conversion,
    JsonCodec,
    Member,
    MismatchError,
    camel_case,
)
from sleeper.json_members import check_selective_members
from sleeper.lenient_json import (
    OptionalStrictText,
    StrictText,
    parse_message_object,
    to_strict_text,
    to_text,
)
from sleeper.partitions.json import region_or_none_from_json
from sleeper.processing.model import IteratorCall, Processing
from sleeper.processing.text import AggregationsText, FiltersText, iterator_members
from sleeper.query.messages.destination import (
    RESULTS_DESTINATION,
    DestinationKind,
    ResultsDestination,
    StatusDestination,
    connection_to_json,
    remove_connection,
)
from sleeper.query.request import Query, select_columns
from sleeper.schema.model import Schema
from sleeper.statestore.version import Version, parse_version, parse_version_text

QUERY_TYPE = "Query"
_WHAT = "query message"
CLIENT_QUERY_ID = "clientQueryId"
_ID_BYTES_MAX = 256
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_AS_OF = (
    "a transaction number of 1 or more, a time such as 2026-01-31T12:00:00Z, or an age such as 2h"
)

_SELECTIVE = (
    "regions",
    "asOf",
    "requestedValueFields",
    "queryTimeFilters",
    "queryTimeAggregations",
    "queryTimeIteratorClassName",
    "queryTimeIteratorConfig",
)
RawRegion = Mapping[str, Any]
"""A region in JSON, whose meaning depends on the schema."""
_RESULTS = "resultsPublisherConfig"
_STATUS = "statusReportDestinations"
_WEBSOCKET = DestinationKind.WEBSOCKET.value


def _to_id(raw: Any) -> str:
    """Returns an id that can be a part of an object's path, also of a number."""
    is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
    text = to_strict_text(to_text(raw) if is_number else raw)
    if len(text.encode()) > _ID_BYTES_MAX:
        raise MismatchError(raw, f"at most {_ID_BYTES_MAX} bytes")
    first, *others = text.split("/")
    if _CONTROL.search(text) or first == ".." or not {"", ".", ".."}.isdisjoint(others):
        expected = "no control characters, and no '..' or empty parts between slashes"
        raise MismatchError(raw, expected)
    return text


def _to_optional_id(raw: Any) -> str | None:
    return None if raw in (None, "") else _to_id(raw)


def _to_as_of(raw: Any) -> int | str | None:
    if raw in (None, ""):
        return None
    value = int(raw) if isinstance(raw, float) and raw.is_integer() else raw
    try:
        _version(value, system_clock)
    except InvalidRequestError:
        raise MismatchError(raw, _AS_OF) from None
    result: int | str = value
    return result


def _version(as_of: object, clock: Clock) -> Version:
    return parse_version_text(as_of, clock) if isinstance(as_of, str) else parse_version(as_of)


@dataclass(frozen=True, slots=True)
class QueryMessage:
    """A query of the table `table_name` or `table_id`.

    `as_of` is the version to read: a transaction number, a time or an age; `None` for the newest.
    `value_fields` is `None` for all; key fields are always returned. `filters`, `aggregations` and
    `iterator` are applied after those of the table. `requesters` are the callers on whose behalf
    the message was forwarded: the first by its sender, each next by the one before.
    `client_query_id` is the client's id of the query on its WebSocket connection.
    """

    query_id: Annotated[str, Conversion(_to_id)]
    client_query_id: Annotated[str | None, Member(optional=True), Conversion(_to_optional_id)] = (
        field(default=None, kw_only=True)
    )
    table_name: OptionalStrictText = field(default=None, kw_only=True)
    table_id: OptionalStrictText = field(default=None, kw_only=True)
    as_of: Annotated[int | str | None, Member(optional=True), Conversion(_to_as_of)] = field(
        default=None, kw_only=True
    )
    regions: tuple[RawRegion, ...]
    value_fields: Annotated[
        tuple[StrictText, ...] | None, Member("requestedValueFields", optional=True)
    ] = None
    iterator: Annotated[
        IteratorCall | None,
        Member(flat=True),
        iterator_members("queryTimeIteratorClassName", "queryTimeIteratorConfig"),
    ] = None
    filters: Annotated[FiltersText, Member("queryTimeFilters", optional=True)] = field(
        default=(), kw_only=True
    )
    aggregations: Annotated[AggregationsText, Member("queryTimeAggregations", optional=True)] = (
        field(default=(), kw_only=True)
    )
    results: Annotated[ResultsDestination, Member(_RESULTS, optional=True), RESULTS_DESTINATION] = (
        field(default_factory=ResultsDestination)
    )
    status: Annotated[tuple[StatusDestination, ...], Member(_STATUS, optional=True)] = field(
        default_factory=tuple
    )
    requesters: Annotated[tuple[StrictText, ...], Member(REQUESTERS, optional=True)] = ()

    def version(self, clock: Clock = system_clock) -> Version | None:
        """The version to read, `None` for the newest. An age is relative to the clock."""
        return None if self.as_of is None else _version(self.as_of, clock)

    @property
    def frame_id(self) -> str:
        """The client's id of the query, for frames."""
        return self.client_query_id or self.query_id


def parse_query_message(body: str, default_query_id: str) -> QueryMessage:
    """Parses the body of a message, with a default for a missing id.

    InvalidRequestError names a wrong member, or an unknown one that would change the rows; other
    unknown members are ignored.
    """
    raw = parse_message_object(body, _WHAT)
    if raw.get("type") != QUERY_TYPE:
        raise InvalidRequestError(
            f'query message: "type" is {raw.get("type")!r} (expected {QUERY_TYPE!r})'
        )
    return query_message_from_json(raw, default_query_id)


QUERY_CODEC = JsonCodec(QueryMessage, camel_case)


def query_message_from_json(raw: Mapping[str, Any], default_query_id: str) -> QueryMessage:
    """Parses a message from JSON, without its type."""
    if raw.get("queryId") in (None, ""):
        raw = {**raw, "queryId": default_query_id}
    check_selective_members(raw, _SELECTIVE, _WHAT)
    message = QUERY_CODEC.from_json(raw, _WHAT)
    if message.table_name is None and message.table_id is None:
        raise InvalidRequestError(f'{_WHAT}: "tableName" or "tableId" is missing')
    return message


def read_query_id(body: str, default_query_id: str) -> str:
    """Returns the query id of a message that may be invalid."""
    try:
        return _to_optional_id(parse_message_object(body, _WHAT).get("queryId")) or default_query_id
    except (InvalidRequestError, MismatchError):
        return default_query_id


def rewrite_query_body(body: str, message_id: str, sender: str) -> str:
    """Returns the body of a message that `sender` sends again, as a message with another id.

    The query keeps its id and its original requesters, whose restrictions still apply. A body
    that is not a query is returned unchanged.
    """
    return add_requester(body, "queryId", message_id, sender)


def query_fingerprint(body: str) -> str:
    """Returns a hash that identifies a query among others of the same id, also after forwarding."""
    try:
        raw = parse_message_object(body, _WHAT)
    except InvalidRequestError:
        return hashlib.sha256(body.encode(errors="surrogatepass")).hexdigest()
    content = {name: raw[name] for name in raw if name not in {"queryId", REQUESTERS}}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def make_query(message: QueryMessage, schema: Schema) -> Query:
    """Returns the query of a table with this schema at the version of the message.

    Omits regions with an empty range. Raises `InvalidRequestError` for a region or field that does
    not fit the schema.
    """
    regions = []
    for index, raw in enumerate(message.regions):
        try:
            region = region_or_none_from_json(schema, raw)
        except InvalidRequestError as error:
            raise InvalidRequestError(f'query message: "regions[{index}]": {error}') from error
        if region is not None:
            regions.append(region)
    columns = None
    if message.value_fields is not None:
        try:
            columns = select_columns(schema, message.value_fields)
        except InvalidRequestError as error:
            raise InvalidRequestError(f'query message: "requestedValueFields": {error}') from error
    processing = Processing(message.filters, message.aggregations, message.iterator)
    return Query(tuple(regions), columns, version=message.version(), processing=processing)


def replace_connections(body: str, connection: Connection) -> dict[str, Any]:
    """Returns the message with this connection instead of the connections that it names.

    It is the destination of results that have no other. Other members are not checked. Raises
    `InvalidRequestError` if the body is not a JSON object.
    """
    raw = parse_message_object(body, _WHAT)
    destination = connection_to_json(connection)
    results = raw.get(_RESULTS) or {}
    if isinstance(results, dict) and results.get("destination") in (None, _WEBSOCKET):
        raw[_RESULTS] = {**remove_connection(results), **destination}
    status = raw.get(_STATUS) or []
    if isinstance(status, list):
        raw[_STATUS] = [*(each for each in status if not _is_connection(each)), destination]
    return raw


def _is_connection(raw: object) -> bool:
    return isinstance(raw, dict) and raw.get("destination") == _WEBSOCKET
