"""Custom resources that do what CloudFormation does not before it deletes other resources.

A bucket must be empty, a cluster must have no tasks, and an application of EMR Serverless must be
stopped. These resources are created after what they prepare, so CloudFormation deletes them first.
It deletes them too when a deployment removes them from the template, and when it rolls one back.
Then their bucket or cluster stays, so they act only if their stack is deleted.
"""

import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

from sleeper.aws.clients import aws_client
from sleeper.aws.deployment import CustomResourceRequest, RequestType, handle_request
from sleeper.aws.machines import (
    Clusters,
    Executions,
    Machines,
    ServerlessApplication,
    Tasks,
    stop_machines,
)
from sleeper.errors import DataError, InvalidRequestError

_log = logging.getLogger(__name__)
# A stack whose creation failed is rolled back, and has nothing to keep.
_DELETED = {"DELETE_IN_PROGRESS", "ROLLBACK_IN_PROGRESS"}
# Less than the longest run of a function.
_STOPPING_SECONDS = 840.0


def empty_deleted_bucket(event: Mapping[str, Any]) -> None:
    """Empties the bucket of a custom resource whose stack is deleted."""
    handle_request(event, _empty_bucket)


def stop_deleted_machines(event: Mapping[str, Any]) -> None:
    """Stops the machines of a custom resource whose stack is deleted, and waits for their end."""
    handle_request(event, _stop_machines)


def empty_bucket(client: Any, bucket: str) -> int:
    """Deletes all versions of all objects; returns how many. A missing bucket has none.

    DataError if an object cannot be deleted.
    """
    deleted = 0
    with contextlib.suppress(client.exceptions.NoSuchBucket):
        # The first page each time, because the objects of earlier pages are deleted.
        while versions := _first_page(client, bucket):
            _delete(client, bucket, versions)
            deleted += len(versions)
    return deleted


def _first_page(client: Any, bucket: str) -> list[dict[str, Any]]:
    page = client.list_object_versions(Bucket=bucket)
    return [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]


def _delete(client: Any, bucket: str, versions: list[dict[str, Any]]) -> None:
    """Deletes a page of versions, which is the limit of one request."""
    objects = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in versions]
    response = client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
    for error in response.get("Errors", ()):
        raise DataError(
            f"object {error['Key']} of bucket {bucket} cannot be deleted: {error.get('Message')}"
        )


def _is_stack_deleted(request: CustomResourceRequest) -> bool:
    if request.type is not RequestType.DELETE:
        return False
    (stack,) = aws_client("cloudformation").describe_stacks(StackName=request.stack)["Stacks"]
    status = stack["StackStatus"]
    if status not in _DELETED:
        _log.info("kept what a custom resource of stack %s prepares: %s", request.stack, status)
    return status in _DELETED


def _empty_bucket(request: CustomResourceRequest) -> None:
    if _is_stack_deleted(request):
        empty_bucket(aws_client("s3"), request.properties["Bucket"])


def _stop_machines(request: CustomResourceRequest) -> None:
    if _is_stack_deleted(request):
        stop_machines(_machines(request.properties), time.sleep, _STOPPING_SECONDS)


def _machines(properties: Mapping[str, Any]) -> Machines:
    match properties:
        case {"Cluster": str(cluster)}:
            return Tasks(aws_client("ecs"), cluster)
        case {"Application": str(application)}:
            return ServerlessApplication(aws_client("emr-serverless"), application)
        case {"SecurityGroup": str(group)}:
            return Clusters(aws_client("emr"), group)
        case {"StateMachine": str(machine)}:
            return Executions(aws_client("stepfunctions"), machine)
    raise InvalidRequestError(f"no machines are named: {dict(properties)}")
