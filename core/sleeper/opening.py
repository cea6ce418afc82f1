"""Opens and creates instances: the only module that chooses between local and AWS."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from sleeper import INSTANCE_VARIABLE, READ_ONLY_VARIABLE, UPGRADE_VARIABLE
from sleeper.errors import InvalidRequestError, NotFoundError, read_only_error
from sleeper.instance import AWS_PREFIX, Instance
from sleeper.jobs.queue import ExternalQueue

# A path object has one slash.
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
_TRUE_VALUES = ("1", "true", "t", "yes", "y", "on")
_FALSE_VALUES = ("", "0", "false", "f", "no", "n", "off")


def open_instance(
    where: str | os.PathLike[str] | None = None,
    read_only: bool = False,
    upgrade: bool = False,
    accept_upgrade: Callable[[str], bool] | None = None,
    config_bucket: str | None = None,
) -> Instance:
    """Opens the instance of a folder, or `aws:<instance id>`; by default SLEEPER_INSTANCE.

    It imports only the modules of that kind of instance. SLEEPER_READ_ONLY opens all instances of
    the process read-only, which are folders. `upgrade`, SLEEPER_UPGRADE or an `accept_upgrade` that
    returns true converts the states of a folder of an older version, which is refused otherwise.
    `config_bucket` is that of an instance on AWS, whose name else needs a request for the account.
    """
    name = _instance_name(where)
    read_only = read_only or is_opened_read_only()
    if name.startswith(AWS_PREFIX):
        if read_only:
            raise InvalidRequestError(
                f"instance {name!r} cannot be opened read-only (expected a folder; on AWS, use a "
                "role that may only read)"
            )
        from sleeper.aws.instance import open_aws_instance

        return open_aws_instance(name.removeprefix(AWS_PREFIX), config_bucket=config_bucket)
    from sleeper.local.instance import open_local_instance

    return open_local_instance(
        Path(name),
        open_external_queue=_open_sqs,
        read_only=read_only,
        upgrade=upgrade or _is_set(UPGRADE_VARIABLE),
        accept_upgrade=accept_upgrade,
    )


def is_opened_read_only() -> bool:
    """Returns whether SLEEPER_READ_ONLY is set. InvalidRequestError if its value is not valid."""
    return _is_set(READ_ONLY_VARIABLE)


def _is_set(variable: str) -> bool:
    value = os.environ.get(variable, "")
    if value.lower() in _TRUE_VALUES:
        return True
    if value.lower() in _FALSE_VALUES:
        return False
    raise InvalidRequestError(f"invalid {variable}: {value!r} (expected true or false)")


def find_instance(where: str | os.PathLike[str] | None = None) -> Instance | None:
    """Opens the instance, or returns None if the folder is not an instance."""
    name = _instance_name(where)
    try:
        return open_instance(name)
    except NotFoundError:
        if name.startswith(AWS_PREFIX):
            raise
        return None


def create_instance(
    where: str | os.PathLike[str] | None,
    instance_id: str | None = None,
    values: Mapping[str, str] | None = None,
) -> str:
    """Creates an instance in a folder; returns its id, by default the folder's name."""
    name = _instance_name(where)
    if is_opened_read_only():
        raise read_only_error(name)
    if name.startswith(AWS_PREFIX):
        raise InvalidRequestError(
            f"instance {name!r}: an AWS instance is created by deploying it, with `cdk deploy`"
        )
    from sleeper.local.instance import create_local_instance

    return create_local_instance(Path(name), instance_id, values)


def _open_sqs(name: str) -> ExternalQueue:
    """Opens a queue of SQS with the credentials of AWS of this process."""
    from sleeper.aws.external_queue import open_external_queue

    return open_external_queue(name)


def _instance_name(where: str | os.PathLike[str] | None) -> str:
    name = os.fspath(where) if where is not None else os.environ.get(INSTANCE_VARIABLE)
    if not name:
        raise InvalidRequestError(
            "no instance specified: pass --instance with a folder or aws:INSTANCE_ID, "
            f"or set {INSTANCE_VARIABLE}"
        )
    if _URL.match(name):
        raise InvalidRequestError(
            f"instance {name!r} is a URL (expected a folder or aws:INSTANCE_ID)"
        )
    return name
