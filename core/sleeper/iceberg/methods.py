"""Publications of tables for readers of Apache Iceberg, from Python."""

import os
from typing import TYPE_CHECKING

from sleeper.api.argument_types import check_argument_types
from sleeper.instance import Instance as Ports

if TYPE_CHECKING:
    from sleeper.iceberg.publish import Published
    from sleeper.iceberg.unpublish import Unpublished


@check_argument_types
class InstanceIceberg:
    """The methods of `Instance` that publish tables."""

    _ports: Ports

    def publish_iceberg(self, table: str, to: str | os.PathLike[str] | None = None) -> "Published":
        """Publishes the newest version of a table for engines that read Apache Iceberg.

        `to` is a folder or `s3://bucket/prefix`, by default that of the table's property
        `sleeper.table.iceberg.location`. The result has `number`, the transaction number of the
        version, which is the id of Iceberg's snapshot, `metadata_url` for readers that take the
        address of a table's metadata, and `rows`. No row is copied: the metadata names the table's
        data files. The version stays readable for `sleeper.table.iceberg.hold.seconds`.

        Raises `NotFoundError` for an unknown table, and `InvalidRequestError` for a table that is
        not shown as it is stored, and for a location that has another table.
        """
        from sleeper.iceberg.service import publish_table

        return publish_table(self._ports.table(table), None if to is None else os.fspath(to))

    def unpublish_iceberg(
        self, table: str, location: str | os.PathLike[str] | None = None
    ) -> "Unpublished":
        """Removes what was published of a table from a location, so that it is empty.

        The location is by default that of `publish_iceberg`. With one, the table may be deleted, by
        the name that it had. Raises `NotFoundError` if nothing is published there, and
        `InvalidRequestError` if another table is.
        """
        from sleeper.iceberg.unpublish import unpublish_table

        return unpublish_table(
            self._ports, table, None if location is None else os.fspath(location)
        )
