"""Messages of subqueries: the part of a query in one leaf, at a version and a time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import region_from_json
from sleeper.processing.restriction import (
    NO_RESTRICTION,
    Restriction,
    restriction_from_json,
    restriction_to_json,
)
from sleeper.query.messages.query import (
    QueryMessage,
    RawRegion,
    is_text_list,
    make_query,
    parse_json_object,
    query_message_from_json,
    query_message_to_json,
    text_member,
)
from sleeper.query.request import Query
from sleeper.schema.model import Schema

LEAF_QUERY_TYPE = "LeafPartitionQuery"
# SQS accepts the characters of XML 1.0. JSON escapes the other excluded characters.
_NOT_IN_SQS = "\ufffe\uffff"


@dataclass(frozen=True, slots=True)
class LeafQueryMessage:
    """The part of a query in one leaf. It names its table by id.

    `version` and `now_ms` pin the rows, so that repeated runs return the same rows; `None` is the
    newest version and the current time. `files` is for operators only. `restriction` is that of
    the caller.
    """

    query: QueryMessage
    sub_query_id: str
    leaf_id: str
    partition_region: RawRegion
    files: tuple[str, ...] = ()
    version: int | None = None
    now_ms: int | None = None
    restriction: Restriction = NO_RESTRICTION


def parse_leaf_query_message(body: str) -> LeafQueryMessage:
    """Parses the body of a message. InvalidRequestError names a wrong member."""
    raw = parse_json_object(body, "leaf query message")
    if raw.get("type") != LEAF_QUERY_TYPE:
        raise InvalidRequestError(f'leaf query message: "type" must be {LEAF_QUERY_TYPE!r}')
    for member in ("queryId", "tableId", "subQueryId", "leafPartitionId"):
        if text_member(raw, member) is None:
            raise InvalidRequestError(f'leaf query message: "{member}" is missing')
    region = raw.get("partitionRegion")
    if not isinstance(region, dict):
        raise InvalidRequestError('leaf query message: "partitionRegion" must be a region')
    return LeafQueryMessage(
        query=query_message_from_json(raw, ""),
        sub_query_id=raw["subQueryId"],
        leaf_id=raw["leafPartitionId"],
        partition_region=region,
        files=_files(raw),
        version=_number(raw, "version"),
        now_ms=_number(raw, "queryTime"),
        restriction=restriction_from_json(raw.get("restriction")),
    )


def leaf_query_body(message: LeafQueryMessage) -> str:
    """Returns the body that `parse_leaf_query_message` parses."""
    raw = {
        **query_message_to_json(message.query),
        "type": LEAF_QUERY_TYPE,
        "subQueryId": message.sub_query_id,
        "leafPartitionId": message.leaf_id,
        "partitionRegion": dict(message.partition_region),
        "files": list(message.files),
        "version": message.version,
        "queryTime": message.now_ms,
        "restriction": restriction_to_json(message.restriction),
    }
    kept = {name: value for name, value in raw.items() if value is not None}
    text = json.dumps(kept, separators=(",", ":"), ensure_ascii=False)
    for character in _NOT_IN_SQS:
        text = text.replace(character, json.dumps(character)[1:-1])
    return text


def make_leaf_query(message: LeafQueryMessage, schema: Schema) -> Query:
    """Returns the query of the leaf."""
    query = make_query(message.query, schema)
    leaf = region_from_json(schema, message.partition_region)
    cut = (region.intersect(leaf) for region in query.regions or ())
    return replace(
        query,
        regions=tuple(region for region in cut if region is not None),
        version=message.version,
        now_ms=message.now_ms,
    )


def _files(raw: Mapping[str, Any]) -> tuple[str, ...]:
    files = raw.get("files") or []
    if not is_text_list(files):
        raise InvalidRequestError('leaf query message: "files" must be a list of paths')
    return tuple(files)


def _number(raw: Mapping[str, Any], member: str) -> int | None:
    value = raw.get(member)
    if value is not None and (
        not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63
    ):
        raise InvalidRequestError(f'leaf query message: "{member}" must be a whole number')
    return value
