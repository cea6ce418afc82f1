"""The exporter `python:NAME`: a class that a wheel of the instance registers as NAME.

For a local instance, `python:module:object` is a class of a module that its processes can import.
The class has `export(batch)`, and may have `close()`. It is called with the options of the queue,
as a dict of texts, if it takes an argument, and else without any; a password is the option
`password`. Its object is used by one thread at a time. Each worker thread makes its own.
"""

import inspect
from typing import Any

from sleeper.errors import InvalidRequestError, SleeperError, UserCodeError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import ExportBatch, Exporter
from sleeper.instance import Instance
from sleeper.runs.secrets import read_secret
from sleeper.user_code.calls import contain_errors
from sleeper.user_code.named import import_named, is_module_object
from sleeper.user_code.wheel import CodeKind

_PASSWORD = "password"
_POSITIONAL = {
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
}


class _PythonExporter:
    """Calls the user's object. Its errors are passed on: their types decide about a retry."""

    def __init__(self, user_object: Any) -> None:
        self._object = user_object

    def export(self, batch: ExportBatch) -> None:
        """See the protocol."""
        self._object.export(batch)

    def close(self) -> None:
        """See the protocol."""
        close = getattr(self._object, "close", None)
        if close is not None:
            close()


def make(instance: Instance, queue: ExportQueue) -> Exporter:
    """Returns the exporter. UserCodeError if the class cannot be imported or constructed."""
    settings, where = queue.exporter, _describe(queue)
    if is_module_object(settings.target):
        user_class = import_named(where, settings.target, _allows_imports(instance))
    else:
        user_class = instance.code.load(CodeKind.EXPORTER, settings.target)
    options = dict(settings.options)
    if settings.password is not None:
        options[_PASSWORD] = read_secret(instance, settings.password)
    with contain_errors(
        lambda why: UserCodeError(f"{where} cannot be constructed: {why}"), passed=(SleeperError,)
    ):
        user_object = user_class(options) if _takes_argument(user_class) else user_class()
    if not callable(getattr(user_object, "export", None)):
        raise UserCodeError(f"{where} has no method export(batch)")
    return _PythonExporter(user_object)


def check(instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError if no wheel registers the name. Runs no code of wheels.

    Imports a module, and so UserCodeError if that fails. A class of `__main__` has another module
    in every process.
    """
    settings = queue.exporter
    if settings.target.startswith("__main__:"):
        raise InvalidRequestError(
            f"{_describe(queue)} is in the main module, which workers do not import (expected a "
            "class of another module)"
        )
    if is_module_object(settings.target):
        import_named(_describe(queue), settings.target, _allows_imports(instance))
    else:
        instance.code.registry.find(CodeKind.EXPORTER, settings.target)
    if _PASSWORD in settings.options:
        raise InvalidRequestError(
            f"export queue {queue.name!r}: option {_PASSWORD!r} is not allowed "
            "(expected a reference as its password)"
        )


def _describe(queue: ExportQueue) -> str:
    return f"exporter {queue.exporter.target!r} of export queue {queue.name!r}"


def _allows_imports(instance: Instance) -> bool:
    """Returns whether the instance is local: who writes its definitions may write its wheels."""
    return instance.background is not None


def _takes_argument(user_class: Any) -> bool:
    try:
        parameters = inspect.signature(user_class).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(each.kind in _POSITIONAL for each in parameters)
