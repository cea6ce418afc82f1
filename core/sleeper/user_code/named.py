"""Objects of users by name: `NAME`, which a wheel of the instance registers, or `module:object`.

A module that a name chooses runs its code when it is imported. So only those who could run code in
the process anyway may name one: its user, and whoever writes the local instance that it works for.
Messages, and definitions of instances on AWS, have registered names only.
"""

import importlib
from typing import Any

from sleeper.errors import InvalidRequestError, UserCodeError
from sleeper.user_code.calls import contain_errors


def name_object(given: object) -> str:
    """Returns the name of an object by its class, of a class, or a text itself."""
    if isinstance(given, str):
        return given
    kind = given if isinstance(given, type) else type(given)
    return f"{kind.__module__}:{kind.__qualname__}"


def is_module_object(name: str) -> bool:
    """Returns whether the name has the form `module:object`."""
    return ":" in name


def import_named(where: str, name: str, allows_imports: bool) -> Any:
    """Returns the object `module:object`. `where` begins the texts of errors.

    InvalidRequestError unless `allows_imports`; UserCodeError if it cannot be imported.
    """
    if not allows_imports:
        raise InvalidRequestError(f"{where} names a module (expected a registered name)")
    module, _, attributes = name.partition(":")
    with contain_errors(lambda why: UserCodeError(f"{where} cannot be imported: {why}")):
        found: Any = importlib.import_module(module)
        for each in attributes.split("."):
            found = getattr(found, each)
    return found
