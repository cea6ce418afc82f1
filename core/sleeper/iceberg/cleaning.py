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
    old = {e.path for e in location.list_own() if now_ms - e.modified_ms > _HOUR_MS}
    return delete_unneeded(location, version, metadata, old)


def delete_unneeded(location: Location, version: int, metadata: Metadata, paths: set[str]) -> int:
    """Deletes those of the objects that the version does not need. Returns their number."""
    needed = {metadata_path(version), *map(location.path_of, _needed_urls(location, metadata))}
    unneeded = sorted(paths - needed)
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
