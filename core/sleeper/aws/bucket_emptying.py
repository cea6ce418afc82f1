"""Empties a bucket, so that CloudFormation can delete it."""

from typing import Any

from botocore.exceptions import ClientError

from sleeper.errors import DataError


def empty_bucket(client: Any, bucket: str) -> int:
    """Deletes every object, old versions too; how many. Nothing happens if there is no bucket.

    DataError if an object stays.
    """
    deleted = 0
    try:
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
            found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            if found:
                _delete(client, bucket, found)
            deleted += len(found)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
    return deleted


def _delete(client: Any, bucket: str, found: list[dict[str, Any]]) -> None:
    """One request: a page of a listing holds as many as one request takes."""
    objects = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in found]
    answer = client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
    for error in answer.get("Errors", ()):
        raise DataError(
            f"object {error['Key']} of bucket {bucket} cannot be deleted: {error.get('Message')}"
        )
