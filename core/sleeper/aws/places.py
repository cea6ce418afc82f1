"""Where an instance is in AWS: its names, and how its buckets are reached."""

import os

import boto3
from botocore.exceptions import NoCredentialsError

from sleeper.aws.clients import aws_client
from sleeper.aws.errors import translated
from sleeper.storage.bucket import Bucket, Credentials

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# How credentials come that the object store finds by itself, and renews.
_FOUND_ANYWHERE = {"env", "container-role", "iam-role", "assume-role-with-web-identity"}


def config_bucket_name(instance_id: str) -> str:
    """The instance's config bucket in the account that the credentials belong to."""
    with translated("the AWS account of the credentials"):
        account = aws_client("sts").get_caller_identity()["Account"]
    return f"sleeper-{instance_id.lower().replace('.', '-')}-config-{account}"


def bucket_of(name: str) -> Bucket:
    """A bucket, reached as boto3 would: endpoint and region of the environment or profile."""
    with translated("AWS credentials"):
        session = boto3.Session()
        credentials = _credentials(session)
    endpoint = next((os.environ[v] for v in _ENDPOINT_VARIABLES if os.environ.get(v)), None)
    return Bucket(name, "", session.region_name, endpoint, credentials)


def _credentials(session: boto3.Session) -> Credentials | None:
    """Those of a profile, which only boto3 reads. They are as of now."""
    found = session.get_credentials()
    if found is None:
        raise NoCredentialsError
    if found.method in _FOUND_ANYWHERE:
        return None
    frozen = found.get_frozen_credentials()
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token)
