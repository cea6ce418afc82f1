"""S3 buckets, their clients and URLs."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from obstore import sign
from obstore.exceptions import BaseError
from obstore.store import S3Store

from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.retries import count_retries, retry_seconds

if TYPE_CHECKING:
    from obstore.store import BackoffConfig, RetryConfig, S3Credential

# A wait is random between the first one and `base` times the last one, so it grows by half of
# `base`. With the default base of 2 it hardly grows: ten retries take three seconds.
_BACKOFF: BackoffConfig = {
    "init_backoff": timedelta(milliseconds=100),
    "max_backoff": timedelta(seconds=5),
    "base": 3,
}
# Requests that are slow before they fail are retried as well, up to this time.
_RETRY_SECONDS_MIN = 40.0
# A client asks for renewed credentials when half of this is over. boto3 renews them when they last
# for another ten minutes only.
_CREDENTIALS_MINUTES = 10
# A machine without credentials has none later.
_QUICK_RETRIES: RetryConfig = {"max_retries": 1, "retry_timeout": timedelta(seconds=5)}
_SIGNED = timedelta(minutes=1)
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_SCHEMES = ("s3://", "s3a://")


# Parts of the text of a store's error.
_ANSWER = re.compile(r"Server returned non-2xx status code: (\d{3} [^:\n]*)")
_REASON = re.compile(r"<(?:Code|Message)>([^<]*)</")
_DEBUG_OUTPUT = "\n\nDebug source:"


class MissingBucketError(UnavailableError):
    """A bucket does not exist. This says nothing about whether an object exists."""


def describe_store_error(error: Exception) -> str:
    """Returns what S3 answered, or the error's reason, without the store's debug output."""
    text = str(error).partition(_DEBUG_OUTPUT)[0].strip()
    answer = _ANSWER.search(text)
    return ": ".join([answer[1], *_REASON.findall(text)]) if answer else text


def is_range_error(error: Exception) -> bool:
    """Returns whether S3 refused to read a range because the object ends before it."""
    return "<Code>InvalidRange</Code>" in str(error)


def missing_object_error(path: str, error: Exception) -> NotFoundError | MissingBucketError:
    """Returns the error for an object that S3 did not find.

    A HEAD response does not show whether the bucket exists, so it raises NotFoundError.
    """
    if "<Code>NoSuchBucket</Code>" in str(error):
        return MissingBucketError(f"cannot read object {path}: NoSuchBucket")
    return NotFoundError(f"object {path} does not exist")


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key of S3. Temporary credentials have a session token."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    def current(self) -> Credentials:
        """Returns these."""
        return self


class CredentialSource(Protocol):
    """Credentials that are renewed before they expire. Hashable, safe for threads."""

    def current(self) -> Credentials:
        """Returns credentials that are valid for ten minutes at least."""
        ...


@dataclass(frozen=True, slots=True)
class Bucket:
    """An S3 bucket, or its objects below a prefix without leading and trailing slash.

    Missing values come from the environment or the role of the container or machine. `endpoint`
    is the URL of a server other than AWS, by default from the environment variables of AWS's
    tools.
    """

    name: str
    prefix: str = ""
    region: str | None = None
    endpoint: str | None = None
    credentials: Credentials | CredentialSource | None = None

    @property
    def server(self) -> str | None:
        """The effective endpoint, None for AWS."""
        variables = (os.environ.get(name) for name in _ENDPOINT_VARIABLES)
        return self.endpoint or next(filter(None, variables), None)

    @property
    def allows_http(self) -> bool:
        """Whether the endpoint is plain HTTP. Connections to AWS are always encrypted."""
        return self.server is not None and self.server.startswith("http://")

    def url_of(self, path: str) -> str:
        """Returns the URL of an object by its path below the prefix."""
        return f"s3://{self.name}/{self.key_of(path)}"

    def key_of(self, path: str) -> str:
        """Returns the object's key in the bucket."""
        return f"{self.prefix}/{path}" if self.prefix else path


@lru_cache(maxsize=64)
def open_bucket(bucket: Bucket) -> S3Store:
    """Returns the bucket's store, by paths below the prefix. Opened once per process."""
    return _make_store(bucket, retry_config())


def check_credentials(bucket: Bucket) -> None:
    """Raises UnavailableError if this machine has no credentials for the bucket.

    It signs a request, and sends none to S3.
    """
    store = _make_store(bucket, _QUICK_RETRIES)
    try:
        sign(store, "GET", "none", _SIGNED)
    except BaseError as error:
        raise UnavailableError(
            f"no credentials of AWS for bucket {bucket.name} on host {socket.gethostname()} "
            "(expected those of the environment, or a role of the machine): "
            f"{describe_store_error(error)}"
        ) from None


def _make_store(bucket: Bucket, retries: RetryConfig) -> S3Store:
    more: dict[str, str] = {}
    if bucket.region is not None:
        more["region"] = bucket.region
    if bucket.server is not None:
        more["endpoint"] = bucket.server
    source, renewal = bucket.credentials, None
    if isinstance(source, Credentials):
        more["access_key_id"] = source.access_key_id
        more["secret_access_key"] = source.secret_access_key
        if source.session_token is not None:
            more["session_token"] = source.session_token
    elif source is not None:
        renewal = partial(_current_credential, source)
    return S3Store(
        bucket.name,
        prefix=bucket.prefix or None,
        client_options={"allow_http": bucket.allows_http} if bucket.allows_http else None,
        retry_config=retries,
        credential_provider=renewal,
        **more,  # type: ignore[arg-type]
    )


def _current_credential(source: CredentialSource) -> S3Credential:
    keys = source.current()
    return {
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
        "token": keys.session_token,
        "expires_at": datetime.now(UTC) + timedelta(minutes=_CREDENTIALS_MINUTES),
    }


def retry_config() -> RetryConfig:
    """Returns how a store of this process retries, with backoff and jitter."""
    seconds = retry_seconds()
    return {
        "max_retries": count_retries(seconds, _mean_waits_seconds()),
        "retry_timeout": timedelta(seconds=max(_RETRY_SECONDS_MIN, 4 * seconds)),
        "backoff": _BACKOFF,
    }


def _mean_waits_seconds() -> Iterator[float]:
    first, longest = (_BACKOFF[name].total_seconds() for name in ("init_backoff", "max_backoff"))
    wait = first
    while True:
        yield wait
        wait = min(longest, (first + _BACKOFF["base"] * wait) / 2)


def is_s3_url(name: str) -> bool:
    """Whether a file's name is the URL of an S3 object."""
    return name.startswith(_SCHEMES)


def split_s3_url(name: str) -> tuple[str, str]:
    """Splits `s3://bucket/key`, `s3a://bucket/key` or plain `bucket/key` into bucket and key."""
    plain = name
    for scheme in _SCHEMES:
        plain = plain.removeprefix(scheme)
    bucket, _, key = plain.partition("/")
    if not bucket or not key.strip("/"):
        raise InvalidRequestError(f"{name!r} is not an S3 object (expected s3://bucket/key)")
    return bucket, key


def quoted_s3_url(url: str) -> str:
    """Returns the URL with special characters escaped, as DataFusion requires."""
    bucket, key = split_s3_url(url)
    return f"s3://{bucket}/{quote(key)}"
