"""Users' files of a local instance: local files and objects in S3."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sleeper.errors import InvalidRequestError
from sleeper.properties.values import InstanceProperties
from sleeper.storage.bucket import Bucket, is_s3_url
from sleeper.storage.location import DataRoot
from sleeper.storage.s3_file import SourceFile
from sleeper.storage.source_names import LOCAL_SCHEME, readable_buckets, s3_source


@dataclass(frozen=True, slots=True)
class LocalSources:
    """Implements `sleeper.instance.Sources`. It loads the file readers on first use."""

    root: DataRoot
    properties: Callable[[], InstanceProperties]

    def find(self, path: str) -> Sequence[tuple[str, int]]:
        from sleeper.datafiles.sources.files import find_source_files

        files = find_source_files([Path(path.removeprefix(LOCAL_SCHEME))])
        return [
            (str(file.resolve()), file.stat().st_size) for file in files if isinstance(file, Path)
        ]

    def open(self, name: str) -> SourceFile:
        if is_s3_url(name):
            return s3_source(name, self.root, self.properties())
        return Path(name.removeprefix(LOCAL_SCHEME))

    def job_name(self, path: str) -> str:
        return path if is_s3_url(path) else str(Path(path).resolve())

    def check_submitted(self, path: str) -> None:
        if not is_s3_url(path) and not Path(path).exists():
            raise InvalidRequestError(f"file {path} does not exist")

    def check_message(self, names: Iterable[str]) -> None:
        pass

    def buckets(self) -> tuple[Bucket, ...]:
        return readable_buckets(self.root, self.properties())
