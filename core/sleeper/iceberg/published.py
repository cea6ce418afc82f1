"""What was published last, for readers that write nothing. No library of Avro is needed."""

from typing import NamedTuple

from sleeper.errors import NotFoundError, UnavailableError
from sleeper.iceberg.locations import metadata_of, names_own_files
from sleeper.iceberg.metadata import Metadata, current_number, current_snapshot, table_id_of
from sleeper.instance import OpenTable


class FoundMetadata(NamedTuple):
    """The newest version of the metadata of a table, and its URL."""

    url: str
    metadata: Metadata


def find_published(table: OpenTable) -> FoundMetadata:
    """Returns the metadata of the version that was published last. Nothing is written.

    NotFoundError if the table has none; UnavailableError if files of the version may be deleted.
    """
    versions = metadata_of(table)
    version, metadata = versions.read()
    if (
        metadata is None
        or not names_own_files(table, versions, metadata)
        or table_id_of(metadata) != table.ref.id
    ):
        raise NotFoundError(
            f"table {table.ref.name!r} was not published in {versions.url}, and readers do not "
            "publish (expected `sleeper iceberg publish` first)"
        )
    fault = _find_fault(table, metadata)
    if fault is not None:
        raise UnavailableError(
            f"the published version of table {table.ref.name!r} is not readable: {fault} "
            "(expected `sleeper iceberg publish` first)"
        )
    return FoundMetadata(versions.metadata_url(version), metadata)


def _find_fault(table: OpenTable, metadata: Metadata) -> str | None:
    number = current_number(metadata) or 0
    with table.state.reading() as state:
        fault = state.find_fault(number)
        if (
            fault is None
            and state.entry_time_ms(number) != current_snapshot(metadata)["timestamp-ms"]
        ):
            fault = f"transaction {number} is another one since a backup was restored"
    return fault
