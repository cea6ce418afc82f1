"""The manifest of a backup: a JSON object whose name has the checksum of its bytes."""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from sleeper.errors import DataError
from sleeper.json_codec import JsonCodec, Member
from sleeper.tables import TableId, TableRef

MANIFEST_FORMAT_VERSION = 1
_NAME = re.compile(r"(\d{8}T\d{9}Z)-([0-9a-f]{16})")
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """An object of a place, with its size and the XXH3 digest (128 bits) of its bytes."""

    path: str
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class TableBackup:
    """A version of a table: `number`, of the entry at `time_ms`.

    `files`, `rows` and `bytes` are those of its data files. `state` is the state of the version,
    and `objects` the list of all objects that it names.
    """

    id: TableId
    name: str
    online: bool
    number: int
    time_ms: Annotated[int, Member("time")]
    files: int
    rows: int
    bytes: int
    properties: str
    state: ObjectRecord
    objects: ObjectRecord

    @property
    def ref(self) -> TableRef:
        """The row of the table index."""
        return TableRef(self.id, self.name, self.online)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup of an instance. `properties` are those of the instance, as text.

    `adapters` are the definitions of its adapters by path, without secrets. A backup of chosen
    tables has none.
    """

    time_ms: Annotated[int, Member("time")]
    version: str
    instance: str
    properties: str
    wheels: tuple[ObjectRecord, ...]
    tables: Annotated[tuple[TableBackup, ...], Member(last=True)]
    format: int = MANIFEST_FORMAT_VERSION
    adapters: Annotated[tuple[tuple[str, str], ...], Member(optional=True)] = ()


DEFINITIONS = "adapters/"
"""The folder of the definitions of adapters in an instance's root."""


_CODEC = JsonCodec(Manifest)


def encode_manifest(manifest: Manifest) -> tuple[str, bytes]:
    """Returns the backup's id and the content of its manifest."""
    content = _CODEC.format(manifest).encode()
    moment = datetime.fromtimestamp(manifest.time_ms / 1000, UTC)
    time = f"{moment:%Y%m%dT%H%M%S}{manifest.time_ms % 1000:03d}Z"
    return f"{time}-{_checksum(content)}", content


def decode_manifest(backup_id: str, content: bytes) -> Manifest:
    """Returns the manifest. DataError if it is damaged or of a newer version."""
    match = _NAME.fullmatch(backup_id)
    if match is None or match[2] != _checksum(content):
        raise DataError(f"the manifest of backup {backup_id} is damaged: its checksum differs")
    manifest = _CODEC.parse(content.decode(), f"the manifest of backup {backup_id}", DataError)
    if manifest.format > MANIFEST_FORMAT_VERSION:
        raise DataError(
            f"backup {backup_id} has format {manifest.format}, this version reads up to "
            f"{MANIFEST_FORMAT_VERSION}"
        )
    return manifest


def time_of_id(backup_id: str) -> int:
    """Returns the time of a backup in milliseconds."""
    moment = datetime.strptime(f"{backup_id[:15]}+0000", "%Y%m%dT%H%M%S%z")
    return int(moment.timestamp()) * 1000 + int(backup_id[15:18])


def is_backup_id(text: str) -> bool:
    """Returns whether the text is a complete id of a backup."""
    return _NAME.fullmatch(text) is not None


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
