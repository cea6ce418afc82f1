"""The calls that an instance makes of the services of AWS, for the coverage of faults."""

from simulation.services.control import ControlClient
from simulation.services.dynamodb.administration import TablesClient
from simulation.services.dynamodb.client import DynamoClient
from simulation.services.s3.functions import FUNCTIONS
from simulation.services.sqs.client import SqsClient

_CONTROL = {
    "ecs": ("run_task", "list_tasks"),
    "events": ("enable_rule", "disable_rule"),
    "secretsmanager": ("get_secret_value",),
}
_UPLOADS = ("create_multipart_upload", "upload_part", "complete_multipart_upload")
# The listing with folders is the same call, and a writer makes its calls when it is closed.
_NO_CALLS = {"list_with_delimiter", "open_writer"}
_NOT_OF_INSTANCES = {"get_paginator", "create_queue", "delete_queue", *dir(TablesClient)}


def list_calls() -> list[str]:
    """Returns the names of all calls, such as `dynamodb.put_item`."""
    assert all(hasattr(ControlClient, each) for names in _CONTROL.values() for each in names)
    operations = {
        "dynamodb": _methods(DynamoClient),
        "sqs": _methods(SqsClient),
        "s3": [*(FUNCTIONS.keys() - _NO_CALLS), *_UPLOADS, "delete_objects"],
        **_CONTROL,
    }
    return sorted(f"{service}.{each}" for service, names in operations.items() for each in names)


def _methods(client: type) -> list[str]:
    return [name for name in dir(client) if name[0] != "_" and name not in _NOT_OF_INSTANCES]
