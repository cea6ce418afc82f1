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
# CloudFormation takes 4 KiB in all.
_REASON_CHARACTERS_MAX = 1500


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
        reason = str(error)
    except Exception as error:
        _log.exception("custom resource failed")
        reason = f"{type(error).__name__}: {error}"
    _put(event, reason)


def _put(event: Mapping[str, Any], reason: str) -> None:
    answer = {
        "Status": "FAILED" if reason else "SUCCESS",
        "Reason": reason[:_REASON_CHARACTERS_MAX],
        # The same for ever: another one would make CloudFormation delete the resource.
        "PhysicalResourceId": event.get("PhysicalResourceId") or event["LogicalResourceId"],
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
    }
    # The address is signed for a request without a content type.
    request = urllib.request.Request(
        event["ResponseURL"],
        data=json.dumps(answer).encode(),
        headers={"Content-Type": ""},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
        pass
