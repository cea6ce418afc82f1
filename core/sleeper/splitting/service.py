"""Splits of the partitions of an instance's tables."""

import functools
import json

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.partitions.partition import PartitionId
from sleeper.properties.instance import SKETCH_CACHE_BYTES, SPLITTING_FILES_MAX
from sleeper.properties.table import SPLIT_THRESHOLD_ROWS
from sleeper.splitting.find import find_leaves
from sleeper.splitting.run import SplitResult, SplitStatus, split_partition
from sleeper.storage.bounded_cache import BoundedCache
from sleeper.tables import find_table


def split_table(instance: Instance, name: str) -> list[SplitResult]:
    """Splits every leaf of the table that is over the threshold."""
    ref = instance.tables.index.find(name)
    if not ref.online:
        raise InvalidRequestError(f"table {name!r} is offline: it is not split")
    table = OpenTable(instance, ref)
    return [_split(table, leaf) for leaf in find_leaves(table)]


def run_split_message(instance: Instance, body: str) -> SplitResult:
    """Splits the leaf of a message. InvalidRequestError if the message is invalid."""
    try:
        raw = json.loads(body)
        table_id, partition_id = str(raw["tableId"]), PartitionId(str(raw["partitionId"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidRequestError(f"not a split: {body[:200]!r}: {error!r}") from error
    table = OpenTable(instance, find_table(instance.tables.index, None, table_id))
    if not table.ref.online:
        return SplitResult(SplitStatus.GONE)
    return _split(table, partition_id)


def _split(table: OpenTable, partition_id: PartitionId) -> SplitResult:
    root, properties = table.instance.storage.root, table.instance.properties()
    kept = _sketches(properties.get(SKETCH_CACHE_BYTES))
    return split_partition(
        partition_id,
        table.state,
        table.properties().get(SPLIT_THRESHOLD_ROWS),
        properties.get(SPLITTING_FILES_MAX),
        root,
        lambda path: kept.get(root.url_of(path), lambda: root.read(path)),
    )


@functools.lru_cache(maxsize=1)
def _sketches(bytes_max: int) -> BoundedCache[bytes]:
    """Returns the sketch cache of the process: the files of a growing leaf are read repeatedly."""
    return BoundedCache(bytes_max, len)
