"""The subqueries of a query: one for each leaf, more if one message cannot contain its regions."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.query_tracker import QueryPin
from sleeper.jobs.queue import MESSAGE_BYTES_MAX
from sleeper.partitions.json import key_value_to_json
from sleeper.partitions.partition import ROOT_PARTITION_ID
from sleeper.partitions.region import Region
from sleeper.processing.restriction import Restriction
from sleeper.query.messages.destination import DestinationKind
from sleeper.query.messages.leaf import LeafQueryBodies, LeafQueryMessage, leaf_query_body
from sleeper.query.messages.query import QueryMessage
from sleeper.query.plan import SelectedLeaf, check_size, plan_leaves, total_bytes
from sleeper.query.request import Query
from sleeper.schema.model import Schema, smallest_key_value
from sleeper.statestore.reading.table_state import TableState

_FILES_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class Subquery:
    """A subquery and its message's body."""

    message: LeafQueryMessage
    body: str


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query that fits its table, at its pin, under its caller's restriction."""

    message: QueryMessage
    query: Query
    pin: QueryPin
    restriction: Restriction


def plan_subqueries(
    planned: PlannedQuery,
    schema: Schema,
    state: TableState,
    bytes_max: int = MESSAGE_BYTES_MAX,
    files_bytes_max: int = 0,
) -> list[Subquery]:
    """Returns the subqueries on the state at the pinned version, the same for each delivery.

    InvalidRequestError if overlapping regions need more than one message, or the files are
    larger than `files_bytes_max` (0 is no limit).
    """
    subqueries: list[Subquery] = []
    cuts = plan_leaves(planned.query, schema, state)
    check_size(total_bytes(scan.file for cut in cuts for scan in cut.plan.scans), files_bytes_max)
    bodies = LeafQueryBodies()
    for cut in cuts:
        leaf = _LeafSubqueries(planned, schema, cut, bodies, bytes_max)
        leaf.add(cut.regions)
        subqueries += leaf.subqueries
    if not subqueries and planned.message.results.kind is DestinationKind.SQS:
        # A client that reads a results queue needs a message even if there are no rows.
        return [_empty(planned)]
    return subqueries


@dataclass(slots=True)
class _LeafSubqueries:
    """The subqueries of one leaf, as many as its regions need, none of which share a key."""

    planned: PlannedQuery
    schema: Schema
    cut: SelectedLeaf
    bodies: LeafQueryBodies
    bytes_max: int
    subqueries: list[Subquery] = field(default_factory=list)

    def add(self, regions: Sequence[Region]) -> None:
        part = len(self.subqueries)
        message = _leaf_message(self.planned, self.schema, self.cut, regions, part)
        body = self.bodies.write(message)
        if len(body.encode()) <= self.bytes_max:
            self.subqueries.append(Subquery(message, body))
            return
        middle = len(regions) // 2
        halves = regions[:middle], regions[middle:]
        if not middle or any(a.overlaps(b) for a in halves[0] for b in halves[1]):
            raise InvalidRequestError(
                f"the query's {len(regions)} regions in leaf {self.cut.leaf.id} do not fit a "
                f"message of {self.bytes_max:,} bytes: request fewer regions per query"
            )
        for half in halves:
            self.add(half)


def _leaf_message(
    planned: PlannedQuery, schema: Schema, cut: SelectedLeaf, regions: Sequence[Region], part: int
) -> LeafQueryMessage:
    query, pin = planned.message, planned.pin
    files = tuple(scan.file.path for scan in cut.plan.scans)
    return LeafQueryMessage(
        query=replace(
            query,
            table_id=pin.table_id,
            requesters=(),
            regions=tuple(_compact_region(schema, region) for region in regions),
        ),
        sub_query_id=sub_query_id(query.query_id, pin.run, cut.leaf.id, part),
        leaf_id=cut.leaf.id,
        partition_region=_compact_region(schema, cut.leaf.region),
        # Workers find the files by version, so a long list would only enlarge the message.
        files=files if sum(map(len, files)) <= _FILES_BYTES_MAX else (),
        version=pin.version,
        now_ms=pin.now_ms,
        restriction=planned.restriction,
        run=pin.run,
    )


def _empty(planned: PlannedQuery) -> Subquery:
    query = replace(planned.message, table_id=planned.pin.table_id, requesters=(), regions=())
    message = LeafQueryMessage(
        query=query,
        sub_query_id=sub_query_id(query.query_id, planned.pin.run, ROOT_PARTITION_ID, 0),
        leaf_id=ROOT_PARTITION_ID,
        partition_region={},
        version=planned.pin.version,
        now_ms=planned.pin.now_ms,
        restriction=planned.restriction,
        run=planned.pin.run,
    )
    return Subquery(message, leaf_query_body(message))


def sub_query_id(query_id: str, run: str, leaf_id: str, part: int) -> str:
    """Returns a deterministic id, so that a repeated message creates no other subqueries.

    Each run of a query's id has others, so that late workers of one cannot end those of the next.
    """
    text = f"{query_id}\0{leaf_id}\0{part}" + (f"\0{run}" if run else "")
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _compact_region(schema: Schema, region: Region) -> dict[str, Any]:
    """Returns the region without defaults: inclusive flags, and unbounded fields."""
    raw: dict[str, Any] = {"stringsBase64Encoded": False}
    for key, within in zip(schema.row_keys, region.ranges, strict=True):
        if within.max is not None or within.min != smallest_key_value(key):
            end = None if within.max is None else key_value_to_json(key, within.max)
            raw[key.name] = {"min": key_value_to_json(key, within.min), "max": end}
    return raw


def query_hold_id(query_id: str, run: str) -> str:
    """Returns the id of a query's hold, so that any process can renew or release it."""
    text = f"{query_id}\0{run}" if run else query_id
    return f"query-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def hold_period_ms(hold_seconds: int) -> int:
    """Returns how often a query's hold is renewed, by whichever subquery is first."""
    return hold_seconds * 1000 // 3
