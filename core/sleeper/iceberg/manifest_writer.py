"""Writes the manifests of a version: those that differ from the ones before, or all."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sleeper.iceberg.file_rows import Changes, FileRows
from sleeper.iceberg.hidden_rows import (
    FILE_PATH_ID,
    delete_file_name,
    encode_delete_file,
    find_hidden,
    has_signature,
)
from sleeper.iceberg.key_bounds import lower_bound, upper_bound
from sleeper.iceberg.location import Location
from sleeper.iceberg.manifests import Content, CopiedBlocks, Entry, Manifest, bucket_of
from sleeper.iceberg.metadata_versions import DELETES, url_of
from sleeper.iceberg.schemas import SORT_ORDER_ID
from sleeper.instance import OpenTable
from sleeper.statestore.reading.table_state import TableState


@dataclass(frozen=True, slots=True)
class _Part:
    """A manifest without the files that are `removed` from it."""

    manifest: Manifest
    removed: list[Entry]
    entries: list[Entry]
    copied: CopiedBlocks | None


class ManifestWriter:
    """Writes manifests of the version of a state to a location. Its parent is a number or 0."""

    def __init__(
        self, table: OpenTable, location: Location, state: TableState, parent: int
    ) -> None:
        self._table = table
        self._location = location
        self._version = state.version
        self._schema = state.schema
        self._root = table.instance.storage.root
        self._parent = parent

    def write_all(
        self, present: Sequence[FileRows], listed: Sequence[Manifest], buckets: int
    ) -> list[Manifest]:
        """Writes all manifests. Delete files of unchanged rows stay."""
        read = self._location.read_manifest
        deletes = (each for each in listed if each.content is Content.DELETES)
        hiding = {entry.data_path: entry for each in deletes for entry in read(each)}
        result: list[Manifest] = []
        for bucket, changed in self._by_bucket(present, buckets).items():
            result += self._write_bucket((bucket, buckets), changed, hiding, {})
        return result

    def write_changed(
        self, changes: Changes, listed: Sequence[Manifest], buckets: int
    ) -> list[Manifest]:
        """Writes the manifests of the buckets with changed files. The others stay."""
        present = self._by_bucket(changes.present, buckets)
        urls: dict[int, set[str]] = defaultdict(set)
        absent = (url_of(self._root, path) for path in changes.absent)
        for url in (*absent, *map(self._url, changes.present)):
            urls[bucket_of(url, buckets)].add(url)
        before: dict[int, dict[Content, _Part]] = defaultdict(dict)
        result: list[Manifest] = []
        for each in listed:
            if each.bucket in urls:
                before[each.bucket][each.content] = self._split(each, urls[each.bucket])
            else:
                result.append(each)
        for bucket in urls:
            parts = before[bucket]
            deletes = parts[Content.DELETES].removed if Content.DELETES in parts else []
            hiding = {entry.data_path: entry for entry in deletes}
            result += self._write_bucket((bucket, buckets), present[bucket], hiding, parts)
        return result

    def _by_bucket(self, files: Iterable[FileRows], buckets: int) -> dict[int, list[FileRows]]:
        result: dict[int, list[FileRows]] = defaultdict(list)
        for each in files:
            result[bucket_of(self._url(each), buckets)].append(each)
        return result

    def _split(self, manifest: Manifest, urls: Collection[str]) -> _Part:
        entries, copied = self._location.split_manifest(manifest, urls)
        removed = [each for each in entries if each.data_path in urls]
        left = [each for each in entries if each.data_path not in urls]
        return _Part(manifest, removed, left, copied)

    def _write_bucket(
        self,
        bucket: tuple[int, int],
        changed: Sequence[FileRows],
        hiding: Mapping[str, Entry],
        before: Mapping[Content, _Part],
    ) -> Iterator[Manifest]:
        """Writes the manifests of a bucket: of what is left of those before, and of changed files.

        `hiding` has the entries of delete files that may be used again.
        """
        new: dict[Content, list[Entry]] = {content: [] for content in Content}
        for rows in changed:
            hidden = None if rows.is_whole else self._hide(rows, hiding.get(self._url(rows)))
            if hidden is None or hidden.rows < rows.file.rows:
                new[Content.DATA].append(self._data_entry(rows))
                new[Content.DELETES] += [] if hidden is None else [hidden]
        for content, added in new.items():
            part = before.get(content)
            if part is not None and not added and not part.removed:
                yield part.manifest
            elif part is not None:
                yield from self._write(bucket, content, [*part.entries, *added], part.copied)
            else:
                yield from self._write(bucket, content, added, None)

    def _write(
        self,
        bucket: tuple[int, int],
        content: Content,
        entries: list[Entry],
        copied: CopiedBlocks | None,
    ) -> Iterator[Manifest]:
        """Writes a manifest, unless it would be empty."""
        if entries or copied is not None:
            yield self._location.write_manifest(
                entries, content, bucket, self._version, self._parent, self._schema, copied
            )

    def _hide(self, rows: FileRows, before: Entry | None) -> Entry | None:
        """Returns the entry of the delete file of a file's rows; None if no row is hidden."""
        signature = rows.signature
        if before is not None and has_signature(before.path, signature):
            return before
        key_files = self._table.instance.queries.engine().key_files
        hidden = find_hidden(rows, self._schema, self._root, key_files)
        url = self._url(rows)
        content, count = encode_delete_file(url, hidden)
        if not count:
            return None
        path = f"{DELETES}/{delete_file_name(signature)}"
        if count < rows.file.rows:
            self._location.put(path, content)
        bounds = [{"key": FILE_PATH_ID, "value": url.encode()}]
        return Entry(
            self._version,
            {
                "content": 1,
                "file_path": url_of(self._location.root, path),
                "file_format": "PARQUET",
                "partition": {},
                "record_count": count,
                "file_size_in_bytes": len(content),
                "null_value_counts": None,
                "lower_bounds": bounds,
                "upper_bounds": bounds,
                "sort_order_id": None,
                "referenced_data_file": url,
            },
        )

    def _data_entry(self, rows: FileRows) -> Entry:
        file, keys = rows.file, self._schema.row_keys
        lower = [(f.id, lower_bound(f, v)) for f, v in zip(keys, file.smallest_key, strict=True)]
        upper = [(f.id, upper_bound(f, v)) for f, v in zip(keys, file.largest_key, strict=True)]
        return Entry(
            rows.added,
            {
                "content": 0,
                "file_path": self._url(rows),
                "file_format": "PARQUET",
                "partition": {},
                "record_count": file.rows,
                "file_size_in_bytes": file.bytes,
                "null_value_counts": _entries((field.id, 0) for field in self._schema.keys),
                "lower_bounds": _entries(lower),
                "upper_bounds": _entries(each for each in upper if each[1] is not None),
                "sort_order_id": SORT_ORDER_ID,
                "referenced_data_file": None,
            },
        )

    def _url(self, rows: FileRows) -> str:
        return url_of(self._root, rows.file.path)


def _entries(values: Iterable[tuple[int, Any]]) -> list[dict[str, Any]]:
    """Returns the entries of a map of Iceberg by field id."""
    return [{"key": key, "value": value} for key, value in values]
