"""Secrets of AWS Secrets Manager."""

import logging

from botocore.exceptions import ClientError

from sleeper.aws.clients import aws_client
from sleeper.aws.errors import error_code, translate_errors
from sleeper.errors import InvalidRequestError

_MISSING = "ResourceNotFoundException"


def read_managed_secret(name: str) -> str:
    """Returns the text of a secret, by its name or ARN. InvalidRequestError if there is none."""
    # Its debug log has the bodies of responses.
    logging.getLogger("botocore.parsers").setLevel(logging.WARNING)
    with translate_errors(f"secret {name}"):
        try:
            response = aws_client("secretsmanager").get_secret_value(SecretId=name)
        except ClientError as error:
            if error_code(error) == _MISSING:
                raise InvalidRequestError(f"secret {name} does not exist") from error
            raise
    text = response.get("SecretString")
    if not isinstance(text, str):
        raise InvalidRequestError(f"secret {name} is binary (expected text)")
    return text
