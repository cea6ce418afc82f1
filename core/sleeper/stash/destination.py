"""The destination of stashes: its roots, which of them are complete, and which is the latest."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.stash.files import StashFiles
from sleeper.stash.layout import (
    FILE_SUFFIXES,
    LATEST,
    SUCCESS,
    TABLES,
    EmoTable,
    StashedTable,
    Success,
    is_root_name,
    is_stash_file,
    parse_emo_directory,
    parse_tables,
)
from sleeper.storage.bucket import is_s3_url
from sleeper.storage.file_system import FileSystemRoot, parse_url
from sleeper.storage.location import DataRoot, open_root

_FILE_SCHEMES = ("file://", "local://")
# Wildcards in the names of objects.
_TO_ESCAPE = re.compile(r"[*?$]")


@dataclass(frozen=True, slots=True)
class StashRoot:
    """A root of a destination. `success` is None if it is not complete, or `_SUCCESS` is damaged.

    `damage` is then the error.
    """

    name: str
    success: Success | None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class StashDestination:
    """A destination of stashes. `name` is the user's, for errors."""

    root: StashFiles
    name: str

    def roots(self) -> list[StashRoot]:
        """Returns the roots by name, oldest first."""
        names = sorted(filter(is_root_name, self.root.list_folders("")))
        return list(map(self._read_root, names))

    def success(self, name: str) -> Success | None:
        """Returns the content of a root's `_SUCCESS`, None if it is not complete."""
        path = f"{name}/{SUCCESS}"
        try:
            return Success.from_bytes(self.root.read(path), self.root.url_of(path))
        except NotFoundError:
            return None

    def latest(self) -> str:
        """Returns the name of the root that was completed last. NotFoundError if none was."""
        try:
            name = self.root.read(LATEST).decode(errors="replace").strip()
        except NotFoundError:
            raise NotFoundError(f"{self.name} has no complete stash") from None
        if not is_root_name(name):
            raise NotFoundError(f"{self.name}/{LATEST} names no stash: {name[:100]!r}")
        return name

    def tables(self, name: str) -> tuple[StashedTable, ...]:
        """Returns the tables of a complete root. NotFoundError if it has no `_TABLES`."""
        path = f"{name}/{TABLES}"
        return parse_tables(self.root.read(path), self.root.url_of(path))

    def emo_tables(self, name: str) -> tuple[EmoTable, ...]:
        """Returns the tables of a complete root that EmoDB made; none if another program did.

        Files that other programs put there do not count. DataError if a file is not gzipped.
        """
        sizes: dict[str, list[int]] = {}
        if self.success(name) is None:
            return ()
        for each in self.root.list_objects(name):
            path = each.path[len(name) + 1 :]
            if is_stash_file(path) and path != SUCCESS:
                return ()
            directory = parse_emo_directory(path)
            if directory is not None:
                sizes.setdefault(directory, []).append(each.bytes)
        return tuple(
            EmoTable(each.replace("~", ":"), each, len(bytes_of_files), sum(bytes_of_files))
            for each, bytes_of_files in sizes.items()
        )

    def emo_files(self, name: str, directory: str) -> list[tuple[str, int]]:
        """Returns the paths and bytes of a table's files in a root that EmoDB made, in order."""
        objects = self.root.list_objects(f"{name}/{directory}")
        return sorted(
            (each.path, each.bytes)
            for each in objects
            if parse_emo_directory(each.path[len(name) + 1 :]) is not None
        )

    def files(self, name: str, directory: str = "") -> list[tuple[str, int]]:
        """Returns the paths and bytes of a root's pieces, or of one table's, in order."""
        folder = f"{name}/{directory}" if directory else name
        objects = self.root.list_objects(folder)
        return sorted((o.path, o.bytes) for o in objects if o.path.endswith(FILE_SUFFIXES))

    def record_latest(self) -> str:
        """Makes `_LATEST` name the root that was completed last, and returns its name.

        Processes that finish at the same time do this at the same time. Each looks again after
        it wrote, so the last one that writes has seen every complete root.
        """
        written = None
        while (newest := self._completed_last()) != written:
            with self.root.replacing(LATEST) as sink:
                sink.write(newest.encode())
            written = newest
        return newest

    def _read_root(self, name: str) -> StashRoot:
        try:
            return StashRoot(name, self.success(name))
        except DataError as error:
            return StashRoot(name, None, str(error))

    def _completed_last(self) -> str:
        complete = [(r.success.completed_ms, r.name) for r in self.roots() if r.success]
        if not complete:
            raise NotFoundError(f"{self.name} has no complete stash")
        return max(complete)[1]


def open_to_write(name: str, like: DataRoot) -> StashDestination:
    """Opens a destination and creates it if necessary."""
    location = parse_destination(name)
    if _is_folder(location) and Path(location).exists() and not Path(location).is_dir():
        raise InvalidRequestError(f"{name} is a file (expected a folder, or s3://bucket/prefix)")
    return StashDestination(_open_files(location, like), name)


def open_to_read(name: str, like: DataRoot | None = None) -> StashDestination:
    """Opens a destination. NotFoundError if it is a folder that does not exist."""
    location = parse_destination(name)
    if _is_folder(location) and not Path(location).is_dir():
        raise NotFoundError(f"{name} has no stash: the folder does not exist")
    return StashDestination(_open_files(location, like), name)


def parse_destination(name: str) -> str:
    """Returns the absolute path or URL of a destination, equal for all spellings of it."""
    if is_s3_url(name):
        bucket, _, prefix = name.partition("://")[2].partition("/")
        return f"s3://{bucket}/{prefix.strip('/')}"
    if name.startswith(_FILE_SCHEMES):
        parts = urlsplit(name)
        if parts.netloc not in ("", "localhost"):
            raise InvalidRequestError(f"{name} names another machine (expected file:///folder)")
        name = unquote(parts.path)
    elif "://" in name:
        return parse_url(name)
    if not name:
        raise InvalidRequestError("the destination is empty (expected a folder or a URL)")
    return str(Path(name).resolve())


def _open_files(location: str, like: DataRoot | None) -> StashFiles:
    """Opens the files of a location that `parse_destination` returned."""
    if is_s3_url(location) or _is_folder(location):
        return open_root(location, like)
    return FileSystemRoot(location)


def _is_folder(location: str) -> bool:
    return "://" not in location


def reading_policy(destination: str) -> dict[str, Any]:
    """Returns the IAM policy with which the stashes of a destination can be read.

    Listing has no condition on the prefix: with one, S3 answers 403 instead of 404 for an object
    that does not exist, such as the `_SUCCESS` of a stash that is being written.
    InvalidRequestError if the destination is not in S3.
    """
    url = parse_destination(destination)
    if not is_s3_url(url):
        raise InvalidRequestError(
            f"{destination} has no policy (expected s3://bucket/prefix: other places have "
            "permissions of their own)"
        )
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise InvalidRequestError(f"{destination} has no bucket (expected s3://bucket/prefix)")
    below = _TO_ESCAPE.sub(lambda match: f"${{{match[0]}}}", f"{prefix}/" if prefix else "")
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Sid": "StashS3ListBucket",
                "Action": ["s3:ListBucket"],
                "Resource": [f"arn:aws:s3:::{bucket}"],
            },
            {
                "Effect": "Allow",
                "Sid": "StashS3GetObject",
                "Action": ["s3:GetObject"],
                "Resource": [f"arn:aws:s3:::{bucket}/{below}*"],
            },
        ],
    }
