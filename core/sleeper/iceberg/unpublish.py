"""Removes the published metadata of a table. Its rows and data files stay."""

from dataclasses import dataclass

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.iceberg.locations import forget_location, location_of, name_of
from sleeper.iceberg.metadata import table_id_of
from sleeper.iceberg.metadata_versions import (
    DELETES,
    HINT_PATH,
    METADATA,
    MetadataVersions,
    metadata_path,
)
from sleeper.instance import Instance, OpenTable
from sleeper.storage.location import open_root


@dataclass(frozen=True, slots=True)
class Unpublished:
    """What was removed: a number of `objects` at a `location`."""

    table: str
    location: str
    objects: int


def unpublish_table(instance: Instance, name: str, location: str | None = None) -> Unpublished:
    """Removes what was published of a table, at the location of its property by default.

    The table may be a deleted one, by the name that it had. NotFoundError if nothing is published
    there; InvalidRequestError if another table is.
    """
    instance.storage.root.check_writable()
    table = _find_table(instance, name)
    if location is None:
        if table is None:
            raise NotFoundError(f"no table {name!r} (expected --to for a deleted one)")
        location = location_of(table)
    versions = MetadataVersions(open_root(location, instance.storage.root))
    _, metadata = versions.read()
    if metadata is None:
        raise NotFoundError(f"no table is published in {versions.url}")
    if name_of(metadata) != name and (table is None or table.ref.id != table_id_of(metadata)):
        raise InvalidRequestError(
            f"{versions.url} has table {name_of(metadata)!r} (expected {name!r})"
        )
    removed = remove_published(versions)
    if table is not None:
        forget_location(table, versions)
    return Unpublished(name, versions.url, removed)


def _find_table(instance: Instance, name: str) -> OpenTable | None:
    try:
        return instance.table(name)
    except NotFoundError:
        return None


def remove_published(versions: MetadataVersions) -> int:
    """Deletes all objects that publications wrote to a location. Returns their number.

    The newest metadata is deleted last, so that an interrupted removal can be repeated.
    """
    newest, _ = versions.read()
    paths = [each.path for each in versions.list_own()]
    last = metadata_path(newest)
    versions.root.delete([path for path in paths if path != last])
    versions.root.delete([HINT_PATH])
    versions.root.delete([last])
    for folder in (METADATA, DELETES):
        versions.root.remove_empty_folders(folder)
    return len(paths)
