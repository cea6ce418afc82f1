"""References to secrets, so that no definition contains a password.

`env:NAME` is a variable of the environment, `file:PATH` the content of a file without its final
line break, and `secret:NAME` the name or ARN of a secret in AWS Secrets Manager. A secret that is
a JSON object, as those of Amazon RDS, has the password as its member `password`.
"""

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.errors import InvalidRequestError, describe_error
from sleeper.properties.declaration import Property

if TYPE_CHECKING:
    from sleeper.instance import Instance

SECRET_FORMS = "env:NAME, file:PATH or secret:NAME-OR-ARN"
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_FILE_BYTES_MAX = 65_536


class SecretPlace(Enum):
    """The kinds of places that keep secrets."""

    ENVIRONMENT = "env"
    FILE = "file"
    SECRETS_MANAGER = "secret"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A place and the name of a secret in it."""

    place: SecretPlace
    name: str

    def __str__(self) -> str:
        return f"{self.place.value}:{self.name}"


def parse_secret(text: str) -> SecretReference:
    """Returns the reference. InvalidRequestError, without the text, which may be a password."""
    scheme, colon, name = text.partition(":")
    kinds = {each.value: each for each in SecretPlace}
    if not colon or scheme not in kinds or not name:
        raise InvalidRequestError(
            f"the password is not a reference (expected {SECRET_FORMS}, which name a secret)"
        )
    reference = SecretReference(kinds[scheme], name)
    if reference.place is SecretPlace.ENVIRONMENT and _VARIABLE.fullmatch(name) is None:
        raise InvalidRequestError(
            "the password env:... is not the name of a variable (expected letters, digits and "
            "underscores)"
        )
    return reference


def check_managed_secret(
    instance: "Instance", text: str, listed: Property[tuple[str, ...]], readers: str
) -> None:
    """Raises InvalidRequestError if workers on AWS could not read the secret.

    They read those of Secrets Manager that the property lists. Errors name the readers.
    """
    secret = parse_secret(text)
    check_is_managed(secret, readers)
    if secret.name not in instance.properties().get(listed):
        raise InvalidRequestError(
            f"{secret} is not a secret that {readers} may read (expected it in {listed.name}, and "
            "a new deployment)"
        )


def check_is_managed(secret: SecretReference, readers: str) -> None:
    """Raises InvalidRequestError for a secret of this machine, which workers on AWS lack."""
    if secret.place is not SecretPlace.SECRETS_MANAGER:
        raise InvalidRequestError(
            f"password {secret} is on this machine, and {readers} read only Secrets Manager "
            "(expected secret:NAME-OR-ARN)"
        )


def read_secret(instance: "Instance", text: str) -> str:
    """Returns the secret that the reference names.

    InvalidRequestError if it does not exist or may not be read.
    """
    return read_secret_of(lambda: instance, text)


def read_secret_of(open_instance: "Callable[[], Instance]", text: str) -> str:
    """Returns the secret as `read_secret`, and opens the instance only for Secrets Manager."""
    reference = parse_secret(text)
    match reference.place:
        case SecretPlace.ENVIRONMENT:
            return _read_variable(reference)
        case SecretPlace.FILE:
            return _read_file(reference)
        case SecretPlace.SECRETS_MANAGER:
            return _read_managed(open_instance(), reference)


def _read_variable(reference: SecretReference) -> str:
    value = os.environ.get(reference.name)
    if not value:
        problem = "is not set" if value is None else "is empty"
        raise InvalidRequestError(
            f"password {reference}: environment variable {reference.name} {problem}"
        )
    return value


def _read_file(reference: SecretReference) -> str:
    try:
        with Path(reference.name).expanduser().open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        if len(content) > _FILE_BYTES_MAX:
            raise InvalidRequestError(
                f"password {reference}: the file has more than {_FILE_BYTES_MAX:,} bytes"
            )
        value = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InvalidRequestError(
            f"password {reference}: cannot read the file: {describe_error(error)}"
        ) from error
    except UnicodeDecodeError:
        raise InvalidRequestError(f"password {reference}: the file is not UTF-8 text") from None
    if not value:
        raise InvalidRequestError(f"password {reference}: the file is empty")
    return value


def _read_managed(instance: "Instance", reference: SecretReference) -> str:
    if instance.read_secret is None:
        raise InvalidRequestError(
            f"password {reference}: a local instance does not read Secrets Manager "
            "(expected env:NAME or file:PATH)"
        )
    value = instance.read_secret(reference.name)
    if value.lstrip().startswith("{"):
        value = _member(value, reference)
    if not value:
        raise InvalidRequestError(f"password {reference}: the secret is empty")
    return value


def _member(text: str, reference: SecretReference) -> str:
    try:
        raw = json.loads(text)
    except ValueError:
        return text
    password = raw.get("password")
    if not isinstance(password, str):
        raise InvalidRequestError(
            f'password {reference}: the secret is a JSON object without "password" as text'
        )
    return password
