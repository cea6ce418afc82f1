"""Clients of AWS services, one per process; buckets and WebSocket connections.

Endpoints, region and credentials have the sources of AWS's own tools: the environment
(`AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_SQS`, …), a profile, or the role of the container or
machine.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, NoCredentialsError
from botocore.retries.quota import RetryQuota

from sleeper.aws.errors import check_response, error_code, translate_errors
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.jobs.query_tracker import Connection
from sleeper.properties.deployed import stack_name
from sleeper.retries import Backoff
from sleeper.storage.bucket import Bucket, Credentials

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# The object store reads and renews credentials of these methods; profiles only boto3 reads.
_OBJECT_STORE_METHODS = {"env", "container-role", "iam-role", "assume-role-with-web-identity"}
# Without one of these, boto3 reads a container's credentials from a full URI with a token in the
# environment, or without a token, and the object store does not.
_OBJECT_STORE_CONTAINERS = (
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
)
_CREATION_LOCK = threading.Lock()
# The waits of boto3's standard mode after an error that is not throttling. DynamoDB's first wait
# is the shortest of all services, so the number of retries is that of DynamoDB.
_FIRST_WAIT_SECONDS = 0.025
_WAIT_SECONDS_MAX = 20.0
_CONNECTIONS_MAX = 20
# boto3 composes its own header again for each request, in a tenth of the processor time.
_USER_AGENT = f"Boto3/{boto3.__version__} sleeper"
# HEAD has no body with a code, so botocore has the status.
_FORBIDDEN = {"403", "AccessDenied"}
# The part of the quota, shared by all threads of a client, that one retry takes.
_RETRY_COST = 14


@functools.cache
def aws_client(service: str, endpoint: str | None = None) -> Any:
    """Returns the client of a service, such as `sqs`. InvalidRequestError if no region is set.

    `endpoint` is the service's URL, unless the environment sets another.
    """
    if endpoint is None:
        return make_client(service)
    configured = os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}")
    return make_client(service, endpoint_url=configured or endpoint)


def make_client(service: str, config: Config | None = None, **settings: Any) -> Any:
    """Makes a client that retries a request for `retries.retry_seconds`, or as the config says."""
    with _CREATION_LOCK, translate_errors(f"AWS {service}"), _enough_quota():
        # boto3 clients are safe for threads, but their creation is not.
        client = boto3.client(service, config=config or _config(service), **settings)
    client.meta.events.register("after-call", check_response)
    return client


def partial_request_backoff() -> Backoff:
    """Returns the waits between requests that a service carried out in part.

    boto3 does not repeat these.
    """
    return Backoff.for_requests(seconds_first=0.05, seconds_max=10.0)


@dataclass(frozen=True, slots=True)
class ConfigBucketNames:
    """The names of an instance's config bucket in the account and region of the credentials.

    Names of buckets are taken by whoever comes first, so the bucket may belong to another account.
    If an instance of the same id was in another region before, the name is `with_region`.
    """

    plain: str
    region: str
    account: str

    @property
    def with_region(self) -> str:
        return f"{self.plain}-{self.region}"


def config_bucket_names(instance_id: str) -> ConfigBucketNames:
    """Returns the names that the config bucket of the instance may have."""
    with translate_errors("the AWS account of the credentials"):
        account = aws_client("sts").get_caller_identity()["Account"]
    # Without a region there is no client.
    region = boto3.Session().region_name or ""
    return ConfigBucketNames(f"{stack_name(instance_id)}-config-{account}", region, account)


@functools.cache
def check_owner(bucket: str, key: str, account: str) -> None:
    """Checks once in a process that the bucket of an object that was read belongs to the account.

    InvalidRequestError if it does not. The request needs no other permission than the read.
    """
    client = aws_client("s3")
    with translate_errors(f"the owner of bucket {bucket}"):
        try:
            client.head_object(Bucket=bucket, Key=key, ExpectedBucketOwner=account)
        except ClientError as error:
            if error_code(error) not in _FORBIDDEN:
                raise
            raise InvalidRequestError(
                f"bucket {bucket} does not belong to account {account}, which was expected to own "
                "it: nothing of it is used"
            ) from error


def describe_bucket(name: str) -> Bucket:
    """Returns a bucket with the endpoint, region and credentials that boto3 uses."""
    with translate_errors("AWS credentials"):
        session = boto3.Session()
        credentials = _credentials(session)
    endpoint = next((os.environ[v] for v in _ENDPOINT_VARIABLES if os.environ.get(v)), None)
    return Bucket(name, "", session.region_name, endpoint, credentials)


def describe_old_versions(name: str) -> str | None:
    """Describes what keeps deleted objects of a bucket; None if nothing does."""
    client = aws_client("s3")
    try:
        with translate_errors(f"bucket {name}"):
            status = client.get_bucket_versioning(Bucket=name).get("Status")
    except SleeperError as error:
        return f"it is not known if bucket {name} keeps old versions of deleted objects: {error}"
    if status is None:
        return None
    return (
        f"bucket {name} keeps old versions of deleted objects until its lifecycle rule deletes them"
    )


@dataclass(frozen=True, slots=True)
class ProfileCredentials:
    """Credentials that only boto3 reads: of SSO, an assumed role, a process, or a local server.

    Implements `sleeper.storage.bucket.CredentialSource`. `profile` is None for the default one.
    """

    profile: str | None

    def current(self) -> Credentials:
        """Returns credentials of the profile, which boto3 renews."""
        with translate_errors("AWS credentials"):
            frozen = _boto3_credentials(self.profile).get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)


@functools.cache
def _boto3_credentials(profile: str | None) -> Any:
    credentials = boto3.Session(profile_name=profile).get_credentials()
    if credentials is None:
        raise NoCredentialsError
    return credentials


def _credentials(session: boto3.Session) -> ProfileCredentials | None:
    """Returns the source of a profile's credentials, or None if the object store has its own."""
    credentials = session.get_credentials()
    if credentials is None:
        raise NoCredentialsError
    is_container = credentials.method == "container-role"
    is_read = not is_container or any(map(os.environ.get, _OBJECT_STORE_CONTAINERS))
    if credentials.method in _OBJECT_STORE_METHODS and is_read:
        return None
    return ProfileCredentials(os.environ.get("AWS_PROFILE"))


def _retries() -> int:
    return int(Backoff.for_requests(_FIRST_WAIT_SECONDS, _WAIT_SECONDS_MAX).retries)


def _config(service: str) -> Config:
    return Config(
        retries={"mode": "standard", "total_max_attempts": 1 + _retries()},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=_CONNECTIONS_MAX,
        # DynamoDB checks each item too. For one of many parts, the client's check takes a third of
        # the processor time of a request.
        parameter_validation=service != "dynamodb",
        user_agent=_USER_AGENT,
    )


@contextmanager
def _enough_quota() -> Iterator[None]:
    """Gives clients created in the block a quota for the retries of all their threads.

    botocore's quota is 35 retries for all threads, which 8 threads use up in a second of an outage,
    and it has no setting. `tests/unit/aws/test_retries.py` fails if this has no effect any more.
    """
    init: Any = RetryQuota.__init__
    before = init.__defaults__
    init.__defaults__ = (_RETRY_COST * _CONNECTIONS_MAX * _retries(), *before[1:])
    try:
        yield
    finally:
        init.__defaults__ = before


_SERVICE = "apigatewaymanagementapi"


@dataclass(frozen=True, slots=True)
class GatewayConnections:
    """Sends to connections of the instance's own API, the one at `api_url`."""

    api_url: Callable[[], str | None]

    def send(self, connection: Connection, frame: str) -> None:
        """Sends a text frame. NotFoundError if the connection is closed.

        InvalidRequestError for another endpoint: a message may name any, but frames go only to
        the API that was deployed.
        """
        own = self.api_url()
        if own is None or _host(connection.endpoint) != _host(own):
            raise InvalidRequestError(f"the instance has no WebSocket at {connection.endpoint}")
        client = aws_client(_SERVICE, "https" + own[own.index(":") :])
        with translate_errors(f"connection {connection.id}"):
            client.post_to_connection(ConnectionId=connection.id, Data=frame.encode())


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
