"""Custom resources of a deployment: instance properties and tables.

A resource has the old and the new description of the deployed folder. Only their difference is
applied, so values that were set from the command line stay, and a repetition changes nothing.
"""

import json
import logging
import os
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from sleeper import INSTANCE_VARIABLE
from sleeper.admin.instance_folder import TableDefinition, check_kept_network
from sleeper.admin.properties import set_table_properties
from sleeper.admin.tables import create_table, parse_split_points, set_online
from sleeper.aws.clients import aws_client, describe_bucket
from sleeper.aws.config_bucket import PropertyFiles
from sleeper.aws.errors import translate_errors
from sleeper.aws.instance import CONFIG_BUCKET_VARIABLE, open_aws_instance
from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.instance import AWS_PREFIX, Instance
from sleeper.properties.declaration import INSTANCE_PROPERTIES, SetBy
from sleeper.properties.deployed import CONFIG_BUCKET, DATA_BUCKET
from sleeper.properties.instance import BUCKET_NAMES_REGION, NETWORK_ENDPOINTS
from sleeper.properties.java_text import read_properties_text
from sleeper.properties.table import ONLINE, SPLITS_BASE64
from sleeper.properties.values import InstanceProperties, instance_properties, without_newer
from sleeper.schema.model import schema_from_json, schema_to_json
from sleeper.storage.bucket import open_bucket

_log = logging.getLogger(__name__)
_RESPONSE_SECONDS = 30
# The limit of CloudFormation.
_RESPONSE_BYTES_MAX = 4096


class RequestType(Enum):
    """The change of the resource."""

    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class CustomResourceRequest:
    """The request of a custom resource. `before` are the former properties, on an update.

    `stack` is the id of the stack that has the resource.
    """

    type: RequestType
    stack: str
    properties: Mapping[str, Any]
    before: Mapping[str, Any] | None


def handle_request(event: Mapping[str, Any], work: Callable[[CustomResourceRequest], None]) -> None:
    """Does the work and reports success, or the reason of the failure, to CloudFormation."""
    reason = ""
    try:
        work(
            CustomResourceRequest(
                RequestType(event["RequestType"]),
                event["StackId"],
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
    response = {
        "Status": "FAILED" if reason else "SUCCESS",
        # If the id changed, CloudFormation would delete the resource.
        "PhysicalResourceId": event.get("PhysicalResourceId") or event["LogicalResourceId"],
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
    }
    # The URL's signature is of a request without a content type.
    request = urllib.request.Request(
        event["ResponseURL"],
        data=_response_body(response, reason),
        headers={"Content-Type": ""},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=_RESPONSE_SECONDS):
        pass


def _response_body(response: Mapping[str, Any], reason: str) -> bytes:
    """Returns the response with as much of the reason as fits."""
    while True:
        body = json.dumps({**response, "Reason": reason}).encode()
        if len(body) <= _RESPONSE_BYTES_MAX or not reason:
            return body
        reason = reason[: len(reason) * 9 // 10]


def write_properties(event: Mapping[str, Any]) -> None:
    """Writes `instance.properties` for a custom resource. A deletion changes nothing."""
    handle_request(event, _write_properties)


def define_tables(event: Mapping[str, Any]) -> None:
    """Creates or changes the table of a custom resource. A deletion changes nothing."""
    handle_request(event, _define_table)


def deployed_properties(
    current: Mapping[str, str],
    before: Mapping[str, str],
    after: Mapping[str, str],
    deployed: Mapping[str, str],
) -> InstanceProperties:
    """Returns the current properties with the changes from `before` to `after`.

    Those that a deployment sets are replaced by `deployed`. InvalidRequestError names a wrong one.
    """
    if NETWORK_ENDPOINTS.name in deployed:
        has_endpoints = NETWORK_ENDPOINTS.parse(deployed[NETWORK_ENDPOINTS.name])
        check_kept_network(current, after, has_endpoints=has_endpoints)
    written = {p.name for p in INSTANCE_PROPERTIES if p.set_by is SetBy.DEPLOYMENT}
    # A rollback leaves nothing that this version would refuse.
    known = without_newer(current)
    kept = {name: value for name, value in known.items() if name not in written}
    return instance_properties({**kept, **_changes(before, after), **deployed})


def check_kept_buckets(before: Mapping[str, str], deployed: Mapping[str, str]) -> None:
    """Raises InvalidRequestError if an upgrade would leave the data in buckets of other names."""
    for name in (CONFIG_BUCKET.name, DATA_BUCKET.name):
        if name in before and before[name] != deployed.get(name):
            raise InvalidRequestError(
                f"{name} would change from {before[name]} to {deployed.get(name)}, which has no "
                f"data: deploy with the former {BUCKET_NAMES_REGION.name}"
            )


def protect_tables(dynamo: Any, names: Sequence[str], protect: bool) -> None:
    """Turns the deletion protection of DynamoDB tables on or off."""
    for name in names:
        with translate_errors(f"table {name}"):
            table = dynamo.describe_table(TableName=name)["Table"]
            if table.get("DeletionProtectionEnabled", False) != protect:
                dynamo.update_table(TableName=name, DeletionProtectionEnabled=protect)


def define_table(
    instance: Instance, definition: TableDefinition, before: TableDefinition | None
) -> None:
    """Creates the table, or sets the properties that differ from `before`.

    Split points apply to a new table. InvalidRequestError if the schema is neither that of the
    table nor that of `before`.
    """
    settings = dict(definition.settings)
    try:
        table = instance.table(definition.name)
    except NotFoundError:
        schema = schema_from_json(definition.schema)
        is_base64 = SPLITS_BASE64.parse(settings.get(SPLITS_BASE64.name, "false"))
        where = f"split points of table {definition.name!r}"
        points = parse_split_points(schema, definition.split_points, where, is_base64)
        create_table(instance, definition.name, definition.schema, settings, points)
        return
    with table.state.reading() as state:
        schema = state.schema
    is_same = before is not None and before.schema == definition.schema
    if not is_same and not schema.has_fields_of(schema_from_json(definition.schema)):
        raise InvalidRequestError(
            f"table {definition.name!r}: the schema in the folder is not that of the table, "
            f"{schema_to_json(schema)} (expected that one: fields of an existing table change by "
            "commands such as `sleeper table add-field`)"
        )
    if before is None:
        return  # created by an earlier attempt or from the command line
    changes = _changes(before.settings, settings)
    online = changes.pop(ONLINE.name, None)
    if online is not None:
        set_online(instance, definition.name, ONLINE.parse(online) if online else True)
    if changes:
        set_table_properties(instance, definition.name, changes)


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Returns the values to set; an empty one unsets its property."""
    removed = {name: "" for name in before if name not in after}
    return removed | {name: value for name, value in after.items() if before.get(name) != value}


def _write_properties(request: CustomResourceRequest) -> None:
    if request.type is RequestType.DELETE:
        return
    bucket = os.environ[CONFIG_BUCKET_VARIABLE]
    before = request.before["Set"] if request.before else {}
    after, deployed = request.properties["Set"], request.properties["Deployed"]
    check_kept_buckets(request.before["Deployed"] if request.before else {}, deployed)

    def change(text: str) -> InstanceProperties:
        return deployed_properties(read_properties_text(text), before, after, deployed)

    PropertyFiles(open_bucket(describe_bucket(bucket)), bucket).write_instance(change)
    protect = request.properties["Protect"] == "true"
    protect_tables(aws_client("dynamodb"), request.properties["Protected"], protect)
    # An alarm notices the end of runs only after the first run.
    with translate_errors("the watch"):
        aws_client("lambda").invoke(
            FunctionName=request.properties["Watch"], InvocationType="Event", Payload=b"{}"
        )


def _define_table(request: CustomResourceRequest) -> None:
    if request.type is RequestType.DELETE:
        return
    instance = open_aws_instance(os.environ[INSTANCE_VARIABLE].removeprefix(AWS_PREFIX))
    try:
        before = _definition(request.before) if request.before else None
        definition = _definition(request.properties)
        define_table(instance, _add_split_points(definition, request.properties), before)
    finally:
        instance.close()


def _definition(properties: Mapping[str, Any]) -> TableDefinition:
    return TableDefinition(
        properties["Name"],
        properties["Schema"],
        # CloudFormation omits empty members.
        properties.get("Settings", {}),
        properties.get("SplitPoints", ""),
    )


def _add_split_points(
    definition: TableDefinition, properties: Mapping[str, Any]
) -> TableDefinition:
    """Reads split points that are in an object, because they are many."""
    if "SplitPointsKey" not in properties:
        return definition
    bucket, key = properties["SplitPointsBucket"], properties["SplitPointsKey"]
    with translate_errors(f"split points of table {definition.name!r}, s3://{bucket}/{key}"):
        found = aws_client("s3").get_object(Bucket=bucket, Key=key)
        return replace(definition, split_points=found["Body"].read().decode())
