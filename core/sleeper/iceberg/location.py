"""The location of a published table: metadata in versions, manifests and delete files."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sleeper.errors import DataError, InvalidRequestError
from sleeper.iceberg.manifests import (
    Content,
    CopiedBlocks,
    Entry,
    Manifest,
    decode_list,
    decode_manifest,
    encode_list,
    encode_manifest,
    list_name,
    make_manifest,
    manifest_name,
    split_manifest,
)
from sleeper.iceberg.metadata import Metadata
from sleeper.iceberg.metadata_versions import METADATA, MetadataVersions, is_own, url_of
from sleeper.schema.model import Schema
from sleeper.storage.location import UNFINISHED_SUFFIX


@dataclass(frozen=True, slots=True)
class Location(MetadataVersions):
    """A folder or bucket prefix with the metadata of one table."""

    unsynced: list[str] = field(default_factory=list)

    def check_empty(self) -> None:
        """Raises InvalidRequestError if another program wrote metadata here."""
        for each in self.root.list_objects(METADATA):
            if not is_own(each.path) and not each.path.endswith(UNFINISHED_SUFFIX):
                raise InvalidRequestError(
                    f"{url_of(self.root, each.path)} belongs to another table (expected an empty "
                    "location)"
                )

    def write(self, version: int, metadata: Metadata) -> None:
        """Creates a version of the metadata. ConflictError if another publisher did."""
        self.root.sync(self.unsynced)
        self.unsynced.clear()
        MetadataVersions.write(self, version, metadata)

    def read_list(self, url: str) -> list[Manifest]:
        """Returns the manifests of a snapshot."""
        return decode_list(self.root.read(self.path_of(url)))

    def read_manifest(self, manifest: Manifest) -> list[Entry]:
        """Returns the files of a manifest."""
        return decode_manifest(self.root.read(self.path_of(manifest.url)))

    def split_manifest(
        self, manifest: Manifest, urls: Iterable[str]
    ) -> tuple[list[Entry], CopiedBlocks | None]:
        """Returns the files of blocks that have one of the URLs, and the other blocks."""
        return split_manifest(self.root.read(self.path_of(manifest.url)), manifest, urls)

    def write_manifest(
        self,
        entries: list[Entry],
        content: Content,
        bucket: tuple[int, int],
        snapshot: int,
        parent: int,
        schema: Schema,
        copied: CopiedBlocks | None,
    ) -> Manifest:
        """Writes the manifest of a bucket, which is a number and the number of all buckets."""
        encoded, listed = encode_manifest(entries, content, snapshot, parent, schema, copied)
        path = f"{METADATA}/{manifest_name(*bucket, content, snapshot)}"
        self.put(path, encoded)
        named = {"manifest_path": url_of(self.root, path), "manifest_length": len(encoded)}
        return make_manifest({**listed, **named})

    def write_list(self, manifests: list[Manifest], snapshot: int, parent: int | None) -> str:
        """Writes the list of a snapshot's manifests. Returns its URL."""
        path = f"{METADATA}/{list_name(snapshot)}"
        self.put(path, encode_list(manifests, snapshot, parent))
        return url_of(self.root, path)

    def put(self, path: str, content: bytes) -> None:
        """Writes an object with a new name. It is durable when metadata is written."""
        with self.root.sink(path, syncs=False) as sink:
            sink.write(content)
        self.unsynced.append(path)

    def path_of(self, url: str) -> str:
        """Returns the path of an object of this location. DataError if the URL is of another."""
        prefix = f"{self.url}/"
        if not url.startswith(prefix):
            raise DataError(f"{url} is not in {self.url}: the location was moved")
        return url[len(prefix) :]
