"""Finds an instance by what a user calls it."""

import os
from collections.abc import Mapping
from pathlib import Path

from sleeper.errors import InvalidRequestError
from sleeper.instance import AWS_PREFIX, INSTANCE_VARIABLE, Instance


def open_instance(where: str | os.PathLike[str] | None = None) -> Instance:
    """Opens an instance: a folder, or `aws:<instance id>`; by default what SLEEPER_INSTANCE says.

    Only the adapters that it needs are loaded.
    """
    named = _named(where)
    if named.startswith(AWS_PREFIX):
        from sleeper.aws.instance import open_aws_instance

        return open_aws_instance(named.removeprefix(AWS_PREFIX))
    from sleeper.local.instance import open_local_instance

    return open_local_instance(Path(named))


def make_instance(
    where: str | os.PathLike[str] | None,
    instance_id: str | None = None,
    values: Mapping[str, str] | None = None,
) -> str:
    """Makes an instance in a folder, by default under the folder's name; returns its id."""
    named = _named(where)
    if named.startswith(AWS_PREFIX):
        raise InvalidRequestError(
            f"instance {named!r}: an AWS instance is made by deploying it, with `cdk deploy`"
        )
    from sleeper.local.instance import make_local_instance

    folder = Path(named)
    chosen = instance_id or _id_from(folder.resolve().name)
    make_local_instance(folder, chosen, values)
    return chosen


def _named(where: str | os.PathLike[str] | None) -> str:
    named = os.fspath(where) if where is not None else os.environ.get(INSTANCE_VARIABLE)
    if not named:
        raise InvalidRequestError(
            "no instance is named: give --instance with a folder or aws:INSTANCE_ID, "
            f"or set {INSTANCE_VARIABLE}"
        )
    return named


def _id_from(name: str) -> str:
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower()).strip("-")
    return kept[:20].strip("-") or "sleeper"
