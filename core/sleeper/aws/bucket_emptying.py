"""Empties a bucket, so that CloudFormation can delete it."""

import contextlib
from typing import Any

from sleeper.errors import DataError


def empty_bucket(client: Any, bucket: str) -> int:
    """Deletes every object, old versions too; how many. Nothing happens if there is no bucket.

    DataError if an object stays.
    """
    deleted = 0
    with contextlib.suppress(client.exceptions.NoSuchBucket):
        # From the start each time: what was listed before is gone.
        while found := _first_page(client, bucket):
            _delete(client, bucket, found)
            deleted += len(found)
    return deleted


def _first_page(client: Any, bucket: str) -> list[dict[str, Any]]:
    page = client.list_object_versions(Bucket=bucket)
    return [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]


def _delete(client: Any, bucket: str, found: list[dict[str, Any]]) -> None:
    """One request: a page of a listing holds as many as one request takes."""
    objects = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in found]
    answer = client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
    for error in answer.get("Errors", ()):
        raise DataError(
            f"object {error['Key']} of bucket {bucket} cannot be deleted: {error.get('Message')}"
        )
