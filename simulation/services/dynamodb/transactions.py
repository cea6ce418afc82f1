"""Transactions of DynamoDB: all writes of one or none, once for each token in ten minutes."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from botocore.exceptions import ClientError

from simulation.services.dynamodb.requests import ConditionFailedError, Write
from simulation.services.dynamodb.tables import Choose
from simulation.services.dynamodb.values import Item, invalid, item_bytes
from simulation.services.requests import client_error

_WRITES_MAX = 100
_BYTES_MAX = 4 * 1024**2
_TOKEN_MS = 600_000
_NONE = {"Code": "None"}


@dataclass(slots=True)
class Tokens:
    """The tokens of transactions of the last ten minutes, with their requests."""

    _requests: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    _made: int = 0

    def make(self) -> str:
        """Returns a new token."""
        self._made += 1
        return f"made-{self._made}"

    def is_repeated(self, token: str, writes: object, now_ms: int) -> bool:
        """Returns whether a transaction with this token was applied. An error if it differed."""
        kept = self._requests.items()
        for old, _ in list(takewhile(lambda each: now_ms - each[1][0] > _TOKEN_MS, kept)):
            del self._requests[old]
        if token not in self._requests:
            return False
        if self._requests[token][1] != _digest(writes):
            raise client_error(
                "IdempotentParameterMismatchException",
                "The request uses the same client token as a previous, but non-identical request.",
                "TransactWriteItems",
            )
        return True

    def keep(self, token: str, writes: object, now_ms: int) -> None:
        """Keeps the token of an applied transaction."""
        self._requests[token] = (now_ms, _digest(writes))


def _digest(writes: object) -> bytes:
    return hashlib.sha256(json.dumps(writes, sort_keys=True, default=repr).encode()).digest()


def evaluate(writes: Sequence[Write], choose: Choose) -> list[Item | None]:
    """Returns the items after the writes. An error with a reason for each that is refused."""
    _check(writes)
    results: list[Item | None] = []
    reasons: list[Mapping[str, Any]] = []
    for write in writes:
        reason: Mapping[str, Any] = _NONE
        result = None
        if write.table.is_unsettled(write.identity, choose):
            reason = {
                "Code": "TransactionConflict",
                "Message": "Transaction is ongoing for the item",
            }
        else:
            try:
                result = write.result(write.table.get(write.identity))
            except ConditionFailedError as error:
                reason = _refusal(write, error)
            except ClientError as error:
                message = error.response["Error"]["Message"]
                if "Item size" not in message and "operand" not in message:
                    raise
                reason = {"Code": "ValidationError", "Message": message}
        results.append(result)
        reasons.append(reason)
    if any(reason is not _NONE for reason in reasons):
        raise cancelled(reasons)
    total = sum(item_bytes(each) for each in results if each is not None)
    if total > _BYTES_MAX:
        raise invalid("Collection size exceeds 4 MB: transaction items are too large")
    return results


def cancelled(reasons: Sequence[Mapping[str, Any]]) -> Exception:
    """Returns the error of a cancelled transaction."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    return client_error(
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        "TransactWriteItems",
        more={"CancellationReasons": list(reasons)},
    )


def _refusal(write: Write, error: ConditionFailedError) -> Mapping[str, Any]:
    reason: dict[str, Any] = {
        "Code": "ConditionalCheckFailed",
        "Message": "The conditional request failed",
    }
    wants_item = write.request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
    if error.item is not None and wants_item:
        reason["Item"] = error.item
    return reason


def _check(writes: Sequence[Write]) -> None:
    if not 0 < len(writes) <= _WRITES_MAX:
        raise invalid(
            f"1 validation error detected: Value at 'transactItems' failed to satisfy constraint: "
            f"Member must have length less than or equal to {_WRITES_MAX}"
        )
    targets = [(write.table.name, write.identity) for write in writes]
    if len(set(targets)) < len(targets):
        raise invalid("Transaction request cannot include multiple operations on one item")
