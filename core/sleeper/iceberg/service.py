"""Publications of the newest version of a table."""

from sleeper.iceberg.cleaning import clean, delete_unneeded
from sleeper.iceberg.location import Location
from sleeper.iceberg.locations import location_of
from sleeper.iceberg.properties import ICEBERG_HOLD_SECONDS
from sleeper.iceberg.publish import Published, publish
from sleeper.instance import OpenTable
from sleeper.storage.location import DataRoot, open_root

_PUBLICATIONS_PER_CLEANING = 32


def open_location(table: OpenTable, to: str | None = None) -> Location:
    """Returns where a table is published: `to`, that of its property, or one in its folder."""
    return Location(open_root(to or location_of(table), table.instance.storage.root))


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


def publish_only_newest(table: OpenTable, root: DataRoot) -> int:
    """Publishes the newest version as the only one. Returns the number of deleted objects.

    InvalidRequestError if it cannot be published.
    """
    location = Location(root)
    # Publishers that wrote some of these objects find a newer version of the metadata.
    before = {each.path for each in location.list_own()}
    seconds = table.properties().get(ICEBERG_HOLD_SECONDS)
    published = publish(table, location, seconds, expires=True)
    return delete_unneeded(location, published.metadata_version, published.metadata, before)
