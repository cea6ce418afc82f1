"""Tests of emptying a bucket, with moto."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from sleeper.aws.stack_deletion import empty_bucket


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client(
            "s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
        )
        client.create_bucket(Bucket="bucket")
        yield client


def test_emptying_deletes_all_versions_and_delete_markers(s3: Any) -> None:
    s3.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    for number in range(3):
        s3.put_object(Bucket="bucket", Key=f"{number}", Body=b"old")
        s3.put_object(Bucket="bucket", Key=f"{number}", Body=b"new")
    s3.delete_object(Bucket="bucket", Key="0")
    assert empty_bucket(s3, "bucket") == 7
    s3.delete_bucket(Bucket="bucket")


def test_a_bucket_without_versions_is_emptied(s3: Any) -> None:
    for number in range(1001):
        s3.put_object(Bucket="bucket", Key=f"{number}", Body=b"")
    assert empty_bucket(s3, "bucket") == 1001
    s3.delete_bucket(Bucket="bucket")


def test_a_missing_bucket_is_empty(s3: Any) -> None:
    assert empty_bucket(s3, "another") == 0
