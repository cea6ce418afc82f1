"""Manifests: which files belong to a snapshot.

The data files of a snapshot are divided over *buckets* by a hash of their URLs, and a bucket has a
manifest of its data files and one of their delete files. So a commit replaces the manifests of few
buckets, and the bucket of a file follows from its URL. The name of a manifest is
`m-<bucket>-of-<buckets>-<content>-<snapshot>-<unique>.avro`.

A manifest consists of *blocks* of about ten files, which Avro compresses one by one. The manifest
that replaces another one copies the blocks without changes, which takes a tenth of the time that
their files would take.
"""

import io
import json
import re
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sleeper import DISTRIBUTION
from sleeper.errors import InvalidRequestError
from sleeper.iceberg.avro_schemas import MANIFEST_ENTRY, MANIFEST_FILE
from sleeper.iceberg.schemas import schema_to_iceberg
from sleeper.schema.model import Schema

try:
    import fastavro
    from fastavro.write import Writer
except ModuleNotFoundError as error:
    raise InvalidRequestError(
        f"publishing tables needs {error.name}: pip install '{DISTRIBUTION}[iceberg]'"
    ) from error

_ENTRY = fastavro.parse_schema(MANIFEST_ENTRY)
_LISTED = fastavro.parse_schema(MANIFEST_FILE)
_BUCKET = re.compile(r"/m-(\d+)-of-(\d+)-[a-z]+-\d+-[0-9a-f]+\.avro$")
_COMPRESSION_LEVEL = 1
_BLOCK_BYTES = 2000


class Content(IntEnum):
    """What files of a manifest hold: rows, or positions of hidden rows."""

    DATA = 0
    DELETES = 1


class Status(IntEnum):
    """Whether the snapshot of the manifest added the file, or an earlier one."""

    EXISTING = 0
    ADDED = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a manifest: `number` is its sequence number, `file` the record `data_file`."""

    number: int
    file: dict[str, Any]

    @property
    def path(self) -> str:
        """The URL of the file."""
        return str(self.file["file_path"])

    @property
    def data_path(self) -> str:
        """The URL of the data file: of this one, or of that whose rows it hides."""
        return str(self.file["referenced_data_file"] or self.file["file_path"])

    @property
    def rows(self) -> int:
        """The number of rows, or of positions."""
        return int(self.file["record_count"])


@dataclass(frozen=True, slots=True)
class CopiedBlocks:
    """Blocks of a manifest whose files stay: so many, with so many rows or positions.

    No file has a smaller sequence number than `smallest_number`.
    """

    blocks: tuple[Any, ...]
    files: int
    rows: int
    smallest_number: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest in a list of manifests. `listed` is its record."""

    bucket: int
    buckets: int
    listed: dict[str, Any]

    @property
    def content(self) -> Content:
        """What its files hold."""
        return Content(self.listed["content"])

    @property
    def url(self) -> str:
        """The URL of the manifest."""
        return str(self.listed["manifest_path"])

    @property
    def files(self) -> int:
        """The number of its files."""
        return int(self.listed["added_files_count"] + self.listed["existing_files_count"])

    @property
    def rows(self) -> int:
        """The rows of its data files, or the positions of its delete files."""
        return int(self.listed["added_rows_count"] + self.listed["existing_rows_count"])


def bucket_of(data_url: str, buckets: int) -> int:
    """Returns the bucket of a data file, and of the delete file of its rows."""
    return zlib.crc32(data_url.encode()) % buckets


def choose_buckets(files: int, present: int) -> int:
    """Returns the number of buckets for so many data files; the present one if it is suitable.

    With the square root, neither a manifest nor the list of manifests is long.
    """
    suitable: int = 1 << max(0, (files - 1).bit_length() // 2)
    return present if present // 4 < suitable <= present * 4 else suitable


def manifest_name(bucket: int, buckets: int, content: Content, snapshot: int) -> str:
    """Returns a new name of a manifest."""
    unique = uuid.uuid4().hex[:12]
    return f"m-{bucket}-of-{buckets}-{content.name.lower()}-{snapshot}-{unique}.avro"


def list_name(snapshot: int) -> str:
    """Returns a new name of the list of the manifests of a snapshot."""
    return f"snap-{snapshot}-{uuid.uuid4().hex[:12]}.avro"


def encode_manifest(
    entries: Sequence[Entry],
    content: Content,
    snapshot: int,
    parent: int,
    schema: Schema,
    copied: CopiedBlocks | None = None,
) -> tuple[bytes, dict[str, Any]]:
    """Returns the content of a manifest, and its record without path and length.

    Files of transactions after the parent of the snapshot are its additions. They come last.
    """
    records = [_to_record(entry, snapshot, parent) for entry in entries]
    records.sort(key=lambda each: each["status"])
    added = [each for each in records if each["status"] is Status.ADDED]
    rows, added_rows = (
        sum(each["data_file"]["record_count"] for each in some) for some in (records, added)
    )
    numbers = [entry.number for entry in entries]
    files = len(records)
    if copied is not None:
        rows += copied.rows
        files += copied.files
        numbers.append(copied.smallest_number)
    metadata = {
        "schema": json.dumps(schema_to_iceberg(schema)),
        "schema-id": str(schema.version),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": content.name.lower(),
    }
    listed = {
        "partition_spec_id": 0,
        "content": content.value,
        "sequence_number": snapshot,
        "min_sequence_number": min(numbers),
        "added_snapshot_id": snapshot,
        "added_files_count": len(added),
        "existing_files_count": files - len(added),
        "deleted_files_count": 0,
        "added_rows_count": added_rows,
        "existing_rows_count": rows - added_rows,
        "deleted_rows_count": 0,
    }
    return _encode(_ENTRY, records, metadata, copied.blocks if copied else ()), listed


def _to_record(entry: Entry, snapshot: int, parent: int) -> dict[str, Any]:
    is_added = entry.number > parent
    return {
        "status": Status.ADDED if is_added else Status.EXISTING,
        "snapshot_id": snapshot if is_added else entry.number,
        "sequence_number": entry.number,
        "file_sequence_number": entry.number,
        "data_file": entry.file,
    }


def decode_manifest(content: bytes) -> list[Entry]:
    """Returns the files of a manifest."""
    return _to_entries(fastavro.reader(io.BytesIO(content)))


def split_manifest(
    content: bytes, manifest: Manifest, urls: Iterable[str]
) -> tuple[list[Entry], CopiedBlocks | None]:
    """Returns the files of blocks that have one of the URLs, and the other blocks if there are any.

    Files that the snapshot of the manifest added are among the former, because a later one does not
    add them. So a change adds few blocks at most.
    """
    searched = [url.encode() for url in urls]
    added = int(manifest.listed["added_files_count"])
    entries: list[Entry] = []
    copied = []
    for block in reversed([*fastavro.block_reader(io.BytesIO(content))]):
        stored: bytes = block.bytes_.getvalue()
        if added > 0 or any(url in stored for url in searched):
            entries += _to_entries(block)
        else:
            copied.append(block)
        added -= block.num_records
    if not copied:
        return entries, None
    rows = manifest.rows - sum(entry.rows for entry in entries)
    smallest: int = manifest.listed["min_sequence_number"]
    return entries, CopiedBlocks(tuple(copied), manifest.files - len(entries), rows, smallest)


def _to_entries(records: Iterable[Any]) -> list[Entry]:
    return [Entry(each["sequence_number"], each["data_file"]) for each in records]


def encode_list(manifests: Iterable[Manifest], snapshot: int, parent: int | None) -> bytes:
    """Returns the content of the list of a snapshot's manifests."""
    metadata = {
        "snapshot-id": str(snapshot),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot),
        "format-version": "2",
    }
    return _encode(_LISTED, [each.listed for each in manifests], metadata)


def decode_list(content: bytes) -> list[Manifest]:
    """Returns the manifests of a list."""
    records: Iterable[Any] = fastavro.reader(io.BytesIO(content))
    return [make_manifest(each) for each in records]


def make_manifest(listed: dict[str, Any]) -> Manifest:
    """Returns the manifest of a record of a list."""
    match = _BUCKET.search(listed["manifest_path"])
    assert match is not None
    return Manifest(int(match[1]), int(match[2]), listed)


def _encode(
    schema: Any,
    records: Sequence[dict[str, Any]],
    metadata: dict[str, str],
    copied: Sequence[Any] = (),
) -> bytes:
    sink = io.BytesIO()
    writer = Writer(
        sink,
        schema,
        codec="deflate",
        compression_level=_COMPRESSION_LEVEL,
        metadata=metadata,
        sync_interval=_BLOCK_BYTES,
    )
    for block in copied:
        writer.write_block(block)
    for record in records:
        writer.write(record)
    writer.flush()
    return sink.getvalue()
