"""References to secrets, and URLs that must not contain one."""

import traceback
from pathlib import Path
from typing import Any

import pytest

from sleeper.databases.url import is_database_url, parse_database_url, split_user
from sleeper.errors import InvalidRequestError
from sleeper.runs.secrets import parse_secret, read_secret

SECRET = "hunter2"


class Secrets:
    """An instance of which only the secrets are used."""

    def __init__(self, **values: str) -> None:
        self.read_secret = values.__getitem__ if values else None


def read(text: str, **values: str) -> str:
    instance: Any = Secrets(**values)
    return read_secret(instance, text)


def test_secrets_come_from_variables_files_and_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    file = tmp_path / "password"
    file.write_text(f" {SECRET}\r\n")
    assert read("env:SHOP_PASSWORD") == SECRET
    assert read(f"file:{file}") == f" {SECRET}"
    assert read("secret:shop", shop=SECRET) == SECRET
    assert read("secret:shop", shop='{"username": "u", "password": "hunter2"}') == SECRET
    assert read("secret:shop", shop="{not json") == "{not json"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (SECRET, "the password is not a reference (expected env:NAME, file:PATH or secret:"),
        ("env:", "the password is not a reference"),
        ("env:NO_SUCH", "password env:NO_SUCH: environment variable NO_SUCH is not set"),
        ("env:EMPTY", "environment variable EMPTY is empty"),
        ("file:/no/such", "password file:/no/such: cannot read the file: no such file"),
        ("secret:shop", "a local instance does not read Secrets Manager"),
    ],
)
def test_a_missing_secret_is_named(text: str, error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(InvalidRequestError) as raised:
        read(text)
    assert error in str(raised.value)
    assert SECRET not in "".join(traceback.format_exception(raised.value, limit=0))


def test_a_secret_object_without_a_password_is_refused_without_its_content() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        read("secret:shop", shop='{"passwort": "hunter2"}')
    assert str(raised.value) == (
        'password secret:shop: the secret is a JSON object without "password" as text'
    )


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://reader:{SECRET}@h/d",
        f"postgresql://h/d?password={SECRET}",
        f"postgresql://reader:{SECRET}@h:bad/d",
        f"jdbc:mysql://h/d?user=a&password={SECRET}",
        f"mariadb://h/d?keyStorePassword={SECRET}",
        f"postgresql://h/d?oauth_client_secret={SECRET}",
        f"postgresql://reader:{SECRET}@h/a/b",
        f"postgresql://reader:{SECRET}/2@h/d",
        f"postgresql://reader:1/{SECRET}@h",
        f"postgresql://reader:1/2{SECRET}@h/d",
        f"postgresql://reader:1#{SECRET}@h/d",
    ],
)
def test_a_url_with_a_password_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        split_user(url)
    assert SECRET not in str(raised.value)


def test_a_password_in_a_url_has_an_alternative() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        split_user(f"postgresql://reader:{SECRET}@h/d")
    assert str(raised.value) == (
        "the database URL has a password after its user, which would be stored (expected none: "
        "name the secret with --password env:NAME, file:PATH or secret:NAME-OR-ARN)"
    )


@pytest.mark.parametrize(
    "parameter",
    ["sessionInitStatement", "dbname", "Driver", "socketFactory", "allowLocalInfile", "query"],
)
def test_parameters_that_are_none_of_a_connection_are_refused(parameter: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        parse_database_url(f"postgresql://h/d?sslmode=require&{parameter}=x")
    assert str(raised.value) == (
        f"the database URL has the parameter {parameter!r}, which is not allowed (expected "
        "parameters of the connection such as sslmode)"
    )


@pytest.mark.parametrize(
    ("text", "stored", "user"),
    [
        ("postgresql://h/d", "postgresql://h/d", None),
        ("postgres://me@h:5433/d?sslmode=require", "postgresql://h:5433/d?sslmode=require", "me"),
        ("jdbc:mariadb://h/d?user=a%40b", "mariadb://h/d", "a@b"),
        ("mysql://a%40b@[::1]/d", "mysql://[::1]/d", "a@b"),
        ("postgresql:///d?host=%2Ftmp%2Fpg", "postgresql:///d?host=%2Ftmp%2Fpg", None),
    ],
)
def test_the_user_of_a_url_is_split_off(text: str, stored: str, user: str | None) -> None:
    assert is_database_url(text)
    assert split_user(text) == (stored, user)
    assert parse_database_url(stored).text == stored


def test_other_texts_are_no_database_urls() -> None:
    assert not any(map(is_database_url, ("/data/a.csv", "s3://b/k", "table:a", "files:x")))


def test_references_are_shown_as_they_are_written() -> None:
    assert str(parse_secret("secret:arn:aws:secretsmanager:eu-west-2:1:secret:shop")) == (
        "secret:arn:aws:secretsmanager:eu-west-2:1:secret:shop"
    )
