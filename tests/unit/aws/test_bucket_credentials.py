"""A machine without credentials of AWS is noticed before it sends a request to S3."""

import socket

import pytest

from sleeper.errors import UnavailableError
from sleeper.storage.bucket import Bucket, Credentials, check_credentials

BUCKET = Bucket("b", region="eu-west-2")


def test_credentials_of_the_environment_or_the_bucket_are_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    check_credentials(BUCKET)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    check_credentials(Bucket("b", region="eu-west-2", credentials=Credentials("key", "secret")))


def test_a_machine_without_credentials_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    # Where a machine of AWS would have the credentials of its role.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UnavailableError) as caught:
        check_credentials(BUCKET)
    message = str(caught.value)
    assert message.startswith(
        f"no credentials of AWS for bucket b on host {socket.gethostname()} (expected"
    )
    assert "\n" not in message
