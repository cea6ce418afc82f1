"""Updates and deletes nested stacks, and imports their resources, as CloudFormation does.

Without this, ministack forgets the attributes of resources that an update of a nested stack leaves
as they are, deletes what its template retains, ignores failures there, and imports into the
outermost stack only. Run by ministack's own Python, as `ministack_program` is.

Buckets get their tags. A bucket with objects and a cluster with tasks are not deleted. An existing
bucket or table is not created again. A change set with ImportExistingResources imports it, if its
name is a text, its template retains it, and no stack has it.
"""

import importlib
from collections.abc import Callable
from typing import Any

_CloudFormation: Any = importlib.import_module("ministack.services.cloudformation")
_handlers: Any = importlib.import_module("ministack.services.cloudformation.handlers")
_engine: Any = importlib.import_module("ministack.services.cloudformation.engine")
_provisioners: Any = importlib.import_module("ministack.services.cloudformation.provisioners")
_stacks: Any = importlib.import_module("ministack.services.cloudformation.stacks")
_s3: Any = importlib.import_module("ministack.services.s3")
_dynamodb: Any = importlib.import_module("ministack.services.dynamodb")
_ecs: Any = importlib.import_module("ministack.services.ecs")

_NAMES = {"AWS::S3::Bucket": "BucketName", "AWS::DynamoDB::Table": "TableName"}


def install() -> None:
    """Replaces ministack's functions."""
    handlers = _provisioners._RESOURCE_HANDLERS
    handlers["AWS::CloudFormation::Stack"]["delete"] = _delete_nested_stack
    for kind, check in (("AWS::S3::Bucket", _check_empty), ("AWS::ECS::Cluster", _check_idle)):
        handlers[kind]["delete"] = _checked(check, handlers[kind]["delete"])
    update = _provisioners._update_resource
    _provisioners._update_resource = lambda *arguments: _update_or_keep(update, *arguments)
    create = _provisioners._provision_resource
    _provisioners._provision_resource = lambda *arguments: _create_or_import(create, *arguments)

    describe = _handlers._ACTION_HANDLERS["DescribeStackResources"]
    _handlers._ACTION_HANDLERS["DescribeStackResources"] = lambda parameters: describe(
        _with_stack(parameters)
    )


def _update_or_keep(
    update: Callable[..., Any],
    kind: str,
    physical_id: str,
    old: Any,
    new: Any,
    stack_name: str,
    logical_id: str,
) -> Any:
    """Updates a resource of a nested stack, or returns the attributes of one without changes."""
    if old == new:
        return physical_id, _CloudFormation._stacks[stack_name]["_resources"][logical_id][
            "Attributes"
        ]
    return update(kind, physical_id, old, new, stack_name, logical_id)


def _with_stack(parameters: dict[str, Any]) -> dict[str, Any]:
    """Adds the name of the stack that has a resource, if the request has only the resource's."""
    name = parameters.get("PhysicalResourceId")
    for stack_name, stack in _CloudFormation._stacks.items():
        if name and _has(stack, name[0] if isinstance(name, list) else name):
            return {**parameters, "StackName": [stack_name]}
    return parameters


def _delete_nested_stack(physical_id: str, _: Any) -> None:
    name = _provisioners._nested_stack_lookup_name(physical_id)
    stack = _CloudFormation._stacks.get(name)
    if not stack:
        return
    stack["StackStatus"] = "DELETE_IN_PROGRESS"
    resources, template = stack["_resources"], stack["_template"]
    failures = []
    for logical_id in reversed(
        _engine._topological_sort(template["Resources"], stack["_conditions"])
    ):
        if logical_id not in resources:
            continue
        each = resources[logical_id]
        try:
            if not _is_retained(template, logical_id):
                _provisioners._delete_resource(
                    each["ResourceType"],
                    each["PhysicalResourceId"],
                    each["Properties"],
                    name,
                    logical_id,
                )
            del resources[logical_id]
        except Exception as error:
            failures.append(f"{logical_id}: {error}")
    if failures:
        stack["StackStatus"] = "DELETE_FAILED"
        raise ValueError("; ".join(failures))
    stack["StackStatus"] = "DELETE_COMPLETE"


def _is_retained(template: dict[str, Any], logical_id: str) -> bool:
    policy = template["Resources"][logical_id].get("DeletionPolicy")
    return policy in _stacks._RETAINING_POLICIES


def _checked(check: Callable[[str], None], delete: Callable[..., None]) -> Callable[..., None]:
    def checked(physical_id: str, *more: Any) -> None:
        check(physical_id)
        delete(physical_id, *more)

    return checked


def _check_empty(bucket: str) -> None:
    if _s3._buckets.get(bucket, {}).get("objects"):
        raise ValueError(f"The bucket you tried to delete is not empty: {bucket}")


def _check_idle(cluster: str) -> None:
    name = cluster.rpartition("/")[2]
    active = [
        task
        for task in _ecs._tasks.values()
        if task["clusterArn"].endswith(f"/{name}") and task["lastStatus"] != "STOPPED"
    ]
    if active:
        raise ValueError("The Cluster cannot be deleted while Tasks are active.")


def _create_or_import(
    create: Callable[..., Any], kind: str, logical_id: str, properties: Any, stack_name: str
) -> Any:
    name = properties.get(_NAMES.get(kind, ""))
    existing = {"AWS::S3::Bucket": _s3._buckets, "AWS::DynamoDB::Table": _dynamodb._tables}
    if kind not in existing or name not in existing[kind]:
        made = create(kind, logical_id, properties, stack_name)
        if kind == "AWS::S3::Bucket":
            tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", ())}
            _s3._bucket_tags[name] = {**tags, "aws:cloudformation:stack-name": stack_name}
        return made
    stack = _CloudFormation._stacks[stack_name]
    declared = stack["_template"]["Resources"][logical_id]["Properties"][_NAMES[kind]]
    may_import = _is_importing(stack) and _is_retained(stack["_template"], logical_id)
    if not may_import or not isinstance(declared, str) or _is_owned(name):
        raise ValueError(f"{name} already exists")
    return _provisioners._import_resource(kind, {_NAMES[kind]: name})


def _is_importing(stack: dict[str, Any]) -> bool:
    root = stack["RootId"]
    return any(
        change_set["StackId"] == root
        and change_set["ExecutionStatus"] == "EXECUTE_IN_PROGRESS"
        and change_set["ImportExistingResources"]
        for change_set in _CloudFormation._change_sets.values()
    )


def _is_owned(name: str) -> bool:
    return any(_has(stack, name) for stack in _CloudFormation._stacks.values())


def _has(stack: dict[str, Any], name: str) -> bool:
    return any(each["PhysicalResourceId"] == name for each in stack["_resources"].values())
