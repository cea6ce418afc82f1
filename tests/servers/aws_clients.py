"""The process's AWS clients, which remember the environment that they were made in."""

import boto3

from sleeper.aws.clients import aws_client, aws_client_at


def forget_clients() -> None:
    """Makes the next clients from the environment as it is now, credentials too."""
    aws_client.cache_clear()
    aws_client_at.cache_clear()
    boto3.setup_default_session()
