"""What AWS answers, as errors of the product."""

import contextlib
from collections.abc import Iterator

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError, UnavailableError


def code_of(error: ClientError) -> str:
    """The service's name for the error, without the prefixes of older protocols."""
    return str(error.response.get("Error", {}).get("Code", "")).rpartition(".")[2]


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Names `what` in an error of `sleeper.errors` for whatever boto3 raises in the block."""
    try:
        yield
    except ClientError as error:
        raise _translate(what, error) from error
    except (NoRegionError, NoCredentialsError) as error:
        raise InvalidRequestError(f"{what}: {error}") from error
    except BotoCoreError as error:
        raise UnavailableError(f"{what}: {error}") from error


def _translate(what: str, error: ClientError) -> SleeperError:
    code = code_of(error)
    text = f"{what}: {code}: {error.response.get('Error', {}).get('Message', '')}"
    if code in _NOT_FOUND:
        return NotFoundError(text)
    if code in _INVALID:
        return InvalidRequestError(text)
    return UnavailableError(text)


_NOT_FOUND = {"NonExistentQueue", "QueueDoesNotExist", "ResourceNotFoundException"}
_INVALID = {
    "BatchRequestTooLong",
    "InvalidMessageContents",
    "InvalidParameterValue",
    "MissingParameter",
    "UnsupportedOperation",
    "ValidationException",
}
