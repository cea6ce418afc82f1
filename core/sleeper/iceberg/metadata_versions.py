"""The versions of the metadata of a published table.

Version n is `metadata/v<n>.metadata.json`, and `metadata/version-hint.text` has the newest n, as
Iceberg's tables in a file system do. A version is created once, so of two publishers one is
refused. This module needs no library of Avro: functions on AWS read what was published with it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sleeper.errors import ConflictError, DataError, NotFoundError
from sleeper.files import StoredObject
from sleeper.iceberg.metadata import Metadata
from sleeper.storage.location import DataRoot

METADATA = "metadata"
"""The folder of the metadata in its location."""
HINT_PATH = f"{METADATA}/version-hint.text"
"""The path of the number of the newest version."""
DELETES = "deletes"
"""The folder of delete files in their location."""
_NAME = re.compile(
    rf"{METADATA}/(v\d+\.metadata\.json|m-\d+-of-\d+-[a-z]+-\d+-[0-9a-f]{{12}}\.avro"
    rf"|snap-\d+-[0-9a-f]{{12}}\.avro)|{DELETES}/[0-9a-f]{{20}}-[0-9a-f]{{12}}\.parquet"
)
"""Names of objects that publications write. Other tables of Iceberg have other ones."""


@dataclass(frozen=True, slots=True)
class MetadataVersions:
    """The metadata in a folder or bucket prefix, of one table."""

    root: DataRoot

    @property
    def url(self) -> str:
        """The URL of the location."""
        return url_of(self.root, "")

    def metadata_url(self, version: int) -> str:
        """Returns the URL of a version of the metadata."""
        return url_of(self.root, metadata_path(version))

    def read(self) -> tuple[int, Metadata | None]:
        """Returns the newest version of the metadata, and its content: 0 and None without one."""
        version = self._hint()
        content = self._read_version(version)
        # A publisher may have died before it wrote the hint.
        while (following := self._read_version(version + 1)) is not None:
            version, content = version + 1, following
        return (version, content) if content is not None else (0, None)

    def _hint(self) -> int:
        try:
            text = self.root.read(HINT_PATH)
        except NotFoundError:
            return 0
        try:
            return int(text)
        except ValueError:
            url = url_of(self.root, HINT_PATH)
            raise DataError(f"{url} is damaged: {text[:20]!r} (expected a number)") from None

    def _read_version(self, version: int) -> Metadata | None:
        try:
            content = self.root.read(metadata_path(version))
        except NotFoundError:
            return None
        try:
            metadata: Metadata = json.loads(content)
        except ValueError as error:
            raise DataError(f"{self.metadata_url(version)} is damaged: {error}") from error
        return metadata

    def list_own(self) -> Iterator[StoredObject]:
        """Yields the objects that publications wrote, without the hint."""
        for folder in (METADATA, DELETES):
            for each in self.root.list_objects(folder):
                if each.path != HINT_PATH and is_own(each.path):
                    yield each

    def write(self, version: int, metadata: Metadata) -> None:
        """Creates a version of the metadata. ConflictError if another publisher did."""
        content = json.dumps(metadata, separators=(",", ":")).encode()
        if not self.root.create(metadata_path(version), content):
            raise ConflictError(f"{self.metadata_url(version)} exists: another process publishes")
        self.root.put(HINT_PATH, str(version).encode())


def is_own(path: str) -> bool:
    """Returns whether publications write objects of such names."""
    return path == HINT_PATH or _NAME.fullmatch(path) is not None


def url_of(root: DataRoot, path: str) -> str:
    """Returns the URL of an object, for other programs."""
    url = root.url_of(path).rstrip("/")
    return url if "://" in url else f"file://{url}"


def metadata_path(version: int) -> str:
    """Returns the path of a version of the metadata in its location."""
    return f"{METADATA}/v{version}.metadata.json"
