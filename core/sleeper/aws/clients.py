"""Clients of AWS services, made once per process.

Endpoints, region and credentials come from where AWS's own tools take them: the
environment (`AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_SQS`, …), a profile, or the role of the
container or machine.
"""

import functools
import os
import threading
from typing import Any

import boto3
from botocore.config import Config

from sleeper.aws.errors import translated

_MAKING = threading.Lock()
_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 5},
    connect_timeout=5,
    read_timeout=60,
    max_pool_connections=20,
)


@functools.cache
def aws_client(service: str) -> Any:
    """The client of a service, such as `sqs`. InvalidRequestError if no region is set."""
    return _made(service)


@functools.cache
def aws_client_at(service: str, endpoint: str) -> Any:
    """The client of a service that an API of its own has at a URL.

    If the environment has an endpoint for the service, it is that one, as for other services.
    """
    told = os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}")
    return _made(service, endpoint_url=told or endpoint)


def _made(service: str, **settings: str) -> Any:
    # What boto3 makes clients with is not safe for threads, unlike the clients.
    with _MAKING, translated(f"AWS {service}"):
        return boto3.client(service, config=_CONFIG, **settings)
