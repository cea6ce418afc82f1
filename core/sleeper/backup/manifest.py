"""The manifest of a backup: a JSON object whose name has the checksum of its bytes."""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from sleeper.errors import DataError, InvalidRequestError
from sleeper.json_codec import JsonCodec, Member
from sleeper.storage.location import check_path
from sleeper.systems import systems
from sleeper.tables import TableId, TableRef, check_table_name, is_table_id

MANIFEST_FORMAT_VERSION = 1
_NAME = re.compile(r"(\d{8}T\d{9}Z)-([0-9a-f]{16})")
_DIGITS = 16
_WHEEL = re.compile(r"code/[0-9a-f]+/[^/]+\.whl")


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

    `definitions` are those of systems by path, without secrets. A backup of chosen tables has none.
    """

    time_ms: Annotated[int, Member("time")]
    version: str
    instance: str
    properties: str
    wheels: tuple[ObjectRecord, ...]
    tables: Annotated[tuple[TableBackup, ...], Member(last=True)]
    format: int = MANIFEST_FORMAT_VERSION
    # Adapters were the first system with definitions.
    definitions: Annotated[tuple[tuple[str, str], ...], Member("adapters", optional=True)] = ()


_CODEC = JsonCodec(Manifest)


def definition_folders() -> tuple[str, ...]:
    """Returns the folders of definitions in an instance's root."""
    return tuple(each.definitions for each in systems() if each.definitions is not None)


def encode_manifest(manifest: Manifest) -> tuple[str, bytes]:
    """Returns the backup's id and the content of its manifest."""
    content = _CODEC.format(manifest).encode()
    moment = datetime.fromtimestamp(manifest.time_ms / 1000, UTC)
    time = f"{moment:%Y%m%dT%H%M%S}{manifest.time_ms % 1000:03d}Z"
    return f"{time}-{_checksum(content)}", content


def decode_manifest(backup_id: str, content: bytes) -> Manifest:
    """Returns the manifest, checked as a whole. DataError if it is damaged or newer than this."""
    match = _NAME.fullmatch(backup_id)
    if match is None or match[2] != _checksum(content):
        raise DataError(f"the manifest of backup {backup_id} is damaged: its checksum differs")
    name = f"the manifest of backup {backup_id}"
    manifest = _CODEC.parse(content.decode(), name, DataError)
    if manifest.format > MANIFEST_FORMAT_VERSION:
        raise DataError(
            f"backup {backup_id} has format {manifest.format}, this version reads up to "
            f"{MANIFEST_FORMAT_VERSION}"
        )
    try:
        _check(manifest)
    except InvalidRequestError as error:
        raise DataError(f"{name} is damaged: {error}") from error
    return manifest


def _check(manifest: Manifest) -> None:
    """Checks everything that becomes a name in the instance. Whoever wrote it may be hostile."""
    for wheel in manifest.wheels:
        _check_form(_WHEEL, wheel.path)
    folders = "|".join(re.escape(each) for each in definition_folders())
    for path, _ in manifest.definitions:
        _check_form(re.compile(rf"(?:{folders})/[^/]+\.json"), path)
    for table in manifest.tables:
        if not is_table_id(table.id):
            raise InvalidRequestError(f"invalid table id {table.id[:200]!r}")
        check_table_name(table.name)
        for record in (table.state, table.objects):
            _check_form(re.compile(f"{table.id}/.+"), record.path)
    for what in ("id", "name"):
        values = [getattr(table, what) for table in manifest.tables]
        if len(set(values)) < len(values):
            raise InvalidRequestError(f"two tables have the same {what}")


def _check_form(pattern: re.Pattern[str], path: str) -> None:
    if pattern.fullmatch(check_path(path)) is None:
        raise InvalidRequestError(f"invalid path {path[:200]!r}")


def time_of_id(backup_id: str) -> int:
    """Returns the time of a backup in milliseconds."""
    moment = datetime.strptime(f"{backup_id[:15]}+0000", "%Y%m%dT%H%M%S%z")
    return int(moment.timestamp()) * 1000 + int(backup_id[15:18])


def is_backup_id(text: str) -> bool:
    """Returns whether the text is a complete id of a backup."""
    return _NAME.fullmatch(text) is not None


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
