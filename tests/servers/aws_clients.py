"""The cached AWS clients of the process."""

import boto3

from sleeper.aws.clients import aws_client


def forget_clients() -> None:
    """Clears the cache, so that new clients use the current environment and credentials."""
    aws_client.cache_clear()
    boto3.setup_default_session()
