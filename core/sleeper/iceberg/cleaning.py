"""Deletes what no snapshot of a location needs: old metadata, manifests and delete files."""

from collections.abc import Iterator

from sleeper.iceberg.location import Location
from sleeper.iceberg.manifests import Content
from sleeper.iceberg.metadata import Metadata, snapshots_of
from sleeper.iceberg.metadata_versions import metadata_path

_HOUR_MS = 3_600_000


def clean(location: Location, version: int, metadata: Metadata, now_ms: int) -> int:
    """Deletes old objects that this version of the metadata does not need. Returns their number.

    Younger ones than an hour stay: readers may have older metadata, and publishers write objects
    before the metadata that names them.
    """
    needed = {metadata_path(version), *map(location.path_of, _needed_urls(location, metadata))}
    unneeded = [
        each.path
        for each in location.list_own()
        if each.path not in needed and now_ms - each.modified_ms > _HOUR_MS
    ]
    location.root.delete(unneeded)
    return len(unneeded)


def _needed_urls(location: Location, metadata: Metadata) -> Iterator[str]:
    seen: set[str] = set()
    for snapshot in snapshots_of(metadata):
        yield snapshot["manifest-list"]
        for manifest in location.read_list(snapshot["manifest-list"]):
            if manifest.url in seen:
                continue
            seen.add(manifest.url)
            yield manifest.url
            if manifest.content is Content.DELETES:
                yield from (entry.path for entry in location.read_manifest(manifest))
