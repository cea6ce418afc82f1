"""Finds an instance by what a user calls it."""

import os
from collections.abc import Mapping
from pathlib import Path

from sleeper.errors import InvalidRequestError
from sleeper.wiring.instance import Instance
from sleeper.wiring.local_instance import make_local_instance, open_local_instance

INSTANCE_VARIABLE = "SLEEPER_INSTANCE"
_AWS_PREFIX = "aws:"


def open_instance(where: str | os.PathLike[str] | None = None) -> Instance:
    """Opens an instance: a folder, or what SLEEPER_INSTANCE says if nothing is given."""
    return open_local_instance(_folder_of(where))


def make_instance(
    where: str | os.PathLike[str] | None,
    instance_id: str | None = None,
    values: Mapping[str, str] | None = None,
) -> str:
    """Makes an instance in a folder, by default under the folder's name; returns its id."""
    folder = _folder_of(where)
    chosen = instance_id or _id_from(folder.resolve().name)
    make_local_instance(folder, chosen, values)
    return chosen


def _folder_of(where: str | os.PathLike[str] | None) -> Path:
    named = os.fspath(where) if where is not None else os.environ.get(INSTANCE_VARIABLE)
    if not named:
        raise InvalidRequestError(
            f"no instance is named: give --instance FOLDER, or set {INSTANCE_VARIABLE}"
        )
    if named.startswith(_AWS_PREFIX):
        raise InvalidRequestError(
            f"instance {named!r}: AWS instances are not part of this version; name a folder"
        )
    return Path(named)


def _id_from(name: str) -> str:
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower()).strip("-")
    return kept[:20].strip("-") or "sleeper"
