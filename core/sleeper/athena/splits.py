"""Plans a query of Athena's: is there anything to read, and in which splits.

The first page of splits pins the newest version under a hold, and its continuation token
says which, so that all pages are of one version. Nobody tells a connector that a query is
over, so the hold is left to expire; reads renew it when half of its time is over.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from sleeper.athena.connector import Connector, ConnectorSettings
from sleeper.athena.constraints import Constraints, ValueSet
from sleeper.athena.key_ranges import key_regions
from sleeper.athena.leaf_groups import LeafGroup, leaf_groups
from sleeper.athena.names import fields_named, find_named
from sleeper.athena.requests import GetSplitsRequest, GetTableLayoutRequest
from sleeper.athena.split import Split, new_encryption_key, new_spill_location
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.files.data_file import DataFile
from sleeper.partitions.json import region_to_json
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.processing.restriction import visible_schema
from sleeper.query.engine import QueryTable
from sleeper.query.request import Query
from sleeper.query.run import RESTARTS, plan_of_query
from sleeper.retries import retry
from sleeper.schema.model import KeyValue, Schema
from sleeper.splitting.estimate import LeafKeys, split_points
from sleeper.splitting.key_samples import sample_keys
from sleeper.statestore.transactions.holds import CreateHold
from sleeper.statestore.transactions.transaction import new_transaction_id
from sleeper.storage.location import DataRoot
from sleeper.tables.table_ref import TableRef

_PLANNED_AT_ONCE = 500


def touched_leaves(
    table: QueryTable, wanted: Sequence[Region], version: int | None = None, start: int = 0
) -> Iterator[tuple[int, Partition]]:
    """Leaves with files that may hold rows of the regions, in key order, each with its place.

    Places count all leaves that the regions overlap, whether or not they have such files;
    those before `start` are left out. Places of one version stay the same.
    """
    with table.store.reading(version) as state:
        leaves = state.partitions.leaves_overlapping(wanted)
    for first in range(start, len(leaves), _PLANNED_AT_ONCE):
        group = leaves[first : first + _PLANNED_AT_ONCE]
        around = _around(group)
        within = (region.intersect(around) for region in wanted)
        regions = tuple(region for region in within if region is not None)
        plan = plan_of_query(Query(regions, version=version), table)
        with_files = {leaf_id for leaf in plan.leaves for leaf_id in leaf.leaf_ids}
        for place, leaf in enumerate(group, first):
            if leaf.id in with_files:
                yield place, leaf


def _around(leaves: Sequence[Partition]) -> Region:
    """The smallest region that holds them all."""
    by_field = zip(*(leaf.region.ranges for leaf in leaves), strict=True)
    return Region(tuple(_span(ranges) for ranges in by_field))


def _span(ranges: Sequence[Range]) -> Range:
    ends = [within.max for within in ranges if within.max is not None]
    is_open = len(ends) < len(ranges)
    lowest = min(ranges, key=lambda within: within.min)
    return Range(lowest.min, None if is_open else max(ends))


_PARTS_MAX = 256


def pieces_of_leaf(
    schema: Schema,
    leaf: Partition,
    files: list[DataFile],
    root: DataRoot,
    settings: ConnectorSettings,
) -> list[Region]:
    """Regions that make up the leaf's, each with about `split_bytes` of its files.

    Sidecars are read only if all of the files together have more. Rows of one row key are
    never parted, so a filter or an aggregation gives the same for the pieces as for the leaf.
    """
    size = sum(file.bytes for file in files)
    if size <= settings.split_bytes:
        return [leaf.region]
    keys = LeafKeys(
        schema,
        leaf,
        files,
        settings.sketched_files_max,
        root.read,
        lambda of, file, region: sample_keys(root, of, file, region),
    )
    for dimension, within in enumerate(leaf.region.ranges):
        estimate = keys.estimate(dimension)
        # Files shared with other leaves count by their rows that are in this one.
        share = min(estimate.rows / max(sum(file.rows for file in files), 1), 1.0)
        parts = min(ceil(size * share / settings.split_bytes), _PARTS_MAX)
        points = split_points(estimate, within, dimension, parts) if parts > 1 else []
        if points:
            return list(_cut(leaf.region, dimension, points))
    return [leaf.region]


def _cut(region: Region, dimension: int, points: list[KeyValue]) -> Iterator[Region]:
    whole = region.ranges[dimension]
    ends = [*points, whole.max]
    low = whole.min
    for end in ends:
        ranges = list(region.ranges)
        ranges[dimension] = Range(low, end)
        yield Region(tuple(ranges))
        if end is not None:
            low = end


_TOKEN = re.compile(r"(\d+)/([^/]+)/(\d+)")
# An answer of a function may have 6 MiB. A leaf of many pieces comes on top.
_PAGE_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class _Page:
    """A version, the hold on it, and the place of the page's first leaf."""

    version: int
    hold_id: str
    start: int

    def to_token(self) -> str:
        return f"{self.version}/{self.hold_id}/{self.start}"


def has_rows(request: GetTableLayoutRequest, connector: Connector) -> bool:
    """Whether any file of the newest version may hold rows that meet the constraints."""
    table = connector.open_table(find_named(connector, request.table))
    with table.store.reading() as state:
        schema = visible_schema(table.restriction, state.schema)
    return any(touched_leaves(table, _wanted(schema, request.constraints)))


def splits_page(request: GetSplitsRequest, connector: Connector) -> tuple[list[Split], str | None]:
    """One page of splits, and the token of the next page, None after the last.

    StateMovedOnError if the pages took longer than the hold.
    """
    ref = find_named(connector, request.table)
    table = connector.open_table(ref)
    page = _page_of(request.continuation) or _pin(table, request.asked.query_id, connector)
    with table.store.reading() as state:
        check_version_is_kept(page.version, state.oldest_version, connector)
        schema = visible_schema(table.restriction, state.schema)
    wanted = _wanted(schema, request.constraints)
    splits: list[Split] = []
    size = 0
    leaves = touched_leaves(table, wanted, page.version, page.start)
    sized = ((place, leaf, _bytes(table, leaf, page.version)) for place, leaf in leaves)
    for group in leaf_groups(sized, connector.settings):
        if len(splits) >= connector.settings.splits_per_page or size >= _PAGE_BYTES:
            return splits, _Page(page.version, page.hold_id, group.place).to_token()
        pieces = _pieces(table, schema, group, page.version, connector)
        for piece in pieces:
            if len(pieces) == 1 or any(piece.overlaps(region) for region in wanted):
                region = region_to_json(schema, piece)
                splits.append(_split(request, ref, page, region, connector))
                size += len(json.dumps(splits[-1].to_json()))
    return splits, None


def named_by_field(schema: Schema, constraints: Constraints) -> Mapping[str, ValueSet]:
    """The constraints by the fields' own names."""
    fields = fields_named(schema, constraints.summary)
    return {fields[name]: each for name, each in constraints.summary.items()}


def check_version_is_kept(version: int, oldest: int, connector: Connector) -> None:
    """StateMovedOnError if the version is below the horizon."""
    if version < oldest:
        raise StateMovedOnError(
            f"the query's version {version} is not kept any more (the oldest is {oldest}): its "
            f"hold of {connector.settings.hold_seconds} seconds expired; run it again, or set "
            "sleeper.athena.hold.seconds higher"
        )


def _wanted(schema: Schema, constraints: Constraints) -> tuple[Region, ...]:
    summary = named_by_field(schema, constraints)
    return key_regions(schema, summary, whole_region(schema)).regions


def _bytes(table: QueryTable, leaf: Partition, version: int) -> int:
    # This process has seen the version, so the log need not be asked for each leaf.
    with table.store.reading(version, stale=True) as state:
        return state.files.bytes_of_leaf(leaf.id)


def _pieces(
    table: QueryTable, schema: Schema, group: LeafGroup, version: int, connector: Connector
) -> list[Region]:
    if group.bytes <= connector.settings.split_bytes:
        return [group.region]
    with table.store.reading(version, stale=True) as state:
        files = state.files.of_leaf(group.first.id, group.region)
    return pieces_of_leaf(schema, group.first, files, table.root, connector.settings)


def _split(
    request: GetSplitsRequest, ref: TableRef, page: _Page, region: object, connector: Connector
) -> Split:
    return Split(
        new_spill_location(connector.spill.name, request.asked.query_id),
        new_encryption_key(),
        ref.id,
        page.version,
        page.hold_id,
        region,
    )


def _page_of(token: str | None) -> _Page | None:
    if token is None:
        return None
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise InvalidRequestError(f"no continuation token of this connector: {token[:100]!r}")
    return _Page(int(found[1]), found[2], int(found[3]))


def _pin(table: QueryTable, query_id: str, connector: Connector) -> _Page:
    """Holds the newest version. Retries if a collection raises the horizon meanwhile."""

    def attempt() -> _Page:
        hold_id = new_transaction_id()
        with table.store.reading() as state:
            version = state.number
            expiry_ms = state.moment(connector.engine().clock())
        expiry_ms += connector.settings.hold_seconds * 1000
        table.store.commit_or_raise(
            CreateHold(hold_id, f"Athena query {query_id}", version, expiry_ms)
        )
        return _Page(version, hold_id, 0)

    return retry(attempt, on=StateMovedOnError, backoff=RESTARTS)
