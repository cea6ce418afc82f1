"""Users' files that an instance on AWS ingests: objects, and files of the machine of a command."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sleeper.errors import InvalidRequestError
from sleeper.properties.values import InstanceProperties
from sleeper.storage.bucket import Bucket, is_s3_url
from sleeper.storage.bucket_folder import SourceFile
from sleeper.storage.location import DataRoot
from sleeper.storage.patterns import is_pattern
from sleeper.storage.sources import LOCAL_SCHEME, find_s3_files, readable_buckets, s3_source


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
        if not Path(path).exists() and not is_pattern(path):
            raise InvalidRequestError(
                f"file {path} does not exist on this machine (for a file in S3, pass s3://bucket/key)"
            )
        return f"{LOCAL_SCHEME}{Path(path).resolve()}"

    def check_submitted(self, path: str) -> None:
        if not is_s3_url(path):
            raise InvalidRequestError(
                f"file {path} is not in S3, and tasks of an AWS instance read only S3: upload it "
                "and pass s3://bucket/key, or omit --submit to ingest it from this machine"
            )

    def check_message(self, names: Iterable[str]) -> None:
        for name in names:
            if name.startswith(LOCAL_SCHEME):
                raise InvalidRequestError(f"file {name} is not in S3: expected s3://bucket/key")

    def buckets(self) -> tuple[Bucket, ...]:
        return readable_buckets(self.root, self.properties())
