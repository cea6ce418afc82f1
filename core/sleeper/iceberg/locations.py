"""The locations of a table: where it was published, and whose table a location has.

The property of a table may change, and `--to` names other locations, so each one outside of the
table's folder is recorded there before a publication.
"""

from hashlib import sha256
from pathlib import Path

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.iceberg.metadata import INSTANCE_DATA, TABLE_NAME, Metadata, table_id_of
from sleeper.iceberg.metadata_versions import MetadataVersions
from sleeper.iceberg.properties import ICEBERG_LOCATION
from sleeper.instance import OpenTable
from sleeper.storage.bucket import is_s3_url
from sleeper.storage.location import open_root
from sleeper.storage.read_only_root import ReadOnlyRoot
from sleeper.tables import TableId

_DIGITS = 16


def own_location(table: OpenTable) -> str:
    """Returns the folder of the table for its published metadata."""
    return table.instance.storage.root.url_of(f"{table.ref.id}/iceberg")


def location_of(table: OpenTable) -> str:
    """Returns where a table is published: its property, or a folder of the table."""
    return table.properties().get(ICEBERG_LOCATION) or own_location(table)


def metadata_of(table: OpenTable, location: str | None = None) -> MetadataVersions:
    """Returns the metadata in a location of a table, to read it. A missing folder stays missing."""
    location, root = location or location_of(table), table.instance.storage.root
    if is_s3_url(location):
        return MetadataVersions(open_root(location, root))
    return MetadataVersions(ReadOnlyRoot(Path(location).resolve()))


def record_location(table: OpenTable, location: MetadataVersions) -> None:
    """Records that the table is published there."""
    url = location.root.url_of("")
    if url != own_location(table):
        table.instance.storage.root.create(_record_path(table, url), url.encode())


def forget_location(table: OpenTable, location: MetadataVersions) -> None:
    """Forgets that the table was published there."""
    table.instance.storage.root.delete([_record_path(table, location.root.url_of(""))])


def recorded_locations(table: OpenTable) -> list[str]:
    """Returns the locations to which the table was published, as far as they are recorded."""
    root = table.instance.storage.root
    paths = sorted(each.path for each in root.list_objects(_records(table)))
    return [own_location(table), *(root.read(path).decode() for path in paths)]


def _records(table: OpenTable) -> str:
    return f"{table.ref.id}/iceberg/locations"


def _record_path(table: OpenTable, url: str) -> str:
    return f"{_records(table)}/{sha256(url.encode()).hexdigest()[:_DIGITS]}"


def is_of_table(table: OpenTable, location: MetadataVersions, metadata: Metadata) -> bool:
    """Returns whether the metadata is that of the table, not of a deleted one of its instance.

    InvalidRequestError if it is that of another table.
    """
    if table_id_of(metadata) == table.ref.id:
        return True
    if _is_deleted(table, metadata):
        return False
    name, url = name_of(metadata), location.root.url_of("")
    raise InvalidRequestError(
        f"{location.url} has table {name!r}, so {table.ref.name!r} cannot be published there "
        f"(expected an empty location: `sleeper iceberg unpublish {name} --to {url}` empties it)"
    )


def names_own_files(table: OpenTable, location: MetadataVersions, metadata: Metadata) -> bool:
    """Returns whether the metadata in a location was written there, and for files of this instance.

    In a copy, or after a move, of an instance or a location it names files that are elsewhere.
    """
    instance_data = metadata["properties"].get(INSTANCE_DATA)
    return bool(
        metadata["location"] == location.url
        and instance_data == table.instance.storage.root.url_of("")
    )


def name_of(metadata: Metadata) -> str:
    """Returns the name of the table when it was published."""
    return str(metadata["properties"].get(TABLE_NAME, table_id_of(metadata)))


def _is_deleted(table: OpenTable, metadata: Metadata) -> bool:
    """Returns whether the table of the metadata was one of the instance, and is deleted."""
    instance = table.instance
    if metadata["properties"].get(INSTANCE_DATA) != instance.storage.root.url_of(""):
        return False
    try:
        ref = instance.tables.index.get(TableId(table_id_of(metadata)))
    except NotFoundError:
        return True
    return ref.deleted_ms is not None
