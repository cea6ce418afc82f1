"""Users' files in buckets, with part of a path's interface."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

import obstore

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.storage.bucket import Bucket, open_bucket, split_s3_url
from sleeper.storage.bucket_folder import ObjectFile, store_errors

_READ_AHEAD_BYTES = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class S3File:
    """An object of a bucket, or all objects whose keys begin with its own and a slash."""

    bucket: Bucket
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket.name}/{self.key}"

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rsplit("/", 1)[-1]

    def open_ranges(self) -> ObjectFile:
        """Opens the object for reads of ranges, one request each."""
        return ObjectFile(open_bucket(self.bucket), self.key)

    def open_stream(self) -> IO[bytes]:
        """Opens the object for a sequential read."""
        return cast(IO[bytes], io.BufferedReader(self.open_ranges(), _READ_AHEAD_BYTES))

    def size(self) -> int | None:
        """Returns the bytes of the object with exactly this key, None if it does not exist."""
        try:
            with store_errors(self.key):
                return obstore.head(open_bucket(self.bucket), self.key)["size"]
        except NotFoundError:
            return None

    def below(self) -> Iterator["S3File"]:
        """Yields the objects below the key, in no order."""
        return (file for file, _ in self.below_with_bytes())

    def below_with_bytes(self) -> Iterator[tuple["S3File", int]]:
        """Yields the objects below the key with their bytes, in no order."""
        with store_errors(self.key):
            for page in obstore.list(open_bucket(self.bucket), prefix=self.key.rstrip("/")):
                for each in page:
                    yield replace(self, key=each["path"]), each["size"]


SourceFile = Path | S3File
"""A file, folder or prefix that a user names by a local path or a URL of S3."""


def s3_file(name: str, buckets: Sequence[Bucket]) -> S3File:
    """Returns the file of an S3 URL or of `bucket/key`.

    InvalidRequestError if its bucket is not one of `buckets`.
    """
    bucket_name, key = split_s3_url(name)
    for bucket in buckets:
        if bucket.name == bucket_name:
            return S3File(replace(bucket, prefix=""), key)
    raise InvalidRequestError(
        f"file {name}: bucket {bucket_name} is not among those that may be read from "
        "(sleeper.ingest.source.bucket)"
    )
