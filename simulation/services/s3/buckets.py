"""Buckets and their objects, each also a file below a folder for the query engine."""

import hashlib
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PAGE_KEYS_MAX = 1000


class MissingBucketError(Exception):
    """The bucket does not exist."""


class ConditionError(Exception):
    """An object exists, or does not have the entity tag, against the condition of a put."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's content and what S3 says about it."""

    content: bytes
    e_tag: str
    modified_ms: int

    def describe(self, path: str) -> dict[str, Any]:
        """Returns the metadata as the object store does."""
        seconds = self.modified_ms // 1000
        return {
            "path": path,
            "last_modified": datetime.fromtimestamp(seconds, UTC),
            "size": len(self.content),
            "e_tag": self.e_tag,
            "version": None,
        }


@dataclass(slots=True)
class StoredBucket:
    """The objects of a bucket, by key. `folder` has a file for each, if it is set."""

    folder: Path | None
    objects: dict[str, StoredObject] = field(default_factory=dict)
    _keys: list[str] = field(default_factory=list)
    _writes: Counter[str] = field(default_factory=Counter)

    def put(
        self, key: str, content: bytes, now_ms: int, condition: str | None = None, parts: int = 0
    ) -> StoredObject:
        """Puts an object. `condition` is a tag that it must have, or empty if it must be new."""
        before = self.objects.get(key)
        if condition is not None and (before.e_tag if before else "") != condition:
            raise ConditionError(key)
        digest = hashlib.md5(content).hexdigest()
        stored = StoredObject(content, f'"{digest}{f"-{parts}" if parts else ""}"', now_ms)
        if before is None:
            insort(self._keys, key)
        self.objects[key] = stored
        self._write_file(key, content)
        return stored

    def damage(self, key: str, content: bytes) -> None:
        """Changes the content of an object, and nothing that a listing shows."""
        self.objects[key] = replace(self.objects[key], content=content)
        self._write_file(key, content)

    def delete(self, key: str) -> None:
        """Deletes an object if it exists."""
        if self.objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
            if self.folder is not None:
                (self.folder / key).unlink()

    @contextmanager
    def writing(self, key: str) -> Iterator[None]:
        """Counts the block as a write of an object that is in flight."""
        self._writes[key] += 1
        try:
            yield
        finally:
            self._writes[key] -= 1

    def conflicts(self, key: str) -> bool:
        """Returns whether a write of an object is in flight beside that of the caller."""
        return self._writes[key] > 1

    def page(self, prefix: str, after: str) -> Sequence[str]:
        """Returns a page of the keys with a prefix after a key, in order."""
        start = bisect_left(self._keys, max(prefix, after))
        page: list[str] = []
        for key in self._keys[start : start + PAGE_KEYS_MAX + 1]:
            if not key.startswith(prefix):
                break
            if key > after:
                page.append(key)
        return page[:PAGE_KEYS_MAX]

    def keys(self, prefix: str) -> Iterator[str]:
        """Yields the keys with a prefix, in order."""
        start = bisect_left(self._keys, prefix)
        for key in self._keys[start:]:
            if not key.startswith(prefix):
                return
            yield key

    def _write_file(self, key: str, content: bytes) -> None:
        if self.folder is None:
            return
        target = self.folder / key
        target.parent.mkdir(parents=True, exist_ok=True)
        # A reader that has the old file open keeps reading that, as from S3.
        target.unlink(missing_ok=True)
        target.write_bytes(content)


class ObjectService:
    """The buckets of an account. `now_ms` is the time of S3."""

    def __init__(self, now_ms: Callable[[], int], folder: Path | None) -> None:
        self.now_ms = now_ms
        self._folder = folder
        self._buckets: dict[str, StoredBucket] = {}

    def create(self, name: str) -> StoredBucket:
        """Creates a bucket, or returns the one of that name."""
        if name not in self._buckets:
            folder = None if self._folder is None else self._folder / name
            if folder is not None:
                folder.mkdir(parents=True)
            self._buckets[name] = StoredBucket(folder)
        return self._buckets[name]

    def bucket(self, name: str) -> StoredBucket:
        """Returns a bucket. MissingBucketError if it does not exist."""
        if name not in self._buckets:
            raise MissingBucketError(name)
        return self._buckets[name]

    def folder_of(self, name: str) -> Path:
        """Returns the folder with the files of a bucket's objects."""
        folder = self.bucket(name).folder
        if folder is None:
            raise ValueError("the engine reads objects only if the services have a folder")
        return folder
