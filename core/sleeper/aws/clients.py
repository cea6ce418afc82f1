"""Clients of AWS services, made once per process.

Endpoints, region and credentials come from where AWS's own tools take them: the
environment (`AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_SQS`, …), a profile, or the role of the
container or machine.
"""

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.retries.quota import RetryQuota

from sleeper.aws.errors import translated
from sleeper.retries import Backoff

_MAKING = threading.Lock()
# As boto3 waits in its standard mode after an error that is not throttling: at random up to the
# first, and up to twice as long each time. DynamoDB's first is shortest, so it needs most retries.
_FIRST_WAIT_SECONDS = 0.025
_WAIT_SECONDS_MAX = 20.0
_CONNECTIONS_MAX = 20
# What a retry takes of the quota that all threads of a client share.
_RETRY_COST = 14


@functools.cache
def aws_client(service: str) -> Any:
    """The client of a service, such as `sqs`. InvalidRequestError if no region is set."""
    return make_client(service)


@functools.cache
def aws_client_at(service: str, endpoint: str) -> Any:
    """The client of a service that an API of its own has at a URL.

    If the environment has an endpoint for the service, it is that one, as for other services.
    """
    told = os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}")
    return make_client(service, endpoint_url=told or endpoint)


def make_client(service: str, **settings: Any) -> Any:
    """Makes a client that retries for as long as a request of this process is to be retried."""
    with _MAKING, translated(f"AWS {service}"), _enough_quota():
        # What boto3 makes clients with is not safe for threads, unlike the clients.
        return boto3.client(service, config=_config(), **settings)


def partial_request_backoff() -> Backoff:
    """Returns the waits between requests that a service carried out in part.

    boto3 does not repeat these.
    """
    return Backoff.for_requests(seconds_first=0.05, seconds_max=10.0)


def _retries() -> int:
    return int(Backoff.for_requests(_FIRST_WAIT_SECONDS, _WAIT_SECONDS_MAX).retries)


def _config() -> Config:
    return Config(
        retries={"mode": "standard", "total_max_attempts": 1 + _retries()},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=_CONNECTIONS_MAX,
    )


@contextmanager
def _enough_quota() -> Iterator[None]:
    """Gives clients that are made meanwhile a quota for the retries of all their threads.

    botocore's own is 35 retries for all threads, which last 8 threads a second of an outage, and it
    has no setting. `tests/unit/aws/test_retries.py` fails if this has no effect any more.
    """
    made: Any = RetryQuota.__init__
    before = made.__defaults__
    made.__defaults__ = (_RETRY_COST * _CONNECTIONS_MAX * _retries(), *before[1:])
    try:
        yield
    finally:
        made.__defaults__ = before
