"""What CloudFormation asks of a custom resource's function, and how it is answered.

The answer is put to an address that comes with the request. A deployment waits for it, so
there is one whatever happens.
"""

import json
import logging
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sleeper.errors import SleeperError

_log = logging.getLogger(__name__)
_ANSWER_SECONDS = 30
# What CloudFormation takes in all.
_ANSWER_BYTES_MAX = 4096


class RequestType(Enum):
    """What is to become of the resource."""

    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class CustomResourceRequest:
    """`before` is what the resource was described as until now, on an update."""

    type: RequestType
    properties: Mapping[str, Any]
    before: Mapping[str, Any] | None


def answer_request(event: Mapping[str, Any], work: Callable[[CustomResourceRequest], None]) -> None:
    """Does the work, and tells CloudFormation that it succeeded, or why it did not."""
    reason = ""
    try:
        work(
            CustomResourceRequest(
                RequestType(event["RequestType"]),
                event["ResourceProperties"],
                event.get("OldResourceProperties"),
            )
        )
    except SleeperError as error:
        reason = str(error) or type(error).__name__
    except Exception as error:
        _log.exception("custom resource failed")
        reason = f"{type(error).__name__}: {error}"
    _put(event, reason)


def _put(event: Mapping[str, Any], reason: str) -> None:
    answer = {
        "Status": "FAILED" if reason else "SUCCESS",
        # The same for ever: another one would make CloudFormation delete the resource.
        "PhysicalResourceId": event.get("PhysicalResourceId") or event["LogicalResourceId"],
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
    }
    # The address is signed for a request without a content type.
    request = urllib.request.Request(
        event["ResponseURL"],
        data=_with_reason(answer, reason),
        headers={"Content-Type": ""},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
        pass


def _with_reason(answer: Mapping[str, Any], reason: str) -> bytes:
    """The answer with as much of the reason as it may have."""
    while True:
        body = json.dumps({**answer, "Reason": reason}).encode()
        if len(body) <= _ANSWER_BYTES_MAX or not reason:
            return body
        reason = reason[: len(reason) * 9 // 10]
