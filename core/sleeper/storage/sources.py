"""Users' files that an instance may ingest: their names in jobs, and the buckets that have them.

On AWS, ingest reads objects only from the source buckets, and from the folder for uploads of the
data bucket. On a local instance, the credentials of the user decide. Loads no data library.
"""

from dataclasses import replace

from sleeper.errors import InvalidRequestError
from sleeper.properties.deployed import UPLOADS_PREFIX
from sleeper.properties.instance import INGEST_SOURCE_BUCKETS
from sleeper.properties.values import InstanceProperties
from sleeper.storage.bucket import Bucket, split_s3_url
from sleeper.storage.bucket_folder import S3File, s3_file
from sleeper.storage.location import DataRoot

LOCAL_SCHEME = "file://"
"""The prefix of a job's name for a file of the machine that runs a command."""
_ENDING_BELOW = ".parquet"


def readable_buckets(root: DataRoot, properties: InstanceProperties) -> tuple[Bucket, ...]:
    """Returns the instance's own bucket, if any, and the source buckets."""
    return (*root.buckets, *_source_buckets(root, properties))


def s3_source(name: str, root: DataRoot, properties: InstanceProperties) -> S3File:
    """Returns a file to ingest. InvalidRequestError if it is in a bucket that is no source.

    The instance's own bucket is a source only below `for_ingest/`, where clients upload files.
    """
    bucket_name, key = split_s3_url(name)
    own = [bucket for bucket in root.buckets if bucket.name == bucket_name]
    if own and _is_upload(key):
        return s3_file(name, own)
    if own:
        raise InvalidRequestError(
            f"file {name}: bucket {bucket_name} contains the instance's tables, and only objects "
            f"below {UPLOADS_PREFIX} can be ingested: copy the file to a bucket of "
            f"{INGEST_SOURCE_BUCKETS.name}"
        )
    return s3_file(name, _source_buckets(root, properties))


def any_s3_source(name: str) -> S3File:
    """Returns a file in any bucket that the credentials of the environment may read."""
    bucket_name, _ = split_s3_url(name)
    return replace(s3_file(name, [Bucket(bucket_name)]), has_every_format=True)


def _is_upload(key: str) -> bool:
    """Whether a key is below `for_ingest/`, also after a normalisation of its path."""
    parts = key.removeprefix(UPLOADS_PREFIX).removesuffix("/").split("/")
    return key == UPLOADS_PREFIX or (
        key.startswith(UPLOADS_PREFIX) and not {"", ".", ".."} & set(parts)
    )


def find_s3_files(
    name: str, root: DataRoot, properties: InstanceProperties
) -> list[tuple[str, int]]:
    """Returns the URL and bytes of the object, or of every Parquet file below it, in order.

    InvalidRequestError if there is none, or it may not be ingested.
    """
    file = s3_source(name, root, properties)
    size = None if file.key.endswith("/") else file.size()
    if size is not None:
        return [(str(file), size)]
    files = sorted(
        (str(each), size)
        for each, size in file.below_with_bytes()
        if each.name.lower().endswith(_ENDING_BELOW)
    )
    if not files:
        raise InvalidRequestError(f"file {file} does not exist, nor any .parquet file below it")
    return files


def _source_buckets(root: DataRoot, properties: InstanceProperties) -> tuple[Bucket, ...]:
    """Returns the source buckets, with the credentials and endpoint of the instance's own."""
    own = next(iter(root.buckets), Bucket(""))
    names = properties.get(INGEST_SOURCE_BUCKETS)
    return tuple(replace(own, name=name, prefix="") for name in names if name != own.name)
