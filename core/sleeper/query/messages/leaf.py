"""Messages of subqueries: the part of a query in one leaf, at a version and a time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Conversion, JsonCodec, Member, MismatchError, camel_case
from sleeper.lenient_json import StrictText, parse_message_object
from sleeper.partitions.json import region_from_json
from sleeper.processing.restriction import NO_RESTRICTION, RESTRICTION, Restriction
from sleeper.query.messages.query import QueryMessage, RawRegion, make_query
from sleeper.query.request import Query
from sleeper.schema.model import Schema

LEAF_QUERY_TYPE = "LeafPartitionQuery"
# SQS accepts the characters of XML 1.0. JSON escapes the other excluded characters.
_ESCAPED_FOR_SQS = {character: json.dumps(character)[1:-1] for character in "\ufffe\uffff"}
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_NUMBER_MAX = 2**63 - 1


def _to_number(raw: Any) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= _NUMBER_MAX:
        raise MismatchError(raw, f"an integer of 0 to {_NUMBER_MAX}")
    return raw


@dataclass(frozen=True, slots=True)
class LeafQueryMessage:
    """The part of a query in one leaf. It names its table by id.

    `version` and `now_ms` pin the rows, so that repeated runs return the same rows; `None` is the
    newest version and the current time. `files` is for operators only. `restriction` is that of
    the caller. `run` is that of the query's id.
    """

    query: Annotated[QueryMessage, Member(flat=True)]
    sub_query_id: StrictText
    leaf_id: Annotated[StrictText, Member("leafPartitionId")]
    partition_region: RawRegion
    files: Annotated[tuple[StrictText, ...], Member(optional=True)] = field(default_factory=tuple)
    version: Annotated[int | None, Member(optional=True), Conversion(_to_number)] = None
    now_ms: Annotated[int | None, Member("queryTime", optional=True), Conversion(_to_number)] = None
    restriction: Annotated[Restriction, Member(optional=True), RESTRICTION] = NO_RESTRICTION
    run: Annotated[str, Member(optional=True)] = ""


_CODEC = JsonCodec(LeafQueryMessage, camel_case)
_WHAT = "leaf query message"


def parse_leaf_query_message(body: str) -> LeafQueryMessage:
    """Parses the body of a message. InvalidRequestError names a wrong member."""
    raw = parse_message_object(body, _WHAT)
    if raw.get("type") != LEAF_QUERY_TYPE:
        raise InvalidRequestError(f'{_WHAT}: "type" must be {LEAF_QUERY_TYPE!r}')
    message = _CODEC.from_json(raw, _WHAT)
    if message.query.table_id is None:
        raise InvalidRequestError(f'{_WHAT}: "tableId" is missing')
    return message


def leaf_query_body(message: LeafQueryMessage) -> str:
    """Returns the body that `parse_leaf_query_message` parses."""
    return _body(_CODEC.to_json(message))


class LeafQueryBodies:
    """Writes bodies of messages of one query, which differ only in their leaves and regions.

    It converts the other members once, because they take most of the time of a body.
    """

    def __init__(self) -> None:
        self._shared: dict[str, Any] = {}

    def write(self, message: LeafQueryMessage) -> str:
        """Returns the body that `parse_leaf_query_message` parses."""
        if not self._shared:
            self._shared = _CODEC.to_json(message)
        return _body({**self._shared, **_leaf_members(message)})


def _leaf_members(message: LeafQueryMessage) -> dict[str, Any]:
    return {
        "regions": message.query.regions,
        "subQueryId": message.sub_query_id,
        "leafPartitionId": message.leaf_id,
        "partitionRegion": message.partition_region,
        "files": message.files,
    }


def _body(raw: Mapping[str, Any]) -> str:
    text = _ENCODER.encode({"type": LEAF_QUERY_TYPE, **raw})
    for character, escaped in _ESCAPED_FOR_SQS.items():
        text = text.replace(character, escaped)
    return text


def make_leaf_query(message: LeafQueryMessage, schema: Schema) -> Query:
    """Returns the query of the leaf.

    The current time of a query as of an old version is that of the version.
    """
    query = make_query(message.query, schema)
    leaf = region_from_json(schema, message.partition_region)
    parts = (region.intersect(leaf) for region in query.regions or ())
    return replace(
        query,
        regions=tuple(part for part in parts if part is not None),
        version=query.version if message.version is None else message.version,
        now_ms=message.now_ms if message.query.as_of is None else None,
    )
