"""Names of files that users bring, as a job keeps them and as they are opened."""

from collections.abc import Sequence
from pathlib import Path

from sleeper.datafiles.bucket import is_s3_url
from sleeper.datafiles.s3_file import s3_file
from sleeper.datafiles.sources import SourceFile
from sleeper.wiring.engine import source_buckets
from sleeper.wiring.instance import Instance


def absolute_names(instance: Instance, paths: Sequence[str]) -> tuple[str, ...]:
    """The same files by names that do not depend on where a process stands."""
    return tuple(p if is_in_s3(instance, p) else str(Path(p).resolve()) for p in paths)


def is_in_s3(instance: Instance, name: str) -> bool:
    """Files of an instance whose data is in a bucket are in buckets too, named in any form."""
    return is_s3_url(name) or bool(instance.root.buckets)


def source_file(instance: Instance, name: str) -> SourceFile:
    """The file, or the folder or prefix of files. InvalidRequestError if it may not be read."""
    if is_in_s3(instance, name):
        return s3_file(name, (*instance.root.buckets, *source_buckets(instance)))
    return Path(name.removeprefix("file://"))
