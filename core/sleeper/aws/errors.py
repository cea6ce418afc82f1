"""What AWS answers, as errors of the product."""

import contextlib
from collections.abc import Iterator

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    UnavailableError,
)

_NOT_FOUND = {"GoneException"}
_MISSING = {"NonExistentQueue", "QueueDoesNotExist", "ResourceNotFoundException"}
# DynamoDB calls an index that is missing, or not yet built, a fault of the request.
_MISSING_INDEX = ("does not have the specified index", "backfilling global secondary index")
_INVALID = {
    "BatchRequestTooLong",
    "IdempotentParameterMismatchException",
    "InvalidMessageContents",
    "InvalidParameterValue",
    "InvalidRequestException",
    "ItemCollectionSizeLimitExceededException",
    "MissingParameter",
    "PayloadTooLargeException",
    "UnsupportedOperation",
    "ValidationException",
}
_CONDITION_FAILED = "ConditionalCheckFailed"
_IN_FLIGHT = "TransactionConflict"
_THROTTLED = {"ThrottlingError", "ProvisionedThroughputExceeded"}
_ITEM_INVALID = {"ValidationError", "ItemCollectionSizeLimitExceeded"}


class RefusedError(ConflictError):
    """DynamoDB refused a write because a condition did not hold.

    `items` counts those of a transaction whose condition it was, from 0.
    """

    def __init__(self, text: str, items: tuple[int, ...]) -> None:
        super().__init__(text)
        self.items = items


class MissingResourceError(UnavailableError):
    """A DynamoDB table, one of its indexes, a queue or another part of the deployment is missing.

    It may be being restored, so this says nothing about whether an item exists.
    """


class ThrottledError(UnavailableError):
    """The service had no capacity for the request or a part of it, which boto3 does not retry."""


def code_of(error: ClientError) -> str:
    """The service's name for the error, without the prefixes of older protocols."""
    return str(error.response.get("Error", {}).get("Code", "")).rpartition(".")[2]


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Names `what` in an error of `sleeper.errors` for whatever boto3 raises in the block.

    RefusedError where a condition did not hold. Throttling, a service that fails or does not
    answer, and what is forbidden until somebody allows it, are UnavailableError; so is missing
    infrastructure, as MissingResourceError.
    """
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
    message = str(error.response.get("Error", {}).get("Message", ""))
    text = f"{what}: {code}: {message}"
    if code == "ConditionalCheckFailedException":
        return RefusedError(text, (0,))
    if code == "TransactionCanceledException":
        return _translate_cancellation(text, error)
    if code == "TransactionConflictException":
        return ConflictError(text)
    if code in _NOT_FOUND:
        return NotFoundError(text)
    if code in _MISSING or any(each in message for each in _MISSING_INDEX):
        return MissingResourceError(text)
    if code in _INVALID:
        return InvalidRequestError(text)
    return UnavailableError(text)


def _translate_cancellation(text: str, error: ClientError) -> SleeperError:
    """By the reasons of the items. A condition that failed says most: it will fail again."""
    reasons = [str(r.get("Code", "")) for r in error.response.get("CancellationReasons", ())]
    refused = tuple(i for i, reason in enumerate(reasons) if reason == _CONDITION_FAILED)
    if refused:
        return RefusedError(text, refused)
    if _IN_FLIGHT in reasons:
        return ConflictError(text)
    if not _THROTTLED.isdisjoint(reasons):
        return ThrottledError(text)
    if not _ITEM_INVALID.isdisjoint(reasons):
        return InvalidRequestError(text)
    return UnavailableError(text)
