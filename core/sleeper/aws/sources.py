"""Users' files of an AWS instance: objects in S3 and, for commands, local files."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sleeper.errors import InvalidRequestError
from sleeper.properties.values import InstanceProperties
from sleeper.storage.bucket import Bucket, is_s3_url
from sleeper.storage.location import (
    LOCAL_SCHEME,
    DataRoot,
    find_s3_files,
    readable_buckets,
    s3_source,
)
from sleeper.storage.s3_file import SourceFile


@dataclass(frozen=True, slots=True)
class AwsSources:
    """Implements `sleeper.instance.Sources`. A name `bucket/key` is an object too."""

    root: DataRoot
    properties: Callable[[], InstanceProperties]

    def find(self, path: str) -> Sequence[tuple[str, int]]:
        return find_s3_files(path, self.root, self.properties())

    def open(self, name: str) -> SourceFile:
        if name.startswith(LOCAL_SCHEME):
            return Path(name.removeprefix(LOCAL_SCHEME))
        return s3_source(name, self.root, self.properties())

    def job_name(self, path: str) -> str:
        if is_s3_url(path):
            return path
        if not Path(path).exists():
            raise InvalidRequestError(
                f"file {path} does not exist on this machine; name a file in S3 s3://bucket/key"
            )
        return f"{LOCAL_SCHEME}{Path(path).resolve()}"

    def check_submitted(self, path: str) -> None:
        if not is_s3_url(path):
            raise InvalidRequestError(
                f"file {path} is not in S3, where the tasks of an AWS instance read: upload it and "
                "name it s3://bucket/key, or leave out --submit to ingest it from this machine"
            )

    def check_message(self, names: Iterable[str]) -> None:
        for name in names:
            if name.startswith(LOCAL_SCHEME):
                raise InvalidRequestError(f"file {name} is not in S3: expected s3://bucket/key")

    def buckets(self) -> tuple[Bucket, ...]:
        return readable_buckets(self.root, self.properties())
