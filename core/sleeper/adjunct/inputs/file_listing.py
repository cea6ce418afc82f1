"""The files of a dataset: one file, a folder, or those in it that match a pattern.

A file is complete by itself. The files of a folder are complete when it has `_SUCCESS`. Files and
folders whose names begin with `_` or a dot are not part of a dataset, nor are files of an unknown
format.
"""

import hashlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sleeper.datafiles.sources.files import SourceFormat
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError, describe_error
from sleeper.storage.bucket import Bucket, is_s3_url, split_s3_url
from sleeper.storage.bucket_folder import S3File, SourceFile

SUCCESS = "_SUCCESS"
_ENDINGS = tuple(ending for each in SourceFormat for ending in each.value)
_WILDCARD = re.compile(r"[*?\[]")
_DIGEST_DIGITS = 16
# A program that writes a file in place pauses for less than that.
_SETTLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file by its path below the folder. `stamp` differs for each content of a size."""

    path: str
    file: SourceFile
    bytes: int
    stamp: str


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files of a dataset in the order of their paths, and the digest that names it."""

    files: tuple[SourceFile, ...]
    digest: str


class FilePattern:
    """A path, URL of S3 or pattern, whose files form a dataset."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._folder, self._pattern = _split_pattern(text)

    def list(self) -> FileListing | None:
        """Returns the files of the complete dataset; None as long as there is none.

        NotFoundError if there is neither a file nor a folder.
        """
        single = self._find_single()
        if single is not None:
            return None if _may_change(single) else _make_listing([single], ())
        below = list(self._list_below())
        files = [each for each in below if self._is_part(each.path)]
        marker = [each for each in below if each.path == SUCCESS]
        return _make_listing(files, marker) if marker else None

    def _find_single(self) -> ListedFile | None:
        if self._pattern is not None:
            return None
        folder = self._folder
        if isinstance(folder, S3File):
            version = None if folder.key.endswith("/") else folder.find_version()
            if version is None:
                return None
            listed = ListedFile(folder.name, folder, *version)
        elif folder.is_file():
            listed = _list_file(folder.name, folder)
        else:
            return None
        if not folder.name.lower().endswith(_ENDINGS):
            raise InvalidRequestError(
                f"file {folder}: unknown format (expected a name that ends with one of "
                f"{', '.join(_ENDINGS)})"
            )
        return listed

    def _list_below(self) -> Iterator[ListedFile]:
        folder = self._folder
        if isinstance(folder, S3File):
            prefix = folder.key.rstrip("/") + "/"
            is_empty = True
            for file, size, stamp in folder.below_with_versions():
                is_empty = False
                yield ListedFile(file.key.removeprefix(prefix), file, size, stamp)
            if is_empty:
                raise NotFoundError(f"{self.text} has no files (expected a file or a folder)")
        elif not folder.is_dir():
            raise NotFoundError(f"{folder} does not exist (expected a file or a folder)")
        else:
            yield from _list_folder(folder)

    def _is_part(self, path: str) -> bool:
        parts = PurePosixPath(path).parts
        if any(part.startswith(("_", ".")) for part in parts):
            return False
        if self._pattern is None:
            return path.lower().endswith(_ENDINGS)
        same_depth = len(parts) == len(PurePosixPath(self._pattern).parts)
        return same_depth and PurePosixPath(path).match(self._pattern)


def _split_pattern(text: str) -> tuple[SourceFile, str | None]:
    """Returns the file or folder before the first part with a wildcard, and the pattern."""
    if is_s3_url(text):
        bucket, key = split_s3_url(text)
        fixed, pattern = _split_parts(key)
        return S3File(Bucket(bucket), fixed), pattern
    if Path(text).exists():
        return Path(text).absolute(), None
    fixed, pattern = _split_parts(text)
    return Path(fixed).absolute(), pattern


def _split_parts(path: str) -> tuple[str, str | None]:
    match = _WILDCARD.search(path)
    if match is None:
        return path, None
    end = path.rfind("/", 0, match.start()) + 1
    return path[:end].rstrip("/") or path[:end], path[end:]


def _list_folder(folder: Path) -> Iterator[ListedFile]:
    try:
        for path in folder.rglob("*"):
            if path.is_file():
                try:
                    yield _list_file(path.relative_to(folder).as_posix(), path)
                except NotFoundError:
                    continue  # deleted meanwhile
    except OSError as error:
        raise UnavailableError(f"cannot list {folder}: {describe_error(error)}") from error


def _list_file(path: str, file: Path) -> ListedFile:
    try:
        status = file.stat()
    except FileNotFoundError as error:
        raise NotFoundError(f"{file} does not exist (expected a file or a folder)") from error
    return ListedFile(path, file, status.st_size, str(status.st_mtime_ns))


def _may_change(listed: ListedFile) -> bool:
    """Returns whether a local file was written so lately that it may not be complete."""
    if isinstance(listed.file, S3File):
        return False  # an object is written at once
    return 0 <= time.time() - int(listed.stamp) / 1e9 < _SETTLE_SECONDS


def _make_listing(files: list[ListedFile], marker: list[ListedFile] | tuple[()]) -> FileListing:
    files.sort(key=lambda each: each.path)
    facts = [f"{each.path}\0{each.bytes}\0{each.stamp}\n" for each in (*files, *marker)]
    digest = hashlib.sha256("".join(facts).encode()).hexdigest()[:_DIGEST_DIGITS]
    return FileListing(tuple(each.file for each in files), digest)
