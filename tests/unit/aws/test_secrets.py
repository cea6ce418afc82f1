"""Secrets of AWS Secrets Manager."""

import logging
from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from sleeper.aws.clients import aws_client
from sleeper.aws.secrets import read_managed_secret
from sleeper.errors import InvalidRequestError


@pytest.fixture(autouse=True)
def secrets_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    with mock_aws():
        aws_client.cache_clear()
        yield
    aws_client.cache_clear()


def test_a_secret_is_read_by_name_and_arn() -> None:
    made = boto3.client("secretsmanager").create_secret(Name="shop", SecretString="hunter2")
    assert read_managed_secret("shop") == "hunter2"
    assert read_managed_secret(made["ARN"]) == "hunter2"


def test_no_log_has_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    boto3.client("secretsmanager").create_secret(Name="shop", SecretString="hunter2")
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        read_managed_secret("shop")
    assert "GetSecretValue" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_missing_or_binary_secret_is_an_invalid_request() -> None:
    boto3.client("secretsmanager").create_secret(Name="key", SecretBinary=b"hunter2")
    with pytest.raises(InvalidRequestError, match=r"^secret shop does not exist$"):
        read_managed_secret("shop")
    with pytest.raises(InvalidRequestError, match=r"^secret key is binary \(expected text\)$"):
        read_managed_secret("key")
