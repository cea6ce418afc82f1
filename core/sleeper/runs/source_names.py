"""Names of files that users bring, as a job keeps them and as they are opened."""

from collections.abc import Sequence
from pathlib import Path

from sleeper.datafiles.sources.files import SourceFile
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.runs.source_files import LOCAL_SCHEME, s3_source
from sleeper.storage.bucket import is_s3_url


def absolute_names(instance: Instance, paths: Sequence[str]) -> tuple[str, ...]:
    """Names by which this process, whatever its folder, finds the files."""
    return tuple(p if is_s3_url(p) else _absolute_path(instance, p) for p in paths)


def _absolute_path(instance: Instance, path: str) -> str:
    if instance.is_local:
        return str(Path(path).resolve())
    if not Path(path).exists():
        raise InvalidRequestError(
            f"file {path} does not exist on this machine; one in S3 is named s3://bucket/key"
        )
    return f"{LOCAL_SCHEME}{Path(path).resolve()}"


def check_submittable(instance: Instance, path: str) -> None:
    """Whoever takes the job from the queue must be able to read the file."""
    if is_s3_url(path):
        return
    if not instance.is_local:
        raise InvalidRequestError(
            f"file {path} is not in S3, where the tasks of an AWS instance read: upload it and "
            "name it s3://bucket/key, or leave out --submit to take it in from here"
        )
    if not Path(path).exists():
        raise InvalidRequestError(f"file {path} does not exist")


def source_file(instance: Instance, name: str) -> SourceFile:
    """The file, folder or prefix. InvalidRequestError if it may not be read."""
    # A bare `bucket/key` is how other clients name an object.
    if is_s3_url(name) or not (instance.is_local or name.startswith(LOCAL_SCHEME)):
        return s3_source(name, instance.root, instance.properties())
    return Path(name.removeprefix(LOCAL_SCHEME))
