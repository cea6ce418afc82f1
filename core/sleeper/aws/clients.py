"""Clients of AWS services, made once per process.

Endpoints, region and credentials come from where AWS's own tools take them: the
environment (`AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_SQS`, …), a profile, or the role of the
container or machine.
"""

import functools
from typing import Any

import boto3
from botocore.config import Config

_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 5},
    connect_timeout=5,
    read_timeout=60,
    max_pool_connections=20,
)


@functools.cache
def aws_client(service: str) -> Any:
    """The client of a service, such as `sqs`."""
    return boto3.client(service, config=_CONFIG)
