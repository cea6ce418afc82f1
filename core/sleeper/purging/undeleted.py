"""The check that every row to purge is deleted."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.key_files import KeyFileCache
from sleeper.datafiles.merge.deletes import open_deleted
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.steps import format_key
from sleeper.errors import InvalidRequestError
from sleeper.files import DataFile
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region, hull
from sleeper.properties.instance import MERGE_MEMORY_BYTES
from sleeper.runs.engine import engine_settings
from sleeper.schema.model import Key, Schema
from sleeper.statestore.reading.delete_queries import Delete, find_deleted

_FILES_PER_MERGE = 32


def check_all_deleted(table: OpenTable, regions: Sequence[Region]) -> None:
    """Raises InvalidRequestError if a file has a row in the regions that is not deleted.

    It reads the files themselves, because the table's filters may hide a row that is in them.
    """
    with table.state.reading() as state:
        schema = state.schema
        deletes = state.deletes.overlapping(hull(regions))
        files = [file for file in state.files.all() if _overlaps(file, regions)]
    settings = engine_settings(table.instance, MERGE_MEMORY_BYTES)
    remaining = iter(files)
    while batch := list(islice(remaining, _FILES_PER_MERGE)):
        for key in _undeleted_keys(table, schema, batch, regions, deletes, settings):
            raise InvalidRequestError(
                f"a row with key {format_key(key)} is not deleted (expected deleted rows only: "
                f"run `sleeper delete {table.ref.name}` first)"
            )


def _overlaps(file: DataFile, regions: Sequence[Region]) -> bool:
    return any(r.overlaps_bounds(file.smallest_key, file.largest_key) for r in regions)


def _undeleted_keys(
    table: OpenTable,
    schema: Schema,
    files: Sequence[DataFile],
    regions: Sequence[Region],
    deletes: Sequence[Delete],
    settings: EngineSettings,
) -> Iterator[Key]:
    keys_only = replace(schema, sort_keys=(), values=(), latest=None)
    root = table.instance.storage.root
    key_files = KeyFileCache(settings.key_cache_bytes)
    inputs = []
    for file in files:
        hiding = [(d.region, d.keys) for d in find_deleted(file, deletes)]
        deleted = open_deleted(keys_only, hiding, root, key_files) if hiding else None
        inputs.append(MergeInput(root.url_of(file.path), tuple(regions), file.bytes, deleted))
    for rows in merge(MergeRequest(keys_only, tuple(inputs), limit=1), settings):
        for row in rows.to_pylist():
            yield tuple(row.values())
