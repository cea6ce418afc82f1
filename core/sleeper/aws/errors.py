"""Translates errors of AWS to `sleeper.errors`."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

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
# DynamoDB reports a missing or unfinished index as an invalid request.
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
_IN_PROGRESS = "TransactionConflict"
_THROTTLED = {"ThrottlingError", "ProvisionedThroughputExceeded"}
_ITEM_INVALID = {"ValidationError", "ItemCollectionSizeLimitExceeded"}


class RefusedError(ConflictError):
    """DynamoDB refused a write because a condition did not hold.

    `items` are the positions, from 0, of the writes of a transaction whose condition failed.
    """

    def __init__(self, text: str, items: tuple[int, ...]) -> None:
        super().__init__(text)
        self.items = items


class MissingResourceError(UnavailableError):
    """A DynamoDB table, one of its indexes, a queue or another part of the deployment is missing.

    A backup may be about to restore it, so this does not mean that an item does not exist.
    """


class ThrottledError(UnavailableError):
    """The service had no capacity for the request or a part of it, which boto3 does not retry."""


def error_code(error: ClientError) -> str:
    """Returns the error's code, without the prefixes of older protocols."""
    return str(error.response.get("Error", {}).get("Code", "")).rpartition(".")[2]


class TruncatedResponseError(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """The response of a service is not complete."""

    fmt = "the response of {operation} is truncated"


def check_response(http_response: Any, parsed: Mapping[str, Any], model: Any, **_: object) -> None:
    """Raises TruncatedResponseError for a response that is not JSON but should be.

    botocore returns a dict without any member then.
    """
    is_json = "json" in http_response.headers.get("Content-Type", "")
    has_members = model.output_shape is not None and model.output_shape.members
    if not is_json or not has_members or model.has_streaming_output or len(parsed) > 1:
        return
    try:
        json.loads(http_response.content)
    except ValueError as error:
        raise TruncatedResponseError(operation=model.name) from error


@contextlib.contextmanager
def translate_errors(subject: str) -> Iterator[None]:
    """Raises an error of `sleeper.errors` that names `subject` for an error of boto3 in the block.

    A failed condition is RefusedError. Throttling, failing and unreachable services, and missing
    permissions are UnavailableError; missing infrastructure is MissingResourceError.
    """
    try:
        yield
    except ClientError as error:
        raise _translate(subject, error) from error
    except (NoRegionError, NoCredentialsError) as error:
        raise InvalidRequestError(f"{subject}: {error}") from error
    except BotoCoreError as error:
        raise UnavailableError(f"{subject}: {error}") from error


def _translate(subject: str, error: ClientError) -> SleeperError:
    code = error_code(error)
    message = str(error.response.get("Error", {}).get("Message", ""))
    text = f"{subject}: {code}: {message}"
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
    """Translates the reasons of the items. A failed condition comes first: it fails again."""
    reasons = [str(r.get("Code", "")) for r in error.response.get("CancellationReasons", ())]
    refused = tuple(i for i, reason in enumerate(reasons) if reason == _CONDITION_FAILED)
    if refused:
        return RefusedError(text, refused)
    if _IN_PROGRESS in reasons:
        return ConflictError(text)
    if not _THROTTLED.isdisjoint(reasons):
        return ThrottledError(text)
    if not _ITEM_INVALID.isdisjoint(reasons):
        return InvalidRequestError(text)
    return UnavailableError(text)
