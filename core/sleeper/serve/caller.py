"""Who asks: what a table's property of callers knows him by."""

from typing import Any

from starlette.requests import Request

from sleeper.jobs.queue import LOCAL_SENDER


def caller_of(request: Request) -> str:
    """Behind API Gateway, whom IAM has let in; else whoever works with this machine's folder."""
    event: dict[str, Any] | None = request.scope.get("aws.event")
    if event is None:
        return LOCAL_SENDER
    identity = event["requestContext"].get("authorizer", {}).get("iam", {})
    return str(identity.get("callerId") or "unknown")
