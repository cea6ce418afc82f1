"""Publications of the newest version of a table."""

from sleeper.errors import NotFoundError
from sleeper.iceberg.cleaning import clean
from sleeper.iceberg.location import Location
from sleeper.iceberg.metadata import Metadata
from sleeper.iceberg.properties import ICEBERG_HOLD_SECONDS, ICEBERG_LOCATION
from sleeper.iceberg.publish import Published, publish
from sleeper.instance import OpenTable
from sleeper.storage.location import open_root

_PUBLICATIONS_PER_CLEANING = 32


def open_location(table: OpenTable, to: str | None = None) -> Location:
    """Returns where a table is published: `to`, that of its property, or one in its folder."""
    root = table.instance.storage.root
    own = root.url_of(f"{table.ref.id}/iceberg")
    return Location(open_root(to or table.properties().get(ICEBERG_LOCATION) or own, root))


def publish_table(table: OpenTable, to: str | None = None) -> Published:
    """Publishes the newest version of a table, and sometimes deletes what nobody can read.

    InvalidRequestError if the table cannot be published there.
    """
    table.instance.storage.root.check_writable()
    location = open_location(table, to)
    published = publish(table, location, table.properties().get(ICEBERG_HOLD_SECONDS))
    if published.is_new and published.metadata_version % _PUBLICATIONS_PER_CLEANING == 0:
        clean(location, published.metadata_version, published.metadata, table.instance.clock())
    return published


def publish_or_find(table: OpenTable) -> tuple[str, Metadata]:
    """Returns the metadata of the newest version and its URL.

    In an instance that is open read-only, it is that of the version that was published last.
    NotFoundError if there is none.
    """
    if not table.instance.read_only:
        published = publish_table(table)
        return published.metadata_url, published.metadata
    location = open_location(table)
    version, metadata = location.read()
    if metadata is None or metadata["location"] != location.url:
        raise NotFoundError(
            f"table {table.ref.name!r} was not published before the instance was opened read-only"
        )
    return location.metadata_url(version), metadata
