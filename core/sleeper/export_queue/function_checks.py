"""Checks that the functions of an instance on AWS can drain a queue."""

from fnmatch import fnmatchcase

from sleeper.errors import InvalidRequestError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.properties import (
    EXPORT_DRAIN_TIMEOUT_SECONDS,
    EXPORT_SECRETS,
    EXPORT_SQS_QUEUES,
)
from sleeper.instance import Instance
from sleeper.runs.secrets import check_managed_secret

END_SECONDS = 10
"""The part of a function's time after the last call of an exporter."""


def check_functions(instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError if functions on AWS could not drain the queue.

    They read only listed secrets, send only to listed queues of SQS, and end after their timeout.
    Local instances have no functions.
    """
    if instance.background is not None:
        return
    properties, what = instance.properties(), f"export queue {queue.name!r}"
    if queue.exporter.password is not None:
        check_managed_secret(instance, queue.exporter.password, EXPORT_SECRETS, "exporters")
    if queue.exporter.kind == "sqs":
        arns = properties.get(EXPORT_SQS_QUEUES)
        if not any(_is_queue(arn, queue.exporter.target) for arn in arns):
            raise InvalidRequestError(
                f"{what}: {queue.exporter.target} is not a queue that exporters may send to "
                f"(expected its ARN in {EXPORT_SQS_QUEUES.name}, and a new deployment)"
            )
    longest = properties.get(EXPORT_DRAIN_TIMEOUT_SECONDS) - END_SECONDS
    if queue.timeout_seconds > longest:
        raise InvalidRequestError(
            f"{what}: timeout {queue.timeout_seconds} s is out of range (expected at most {longest}"
            f", {END_SECONDS} s less than {EXPORT_DRAIN_TIMEOUT_SECONDS.name})"
        )


def _is_queue(arn: str, target: str) -> bool:
    """Returns whether an ARN, which may have wildcards, is that of a queue's URL or name."""
    parts = arn.split(":")
    path, _, name = target.rpartition("/")
    account = path.rpartition("/")[2]
    if len(parts) != 6 or not fnmatchcase(name, parts[5]):
        return False
    return not account or fnmatchcase(account, parts[4])
