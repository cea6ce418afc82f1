"""The files in S3 that ingest may read, named by users. Loads no data library."""

from collections.abc import Iterable
from dataclasses import replace

from sleeper.datafiles.bucket import Bucket
from sleeper.datafiles.location import DataRoot
from sleeper.datafiles.s3_file import s3_file
from sleeper.errors import InvalidRequestError
from sleeper.properties.instance import INGEST_SOURCE_BUCKETS
from sleeper.properties.values import InstanceProperties
from sleeper.wiring.instance import Instance

LOCAL_SCHEME = "file://"
"""Before the name of a file of the machine of a command, which is no task's."""
_ENDING_BELOW = ".parquet"


def readable_buckets(root: DataRoot, properties: InstanceProperties) -> tuple[Bucket, ...]:
    """The instance's own bucket if it has one, and others that are reached as that is."""
    own = next(iter(root.buckets), Bucket(""))
    names = properties.get(INGEST_SOURCE_BUCKETS)
    others = (replace(own, name=name, prefix="") for name in names if name != own.name)
    return (*root.buckets, *others)


def find_s3_files(name: str, buckets: tuple[Bucket, ...]) -> list[tuple[str, int]]:
    """The URL of the object with its bytes, or of every Parquet file below it, in order.

    InvalidRequestError if there is none, or it is in another bucket than these.
    """
    file = s3_file(name, buckets)
    size = None if file.key.endswith("/") else file.size()
    if size is not None:
        return [(str(file), size)]
    found = sorted(
        (str(each), size)
        for each, size in file.below_with_bytes()
        if each.name.lower().endswith(_ENDING_BELOW)
    )
    if not found:
        raise InvalidRequestError(f"file {file} does not exist, nor any .parquet file below it")
    return found


def refuse_local_files(instance: Instance, names: Iterable[str]) -> None:
    """The disk of a task is nothing that a message may name."""
    for name in names:
        if not instance.is_local and name.startswith(LOCAL_SCHEME):
            raise InvalidRequestError(f"file {name} is not in S3: expected s3://bucket/key")
