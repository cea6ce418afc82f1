"""Plans a query of Athena: whether a table has rows for it, and its splits.

The first page of splits pins the newest version under a hold, and its continuation token names
both, so all pages are of one version. Athena does not report the end of a query to a connector,
so the hold expires; reads renew it after half of its time.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sleeper.athena.connector import Connector, ConnectorSettings, fields_by_athena_name
from sleeper.athena.constraints import Constraints
from sleeper.athena.filters import key_regions
from sleeper.athena.requests import GetSplitsRequest, GetTableLayoutRequest
from sleeper.athena.split import Split, new_encryption_key, new_spill_location
from sleeper.athena.times import has_plausible_bounds
from sleeper.datafiles.leaf_keys import LeafKeys
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.partitions.json import region_to_json
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Region, are_one_region, hull, whole_region
from sleeper.processing.restriction import restrict_version, visible_schema
from sleeper.query.distributed.plan import divide_region, group_small, leaves_with_files
from sleeper.query.engine import QueryTable
from sleeper.query.hold import create_hold
from sleeper.query.plan import check_has_rows
from sleeper.query.run import RESTARTS
from sleeper.retries import retry
from sleeper.schema.model import PrimitiveType, Schema
from sleeper.statestore.transactions.transaction import new_transaction_id

_TOKEN = re.compile(r"(\d+)/([^/]+)/(\d+)")
# A function's response has at most 6 MiB. The splits of one leaf may exceed a page.
_PAGE_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class _Page:
    """A version, the hold on it, and the position of the page's first leaf."""

    version: int
    hold_id: str
    start: int

    def to_token(self) -> str:
        return f"{self.version}/{self.hold_id}/{self.start}"


@dataclass(frozen=True, slots=True)
class _SizedLeaf:
    position: int
    leaf: Partition
    bytes: int


def has_rows(request: GetTableLayoutRequest, connector: Connector) -> bool:
    """Returns whether a file of the newest version may have rows that meet the constraints."""
    table = connector.open_table(connector.find_table(request.table))
    with table.store.reading() as state:
        schema = visible_schema(table.restriction, state.schema)
    return any(leaves_with_files(table.store, _key_regions(schema, request.constraints)))


def splits_page(request: GetSplitsRequest, connector: Connector) -> tuple[list[Split], str | None]:
    """Returns one page of splits, and the token of the next page, None after the last.

    StateMovedOnError if the pages took longer than the hold.
    """
    ref = connector.find_table(request.table)
    table = connector.open_table(ref)
    query_id = request.source.query_id
    page = _page_of(request.continuation) or _pin(table, query_id, connector)
    with table.store.reading() as state:
        check_version_is_kept(page.version, state.oldest_version, connector)
        at = state.schema_at(page.version)
        restriction = restrict_version(table.restriction, at, state.newest_schema)
        schema = visible_schema(restriction, at)
    regions = _key_regions(schema, request.constraints)
    splits: list[Split] = []
    size = 0
    for group in _groups(table, regions, page, connector.settings):
        if len(splits) >= connector.settings.splits_per_page or size >= _PAGE_BYTES:
            return splits, _Page(page.version, page.hold_id, group[0].position).to_token()
        parts = _divide(table, schema, group, page.version, connector.settings)
        for part in parts:
            if len(parts) == 1 or any(part.overlaps(region) for region in regions):
                spill = new_spill_location(connector.spill.name, query_id)
                region = region_to_json(schema, part)
                key = new_encryption_key()
                splits.append(Split(spill, key, ref.id, page.version, page.hold_id, region))
                size += len(json.dumps(splits[-1].to_json()))
    return splits, None


def constraints_by_field(schema: Schema, constraints: Constraints) -> Constraints:
    """Returns the constraints by the fields' own names, without hints, and a limit beside them."""
    fields = fields_by_athena_name(schema, constraints.summary)
    times = {field.name for field in schema.fields if field.type is PrimitiveType.TIMESTAMP}
    summary = {
        fields[name]: each
        for name, each in constraints.summary.items()
        if fields[name] not in times or has_plausible_bounds(each)
    }
    is_complete = len(summary) == len(constraints.summary)
    return Constraints(summary, constraints.limit if is_complete else None)


def check_version_is_kept(version: int, oldest: int, connector: Connector) -> None:
    """StateMovedOnError if the version is below the horizon."""
    if version < oldest:
        raise StateMovedOnError(
            f"the query's version {version} is no longer readable (the oldest is {oldest}): its "
            f"hold of {connector.settings.hold_seconds} seconds expired; run it again, or set "
            "sleeper.athena.hold.seconds higher"
        )


def _key_regions(schema: Schema, constraints: Constraints) -> tuple[Region, ...]:
    summary = constraints_by_field(schema, constraints).summary
    return key_regions(schema, summary, whole_region(schema)).regions


def _page_of(token: str | None) -> _Page | None:
    if token is None:
        return None
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise InvalidRequestError(f"not a continuation token of this connector: {token[:100]!r}")
    return _Page(int(match[1]), match[2], int(match[3]))


def _pin(table: QueryTable, query_id: str, connector: Connector) -> _Page:
    """Returns the first page, of the newest version under a new hold."""

    def attempt() -> _Page:
        hold_id = new_transaction_id()
        with table.store.reading() as state:
            check_has_rows(table.name, state)
            version = state.number
        owner, seconds = f"Athena query {query_id}", connector.settings.hold_seconds
        create_hold(table.store, hold_id, owner, version, connector.engine().clock(), seconds)
        return _Page(version, hold_id, 0)

    return retry(attempt, on=StateMovedOnError, backoff=RESTARTS)


def _groups(
    table: QueryTable, regions: Sequence[Region], page: _Page, settings: ConnectorSettings
) -> Iterator[list[_SizedLeaf]]:
    """Groups small leaves into one split each, to reduce the number of reads."""

    def can_join(group: list[_SizedLeaf], item: _SizedLeaf) -> bool:
        if len(group) >= settings.leaves_per_split:
            return False
        return are_one_region(_region_of(group), item.leaf.region)

    leaves = leaves_with_files(table.store, regions, page.version, page.start)
    sized = (_SizedLeaf(at, leaf, _bytes(table, leaf, page.version)) for at, leaf in leaves)
    return group_small(sized, lambda item: item.bytes, settings.split_bytes, can_join)


def _bytes(table: QueryTable, leaf: Partition, version: int) -> int:
    # This process has read the version before, so the log need not be read for each leaf.
    with table.store.reading(version, stale=True) as state:
        return state.files.leaf_bytes(leaf.id)


def _divide(
    table: QueryTable,
    schema: Schema,
    group: Sequence[_SizedLeaf],
    version: int,
    settings: ConnectorSettings,
) -> list[Region]:
    """Returns the group's region, divided if it is a leaf larger than a split."""
    first = group[0]
    if len(group) > 1 or first.bytes <= settings.split_bytes:
        return [_region_of(group)]
    region = first.leaf.region
    with table.store.reading(version, stale=True) as state:
        files = state.files.leaf_files(first.leaf.id, region)
    keys = LeafKeys(schema, region, files, settings.sketched_files_max, table.root)
    return divide_region(keys, settings.split_bytes)


def _region_of(group: Sequence[_SizedLeaf]) -> Region:
    """Returns the region of leaves of which each joined the ones before."""
    return hull([group[0].leaf.region, group[-1].leaf.region])
