"""Sources that ingest may read from S3."""

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.properties.values import instance_properties
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot
from sleeper.storage.sources import s3_source

ROOT = DataRoot(Bucket("sleeper-a-table-data-1"))
PROPERTIES = instance_properties({"sleeper.id": "a", "sleeper.ingest.source.bucket": "uploads"})


@pytest.mark.parametrize("scheme", ["", "s3://", "s3a://"])
@pytest.mark.parametrize("key", ["for_ingest/f.parquet", "for_ingest/"])
def test_upload_to_the_data_bucket_is_a_source(scheme: str, key: str) -> None:
    """The Python client of gchq/sleeper uploads there, and names the file in a job."""
    file = s3_source(f"{scheme}sleeper-a-table-data-1/{key}", ROOT, PROPERTIES)
    assert (file.bucket.name, file.key) == ("sleeper-a-table-data-1", key)


@pytest.mark.parametrize(
    "key",
    [
        "0a0b0c0d/data/f.parquet",
        "f.parquet",
        "for_ingest",
        "for_ingested/f.parquet",
        "/for_ingest/f.parquet",
        "for_ingest/../0a0b0c0d/data/f.parquet",
        "for_ingest/./f.parquet",
        "for_ingest//f.parquet",
    ],
)
def test_other_objects_of_the_data_bucket_are_refused(key: str) -> None:
    with pytest.raises(InvalidRequestError, match="copy the file to a bucket of"):
        s3_source(f"sleeper-a-table-data-1/{key}", ROOT, PROPERTIES)
