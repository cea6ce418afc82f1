"""Query messages (docs/formats.md, "Query messages"): parsed, checked, and written.

Parsing checks a message without its table. `make_query` checks regions and fields against the
table's schema.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.query_tracker import Connection
from sleeper.partitions.json import region_or_none_from_json
from sleeper.processing.model import IteratorCall, Processing
from sleeper.processing.text import iterator_call
from sleeper.query.messages.destination import (
    DestinationKind,
    ResultsDestination,
    StatusDestination,
    connection_to_json,
    remove_connection,
    results_destination_from_json,
    results_destination_to_json,
    status_destination_to_json,
    status_destinations_from_json,
)
from sleeper.query.request import Query, select_columns
from sleeper.schema.model import Schema, is_unicode

QUERY_TYPE = "Query"
CLIENT_QUERY_ID = "clientQueryId"
_REQUESTERS = "askedBy"
_ID_BYTES_MAX = 256
_TEXT_MAX = 64 * 1024
_DEPTH_MAX = 20

RawRegion = Mapping[str, Any]
"""A region in JSON, whose meaning depends on the schema."""
_RESULTS = "resultsPublisherConfig"
_STATUS = "statusReportDestinations"
_WEBSOCKET = DestinationKind.WEBSOCKET.value


@dataclass(frozen=True, slots=True)
class QueryMessage:
    """A query of the table `table_name` or `table_id`.

    `value_fields` is `None` for all; key fields are always returned. `requesters` are the callers
    on whose behalf the message was forwarded: the first by its sender, each next by the one before.
    `client_query_id` is the client's id of the query on its WebSocket connection.
    """

    query_id: str
    regions: tuple[RawRegion, ...]
    table_name: str | None = None
    table_id: str | None = None
    value_fields: tuple[str, ...] | None = None
    iterator: IteratorCall | None = None
    results: ResultsDestination = field(default_factory=ResultsDestination)
    status: tuple[StatusDestination, ...] = ()
    requesters: tuple[str, ...] = ()
    client_query_id: str | None = None

    @property
    def frame_id(self) -> str:
        """The client's id of the query, for frames."""
        return self.client_query_id or self.query_id


def parse_query_message(body: str, default_query_id: str) -> QueryMessage:
    """Parses the body of a message, with a default for a missing id.

    Ignores unknown members. InvalidRequestError names a wrong member.
    """
    raw = parse_json_object(body)
    if raw.get("type") != QUERY_TYPE:
        raise InvalidRequestError(
            f'query message: "type" is {raw.get("type")!r} (expected {QUERY_TYPE!r})'
        )
    return query_message_from_json(raw, default_query_id)


def query_message_from_json(raw: Mapping[str, Any], default_query_id: str) -> QueryMessage:
    """Parses a message from JSON, without its type."""
    name, table_id = (text_member(raw, each) for each in ("tableName", "tableId"))
    if name is None and table_id is None:
        raise InvalidRequestError('query message: "tableName" or "tableId" is missing')
    try:
        return QueryMessage(
            query_id=_query_id(raw, "queryId") or default_query_id,
            regions=regions_member(raw),
            table_name=name,
            table_id=table_id,
            value_fields=_value_fields(raw),
            iterator=iterator_call(
                text_member(raw, "queryTimeIteratorClassName"),
                text_member(raw, "queryTimeIteratorConfig"),
            ),
            results=results_destination_from_json(raw.get("resultsPublisherConfig")),
            status=status_destinations_from_json(raw.get("statusReportDestinations")),
            requesters=_requesters(raw),
            client_query_id=_query_id(raw, CLIENT_QUERY_ID),
        )
    except InvalidRequestError as error:
        raise InvalidRequestError(_in_message(str(error))) from error


def read_query_id(body: str, default_query_id: str) -> str:
    """Returns the query id of a message that may be invalid."""
    try:
        return _query_id(parse_json_object(body), "queryId") or default_query_id
    except InvalidRequestError:
        return default_query_id


def rewrite_query_body(body: str, message_id: str, sender: str) -> str:
    """Returns the body of a message that `sender` sends again, as a message with another id.

    The query keeps its id and its original requesters, whose restrictions still apply. A body
    that is not a query is returned unchanged.
    """
    try:
        raw = parse_json_object(body)
        before = list(_requesters(raw))
    except InvalidRequestError:
        return body
    changes = {"queryId": raw.get("queryId") or message_id, _REQUESTERS: [sender, *before]}
    return json.dumps({**raw, **changes}, separators=(",", ":"))


def query_fingerprint(body: str) -> str:
    """Returns a hash that identifies a query among others of the same id, also after forwarding."""
    try:
        raw = parse_json_object(body)
    except InvalidRequestError:
        return hashlib.sha256(body.encode(errors="surrogatepass")).hexdigest()
    content = {name: raw[name] for name in raw if name not in {"queryId", _REQUESTERS}}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def query_message_to_json(message: QueryMessage) -> dict[str, Any]:
    """Returns the JSON that `query_message_from_json` parses."""
    iterator = message.iterator
    raw: dict[str, Any] = {
        "type": QUERY_TYPE,
        "queryId": message.query_id,
        CLIENT_QUERY_ID: message.client_query_id,
        "tableName": message.table_name,
        "tableId": message.table_id,
        "regions": [dict(region) for region in message.regions],
        "requestedValueFields": None if message.value_fields is None else [*message.value_fields],
        "queryTimeIteratorClassName": None if iterator is None else iterator.name,
        "queryTimeIteratorConfig": None if iterator is None else iterator.config,
        "resultsPublisherConfig": results_destination_to_json(message.results),
        "statusReportDestinations": [status_destination_to_json(s) for s in message.status],
    }
    return {name: value for name, value in raw.items() if value is not None}


def make_query(message: QueryMessage, schema: Schema) -> Query:
    """Returns the query of the newest version of a table with this schema.

    Omits regions with an empty range. Raises `InvalidRequestError` for a region or field that does
    not fit the schema.
    """
    regions = []
    for place, raw in enumerate(message.regions):
        try:
            region = region_or_none_from_json(schema, raw)
        except InvalidRequestError as error:
            raise InvalidRequestError(f'query message: "regions[{place}]": {error}') from error
        if region is not None:
            regions.append(region)
    columns = None
    if message.value_fields is not None:
        try:
            columns = select_columns(schema, message.value_fields)
        except InvalidRequestError as error:
            raise InvalidRequestError(f'query message: "requestedValueFields": {error}') from error
    return Query(tuple(regions), columns, processing=Processing(iterator=message.iterator))


def parse_json_object(body: str, name: str = "query message") -> dict[str, Any]:
    """Parses the body of a message. InvalidRequestError if it is not a JSON object."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{name} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequestError(f"{name} must be a JSON object")
    if _depth_exceeds(raw, _DEPTH_MAX):
        # Python can parse deeper values than it can write.
        raise InvalidRequestError(f"{name}: nested deeper than {_DEPTH_MAX} levels")
    return raw


def _depth_exceeds(raw: Any, levels: int) -> bool:
    nested = [raw]
    for _ in range(levels):
        values = (each.values() if isinstance(each, dict) else each for each in nested)
        nested = [v for each in values for v in each if isinstance(v, dict | list)]
    return bool(nested)


def text_member(raw: Mapping[str, Any], member: str) -> str | None:
    """Returns a member that is a string; `None` if it is missing or empty."""
    value = raw.get(member)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not is_unicode(value):
        raise InvalidRequestError(f'query message: "{member}" must be text, not {value!r:.200}')
    if len(value) > _TEXT_MAX:
        raise InvalidRequestError(
            f'query message: "{member}" has {len(value)} characters (maximum {_TEXT_MAX})'
        )
    return value


def is_text_list(raw: Any) -> bool:
    """Returns whether the value is a list of valid Unicode strings."""
    return isinstance(raw, list) and all(isinstance(t, str) and is_unicode(t) for t in raw)


def regions_member(raw: Mapping[str, Any]) -> tuple[RawRegion, ...]:
    """Returns the regions in JSON."""
    regions = raw.get("regions")
    if not isinstance(regions, list) or not all(isinstance(each, dict) for each in regions):
        raise InvalidRequestError('query message: "regions" must be a list of regions')
    return tuple(regions)


def _query_id(raw: Mapping[str, Any], member: str) -> str | None:
    value = text_member(raw, member)
    if value is None:
        return None
    if len(value.encode()) > _ID_BYTES_MAX:
        raise InvalidRequestError(f'query message: "{member}" is longer than {_ID_BYTES_MAX} bytes')
    return value


def _value_fields(raw: Mapping[str, Any]) -> tuple[str, ...] | None:
    fields = raw.get("requestedValueFields")
    if fields is None:
        return None
    if not is_text_list(fields):
        raise InvalidRequestError('"requestedValueFields" must be a list of names')
    return tuple(fields)


def _requesters(raw: Mapping[str, Any]) -> tuple[str, ...]:
    callers = raw.get(_REQUESTERS)
    if callers is None:
        return ()
    if not is_text_list(callers):
        raise InvalidRequestError(f'"{_REQUESTERS}" must be a list of callers')
    return tuple(callers)


def _in_message(reason: str) -> str:
    return reason if reason.startswith("query message") else f"query message: {reason}"


def replace_connections(body: str, connection: Connection) -> dict[str, Any]:
    """Returns the message with this connection instead of the connections that it names.

    It is the destination of results that have no other. Other members are not checked. Raises
    `InvalidRequestError` if the body is not a JSON object.
    """
    raw = parse_json_object(body)
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
